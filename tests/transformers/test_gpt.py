"""GPT: written token by token as if it were read at once, and as transformers writes."""

import logging
import math

import pytest
import torch
import transformers

from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.generation import generate
from engram.generation.sampling import GREEDY, SamplingParams, window_start
from engram.hub.huggingface import load_checkpoint
from engram.nn.transformer_block import PROJECTIONS
from engram.transformers.gpt.model import GPT, gpt2

V, CONTEXT = 11, 8
KINDS = {
    "rotary": {},
    "learned": {"position": "learned"},
    "sinusoidal": {"position": "sinusoidal"},
    "grouped": {"kv_heads": 2},
    "one group": {"kv_heads": 1, "position": "learned"},
    "classic": {
        "position": "learned",
        "norm": "layer",
        "bias": PROJECTIONS,
        "activation": "gelu_tanh",
        "qk_norm": "none",
    },
    "tied, post-norm": {"tie_embeddings": True, "residual": "post-norm"},
    "swiglu": {"activation": "swiglu"},
}
CHOICES = {
    "greedy": GREEDY,
    "all": SamplingParams(temperature=1.0),
    "top-k": SamplingParams(temperature=0.9, top_k=4),
    "top-p": SamplingParams(temperature=1.1, top_p=0.8),
    "min-p": SamplingParams(min_p=0.2),
    "repetition_penalty": SamplingParams(repetition_penalty=1.4),
    "greedy repetition": SamplingParams(temperature=0.0, repetition_penalty=1.4),
}


def gpt(seed=0, std=0.5, **settings):
    """A small model with opinions."""
    torch.manual_seed(seed)
    options = {"vocabulary": V, "context": CONTEXT, "width": 16, "layers": 2, "heads": 4, **settings}
    model = GPT(GPT.Config(**options))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return model.eval()


def tokens(*shape, seed=0):
    return torch.randint(V, shape, generator=torch.Generator().manual_seed(seed))


# ---------------------------------------------------------------------- reading


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_a_later_token_never_changes_earlier_logits(kind):
    model, x = gpt(**KINDS[kind]), tokens(1, CONTEXT)
    before = model(x)
    for place in range(1, CONTEXT):
        other = x.clone()
        other[0, place] = (x[0, place] + 1) % V
        after = model(other)
        torch.testing.assert_close(after[:, :place], before[:, :place], atol=1e-6, rtol=0)
        assert not torch.allclose(after[:, place], before[:, place], atol=1e-3)


