"""Instruction tuning: only answers count in the loss, and a run with a quantized base resumes to the same bits."""

import io
import json
import shutil
import signal

import pytest
import torch
from torch.nn import functional as F

import engram as library
from engram.core.errors import EngramError
from engram.data.tokenizer import Tokenizer
from engram.generation.quantization import QuantizedLinear
from engram.hub.chat import Chat, render_chat
from engram.hub.huggingface import save_checkpoint
from engram.training.run import Run
from engram.training.train import train
from engram.transformers.bert.model import IGNORE_INDEX
from engram.transformers.gpt.model import GPT
from engram.transformers.gpt.recipe import GPTRecipe
from engram.transformers.instruction_tuning import (
    PLAIN_TEMPLATE,
    answer_loss,
    evaluate_answers,
    load_pairs,
    make_batch,
    tokenize,
    train_tokenizer,
    with_template,
)
from tests.conftest import Halfway, StopAt, content, resume

PAIRS = [(f"what comes after {i}?", f"{i + 1} follows") for i in range(60)]
TINY = ("--preset", "tiny", "--context", 48)
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "cache"))


@pytest.fixture
def file(tmp_path):
    (tmp_path / "pairs.tsv").write_text("".join(f"{prompt}\t{answer}\n" for prompt, answer in PAIRS))
    return tmp_path / "pairs.tsv"


def tokenized(file, context=48, template=""):
    pairs = load_pairs(str(file))
    tokenizer = train_tokenizer("characters", pairs, 0)
    if template:
        specials = ("<|im_start|>", "<|im_end|>")
        texts = [*(text for pair in PAIRS for text in pair), "\n", "userassistant"]
        backend = Tokenizer.train("characters", texts, special_tokens=specials).backend
        tokenizer = Tokenizer(backend, eos_token="<|im_end|>", chat_template=template)
    return tokenize(pairs, with_template(tokenizer, "x"), context)


# ---------------------------------------------------------------------- tokens and loss


@pytest.mark.parametrize("template", ["", CHATML])
def test_a_pair_is_its_rendered_prompt_its_answer_and_the_end(file, template):
    data = tokenized(file, 80, template)
    for split in data.pairs.values():
        for i, ids in enumerate(split["ids"]):
            messages = [{"role": "user", "content": split["source"][i]}]
            prompt = render_chat(template or PLAIN_TEMPLATE, messages)
            start = int(split["start"][i])
            assert data.tokenizer.decode(ids[:start], skip_special_tokens=False) == prompt
            assert data.tokenizer.decode(ids[start:-1], skip_special_tokens=False) == split["target"][i]
            assert ids[-1] == data.tokenizer.eos_id


def test_labels_are_those_that_one_would_write_by_hand():
    rows = {"ids": [[5, 6, 7, 8, 1], [5, 9, 1]], "start": torch.tensor([3, 1])}
    batch = make_batch(rows)
    assert batch["x"].tolist() == [[5, 6, 7, 8], [5, 9, 0, 0]]
    i = IGNORE_INDEX
    assert batch["y"].tolist() == [[i, i, 8, 1], [9, 1, i, i]]


def small_gpt(data, **settings):
    torch.manual_seed(0)
    model = GPT(GPT.Config(vocabulary=data.tokenizer.vocab_size, context=48, width=16, layers=2, heads=2, **settings))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()


def test_the_loss_is_the_cross_entropy_of_the_answers(file):
    data = tokenized(file)
    model, batch = small_gpt(data), make_batch(data.pairs["train"].select(torch.arange(7)).columns)
    loss = answer_loss(model, batch["x"], batch["y"])
    expected = F.cross_entropy(model(batch["x"]).flatten(0, 1), batch["y"].flatten(), ignore_index=-100)
    torch.testing.assert_close(loss, expected)
    found, wanted = (torch.autograd.grad(one, list(model.blocks.parameters())) for one in (loss, expected))
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-4)


