"""SmolLM2 from its GGUF file, with weights of 4 bits as they are stored, beside llama.cpp."""

import pytest
import torch

import engram
from engram.generation.sampling import GREEDY
from engram.hub.models import fetch_model

xllamacpp = pytest.importorskip("xllamacpp")
PROMPTS = (
    "The capital of France is", "Once upon a time", "def fibonacci(n):", "Water boils at", "The three laws of motion",
    "In 1969, the first", "Photosynthesis is the process", "My favorite book is", "2 + 2 =", "Dear Sir or Madam,",
)  # fmt: skip
NEW = 64
NEARLY_EQUAL = 2.0
"""difference of two logits, whose standard deviation is 8, that inputs of 8 bits explain"""
pytestmark = [pytest.mark.download, pytest.mark.slow]


@pytest.fixture(scope="module")
def model():
    return engram.load("smollm2", quantized=True)


@pytest.fixture(scope="module")
def llama_cpp(model):
    """A function that gives the greedy tokens after a prompt, and their log-probabilities."""
    params = xllamacpp.CommonParams()
    params.model.path = str(fetch_model("smollm2"))
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.n_ctx, params.n_parallel, params.verbosity, params.warmup = 512, 1, 0, False
    server = xllamacpp.Server(params)

    def complete(ids):
        options = {"n_predict": NEW, "temperature": 0.0, "top_k": 1, "ignore_eos": True, "logprobs": 1}
        content = server.handle_completions({"prompt": ids, **options})["choices"][0]["logprobs"]["content"]
        return [token["id"] for token in content], torch.tensor([token["logprob"] for token in content])

    return complete


@pytest.mark.parametrize("prompt", PROMPTS)
@torch.no_grad()
def test_greedy_text_is_that_of_llama_cpp(prompt, model, llama_cpp):
    """To the end, or to a token for which the two best logits are nearly equal; so are all probabilities before."""
    ids = model.tokenizer.encode(prompt)
    (ours,) = model.generate([ids], NEW, GREEDY)
    theirs, log_p = llama_cpp(ids)
    assert len(theirs) == NEW
    same = next((t for t in range(NEW) if ours[t : t + 1] != theirs[t : t + 1]), NEW)
    logits_TV = model(torch.tensor([[*ids, *theirs]]))[0, len(ids) - 1 :]
    found = logits_TV.log_softmax(-1)[torch.arange(same), theirs[:same]]
    if same:
        assert (found - log_p[:same]).abs().mean() < 0.1
    if same < NEW:
        best, other = logits_TV[same].max(), logits_TV[same, theirs[same]]
        assert best - other < NEARLY_EQUAL, (same, model.tokenizer.decode(theirs[: same + 1]))