@torch.no_grad()
def test_loss_is_the_cross_entropy_written_out():
    model, x, y = gpt(), tokens(3, CONTEXT), tokens(3, CONTEXT, seed=1)
    logits = model(x).double().tolist()
    total = 0.0
    for b in range(3):
        for t in range(CONTEXT):
            z = logits[b][t]
            total -= z[y[b, t]] - math.log(sum(math.exp(value) for value in z))
    assert model.loss(x, y).item() == pytest.approx(total / (3 * CONTEXT), rel=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_logits_of_the_last_tokens_alone(kind):
    model, x = gpt(**KINDS[kind]), tokens(2, CONTEXT)
    torch.testing.assert_close(model(x, last=3), model(x)[:, -3:], atol=1e-5, rtol=0)


def test_at_first_it_says_nothing():
    model = GPT(GPT.Config(vocabulary=V))
    assert torch.equal(model(tokens(1, 5)), torch.zeros(1, 5, V))


def test_the_classic_has_as_many_parameters_as_gpt2():
    with torch.device("meta"):
        model = GPT(gpt2())
    assert sum(p.numel() for p in model.parameters()) == 124_439_808


# ---------------------------------------------------------------------- writing


def anew(model, prompt, most):
    """Greedy text with every window read anew, row by row."""
    row = list(prompt)
    with torch.no_grad():
        for _ in range(most):
            window = row[window_start(len(row), model.config.context) :]
            row.append(int(model(torch.tensor([window]))[0, -1].argmax()))
    return row[len(prompt) :]


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_text_far_past_the_context(kind):
    model = gpt(**KINDS[kind])
    assert model.generate([[1, 2, 3]], 5 * CONTEXT, GREEDY)[0] == anew(model, [1, 2, 3], 5 * CONTEXT)


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("kind", KINDS)
def test_remembering_changes_nothing(kind, choice):
    model, prompts = gpt(**KINDS[kind]), [[1, 2, 3], [4, 5, 6, 7, 8], [9]]
    texts = [
        model.generate(prompts, 3 * CONTEXT, CHOICES[choice], generator=generator(0), cached=cached)
        for cached in (True, False)
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("length", [CONTEXT, CONTEXT + 1, 3 * CONTEXT + 2])
def test_prompts_longer_than_the_context(length):
    model, prompt = gpt(), tokens(length).tolist()
    assert model.generate([prompt], 10, GREEDY)[0] == anew(model, prompt, 10)


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_of_any_lengths_together_are_each_alone(kind):
    model, prompts = gpt(**KINDS[kind]), [tokens(n, seed=n).tolist() for n in (1, 3, 7, CONTEXT, 19)]
    together = model.generate(prompts, 2 * CONTEXT, GREEDY)
    assert together == [model.generate([prompt], 2 * CONTEXT, GREEDY)[0] for prompt in prompts]


def test_a_context_of_one_token():
    model = gpt(context=1)
    assert model.generate([[1, 2, 3]], 10, GREEDY)[0] == anew(model, [1, 2, 3], 10)


def test_a_seed_repeats_a_text():
    model, choice = gpt(std=0.2), SamplingParams(temperature=1.0)
    texts = [model.generate([[1]], 30, choice, generator=generator(seed))[0] for seed in (5, 5, 6)]
    assert texts[0] == texts[1] != texts[2]


def test_text_ends_at_its_end():
    model = gpt()
    whole = model.generate([[1, 2, 3]], 20, GREEDY)[0]
    end = whole[4]
    assert model.generate([[1, 2, 3]], 20, GREEDY, eos_id=end)[0] == whole[: whole.index(end)]


def test_each_text_ends_at_its_own_end():
    model, prompts = gpt(seed=1), [[1, 2, 3], [4], [5, 6]]
    whole, end = model.generate(prompts, 20, GREEDY), 7
    expected = [row[: row.index(end)] if end in row else row for row in whole]
    assert model.generate(prompts, 20, GREEDY, eos_id=end) == expected


def test_writing_stops_when_all_have_ended():
    model = gpt()
    whole = model.generate([[1, 2, 3]], 20, GREEDY)[0]
    told = list(generate.stream(model, [1, 2, 3], 20, GREEDY, eos_id=whole[4]))
    assert told == whole[: whole.index(whole[4])]


def test_a_reader_that_takes_back_tokens_reads_as_one_that_never_read_them():
    model, reader = gpt(), generate.TransformerDecoder(gpt())
    for row in ([1, 2, 3, 4], [1, 2, 3, 4, 5, 6], [1, 2, 9], [1, 2, 9, 9], [3, 2]):
        fresh = generate.TransformerDecoder(model)([row])
        torch.testing.assert_close(reader([row]), fresh, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("prompt", "said"), [([], "at least one token"), ([3, V], f"{V} is in"), ([-1], "-1 is in")])
def test_prompts_that_cannot_be_read_are_refused(prompt, said):
    with pytest.raises(EngramError, match=said):
        gpt().generate([[1], prompt], 3)


# ---------------------------------------------------------------------- transformers


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A tiny GPT-2 of transformers, and the same one here."""
    transformers.utils.logging.set_verbosity(logging.CRITICAL)
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    shape = {"vocab_size": 31, "n_positions": 48, "n_embd": 16, "n_layer": 2, "n_head": 4}
    theirs = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape, bos_token_id=0, eos_token_id=None))
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    folder = tmp_path_factory.mktemp("gpt2")
    theirs.eval().save_pretrained(folder)
    return theirs, load_checkpoint(folder).model


def there(theirs, prompts, most, **options):
    """What transformers writes after prompts that are padded on the left."""
    width = max(map(len, prompts))
    x = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    options = {"do_sample": False, "pad_token_id": 0, **options}
    return theirs.generate(x, attention_mask=mask, max_new_tokens=most, **options)[:, width:].tolist()


def test_greedy_text_equals_that_of_transformers(pair):
    theirs, ours = pair
    for first in range(5):
        prompt = [first, 7, 9]
        assert ours.generate([prompt], 40, GREEDY) == there(theirs, [prompt], 40)


def test_greedy_text_after_unequal_prompts_equals_that_of_transformers(pair):
    theirs, ours = pair
    prompts = [[5], [3, 4, 6, 8, 10, 12], [30, 2, 1]]
    assert ours.generate(prompts, 30, GREEDY) == there(theirs, prompts, 30)


def test_repetition_equals_that_of_transformers(pair):
    theirs, ours = pair
    choice = SamplingParams(temperature=0.0, repetition_penalty=1.5)
    assert ours.generate([[5, 6]], 40, choice) == there(theirs, [[5, 6]], 40, repetition_penalty=1.5)