@torch.no_grad()
def test_the_loss_is_that_of_transformers(file, tmp_path):
    import transformers

    data = tokenized(file)
    settings = {"position": "learned", "norm": "layer", "activation": "gelu_tanh", "bias": ("qkv", "out", "ff")}
    model = small_gpt(data, **settings, qk_norm="none", tie_embeddings=True)
    save_checkpoint(model, tmp_path / "hf", data.tokenizer)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "hf").eval()
    for i in range(3):
        row = data.pairs["train"].select(torch.tensor([i])).columns
        ids = torch.tensor(row["ids"])
        labels = torch.where(torch.arange(ids.shape[1]) < row["start"][:, None], -100, ids)
        batch = make_batch(row)
        torch.testing.assert_close(answer_loss(model, batch["x"], batch["y"]), theirs(ids, labels=labels).loss)
    template = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf").apply_chat_template(
        [{"role": "user", "content": PAIRS[0][0]}], tokenize=False, add_generation_prompt=True
    )
    assert template == PAIRS[0][0] + "\n"


@torch.no_grad()
def test_an_evaluation_is_the_mean_over_all_tokens_of_answers(file):
    data = tokenized(file)
    model, total, count = small_gpt(data), 0.0, 0
    for i in range(len(data.pairs["test"])):
        batch = make_batch(data.pairs["test"].select(torch.tensor([i])).columns)
        predicted = int((batch["y"] != IGNORE_INDEX).sum())
        total, count = total + predicted * float(answer_loss(model, batch["x"], batch["y"])), count + predicted
    found = evaluate_answers(model, data, "test")
    assert found["loss"] == pytest.approx(total / count, rel=1e-5)
    assert found["perplexity"] == pytest.approx(2.718281828 ** (total / count), rel=1e-4)


def test_long_pairs_are_cut_and_said(file, capsys):
    data = tokenized(file, 24)
    assert "pairs are longer than the context of 24 tokens and are cut" in capsys.readouterr().err
    assert max(len(ids) for split in data.pairs.values() for ids in split["ids"]) == 25
    with pytest.raises(EngramError, match="leave no room for an answer in a context of 9 tokens: raise --context"):
        tokenized(file, 9)


# ---------------------------------------------------------------------- runs


def test_answers_are_learned_and_given(file, engram, monkeypatch):
    out = file.parent / "run"
    answer = engram("run", "gpt", *TINY, "--data", file, "--out", out)
    assert answer.code == 0, answer.err
    assert "→" in answer.out
    found = json.loads(engram("sample", out, "--prompt", "what comes after 7?", "--json").out)["samples"]
    assert found[0]["prompt"] == "what comes after 7?"
    several = json.loads(engram("sample", out, "--count", 3, "--json").out)["samples"]
    assert {row["prompt"] for row in several} <= {prompt for prompt, _ in PAIRS}
    assert "token by token" in engram("sample", out, "--num-beams", 2).err
    model = library.load(out)
    said = "".join(Chat(model, max_new_tokens=5, generator=torch.Generator().manual_seed(0)).reply("what?"))
    assert isinstance(said, str)
    monkeypatch.setattr("sys.stdin", io.StringIO("what comes after 7?\n"))
    assert engram("chat", out, "--max-new-tokens", 5).code == 0
    evaluated = json.loads(engram("evaluate", out, "--data", file, "--json").out)
    assert {row["metric"] for row in evaluated["metrics"]} == {"loss", "perplexity"}


def test_lines_of_json(file, refused, engram):
    lines = [json.dumps({"prompt": prompt, "response": answer}) for prompt, answer in PAIRS]
    system = {"role": "system", "content": "count"}
    for prompt, answer in PAIRS[:20]:
        talk = [system, {"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]
        lines.append(json.dumps({"messages": talk}))
    path = file.with_suffix(".jsonl")
    path.write_text("\n".join(lines))
    data = tokenized(path, 80)
    prompts = [prompt for split in data.pairs.values() for prompt in split["prompt"]]
    assert sorted(prompts) == sorted(
        [*(f"{prompt}\n" for prompt, _ in PAIRS), *(f"count\n{prompt}\n" for prompt, _ in PAIRS[:20])]
    )
    for bad in ("{", "[]", '{"prompt": "a"}', '{"messages": [{"role": "user", "content": "a"}]}'):
        path.write_text("\n".join([*lines, bad]))
        assert "Line 81 of" in refused("run", "gpt", *TINY, "--data", path, "--out", file.parent / "run")


@pytest.fixture
def base(file, engram):
    out = file.parent / "base"
    assert engram("run", "gpt", *TINY, "--data", file, "--out", out).code == 0
    return out


@pytest.mark.parametrize("bits", [32, 8, 4])
def test_lora_on_few_bits_resumes_to_the_same_bits_without_the_checkpoint(bits, file, base, forked):
    """Halfway, and killed after a checkpoint."""
    settings = {"from_": str(base), "lora": 2, "bits": bits, "data": str(file)}
    recipe = GPTRecipe.from_preset("tiny", **settings)
    folder = file.parent
    run = Run.start(recipe, folder / "whole")
    train(run)
    run.folder.release()
    run = Run.start(recipe, folder / "halfway")
    with pytest.raises(Halfway):
        train(run, [StopAt(recipe.eval_every)])
    run.folder.release()
    died = forked(KILLED, folder / "killed", json.dumps(settings))
    assert died.returncode == -signal.SIGKILL, died.stderr
    shutil.rmtree(base)
    for name in ("halfway", "killed"):
        resume(folder / name)
        assert content(folder / name) == content(folder / "whole")
    adapted = Run.open(folder / "whole").learner.model
    assert any(isinstance(one, QuantizedLinear) for one in adapted.modules()) == (bits != 32)
    names = {name.rpartition(".")[2] for name, p in adapted.named_parameters() if p.requires_grad}
    assert names == {"lora_A", "lora_B"}
    merged = library.load(folder / "whole")
    assert not any(isinstance(one, QuantizedLinear) for one in merged.modules())


KILLED = """
import json, os, signal, sys, torch
torch.set_num_threads(1)
from pathlib import Path
from engram.training.run import Run
from engram.training.train import Callback, train
from engram.transformers.gpt.recipe import GPTRecipe
class Dying(Callback):
    def on_step(self, run):
        if run.step == 13:
            os.kill(os.getpid(), signal.SIGKILL)
train(Run.start(GPTRecipe.from_preset("tiny", **json.loads(sys.argv[2])), Path(sys.argv[1])), [Dying()])
"""


@pytest.mark.parametrize("bits", [8, 4])
def test_a_run_of_few_bits_is_sampled_and_exported_with_merged_weights(bits, file, base, engram, tmp_path):
    out = tmp_path / "run"
    words = ("run", "gpt", "--preset", "tiny", "--from", base, "--lora", 2, "--bits", bits, "--data", file)
    assert engram(*words, "--out", out).code == 0
    for flags in ((), ("--bits", "8")):
        assert engram("sample", out, "--prompt", "what?", *flags).code == 0
    answer = engram("export", out, "--out", tmp_path / "hf")
    assert answer.code == 0, answer.err
    ours, theirs = library.load(out), library.load(tmp_path / "hf")
    x = torch.tensor([ours.tokenizer.encode("what comes after 3?")])
    with torch.no_grad():
        torch.testing.assert_close(theirs(x), ours(x), atol=1e-4, rtol=1e-4)
        with torch.enable_grad():  # dequantized products, as in training
            training = Run.open(out).learner.model.eval()(x)
        torch.testing.assert_close(training.detach(), ours(x), atol=1e-4, rtol=1e-3)
    assert theirs.tokenizer.chat_template == PLAIN_TEMPLATE


def test_few_bits_are_for_lora(file, base, refused, tmp_path):
    words = ("run", "gpt", "--preset", "tiny", "--from", base, "--data", file, "--bits", 4, "--out", tmp_path / "run")
    assert "add --lora" in refused(*words)
    assert "float32" in refused(*words, "--lora", 2, "--precision", "bfloat16")
    assert "no token that ends a text" in refused(*words[:6], "--data", file, "--from", plain_run(tmp_path))


def plain_run(tmp_path):
    """A run on plain text, whose tokenizer has no token that ends a text."""
    (tmp_path / "text.txt").write_text("to be or not to be\n" * 50)
    recipe = GPTRecipe.from_preset("tiny", data=str(tmp_path / "text.txt"), steps=1)
    run = Run.start(recipe, tmp_path / "plain")
    train(run)
    run.folder.release()
    return tmp_path / "plain"
