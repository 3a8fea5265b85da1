"""What a person does with the Transformers' recipes: own data, beginning from a checkpoint, LoRA, export, speech."""

import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

import engram as library
from engram.core.tap import watch
from engram.nn.lora import LoRA
from engram.training.run import Run

LANGUAGE = ["gpt", "bert"]
SPEAKING = ["gpt", "bert", "translate", "vit", "clip"]


def logits(path, name, finished):
    """What a model says of the first item of the recipe's own data."""
    run, model = Run.open(finished(name)), library.load(path)
    with torch.no_grad(), watch(model, "logits") as seen:
        run.recipe.trace(model, run.data, 0)
    return seen["logits"]


@pytest.mark.parametrize("name", SPEAKING)
def test_an_exported_run_reads_back_with_equal_logits(name, finished, engram, tmp_path):
    answer = engram("export", finished(name), "--to", "hf", "--out", tmp_path / "hf")
    assert answer.code == 0, answer.err
    torch.testing.assert_close(
        logits(tmp_path / "hf", name, finished), logits(finished(name), name, finished), atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("name", SPEAKING)
def test_begins_from_a_checkpoint(name, finished, engram, tmp_path):
    """With a learning rate of zero it ends where it began: at the checkpoint, from a run and from its export alike."""
    engram("export", finished(name), "--to", "hf", "--out", tmp_path / "hf")
    for i, source in enumerate((finished(name), tmp_path / "hf")):
        out = tmp_path / f"run{i}"
        words = ("--preset", "tiny", "--from", source, "--optimizer", "sgd", "--lr", 0, "--steps", 2, "--out", out)
        answer = engram("run", name, *words)
        assert answer.code == 0, answer.err
        expected = logits(finished(name), name, finished)
        torch.testing.assert_close(logits(out, name, finished), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", LANGUAGE)
def test_lora_learns_beside_a_checkpoint_and_resumes_without_it(name, finished, engram, tmp_path):
    shutil.copytree(finished(name), tmp_path / "base")
    words = ("run", name, "--preset", "tiny", "--from", tmp_path / "base", "--lora", 2, "--out", tmp_path / "run")
    assert engram(*words, "--steps", 10).code == 0
    shutil.rmtree(tmp_path / "base")
    assert engram("run", "--resume", tmp_path / "run", "--steps", 20).code == 0
    adapted, base = Run.open(tmp_path / "run").learner.model, library.load(finished(name))
    assert any(isinstance(module, LoRA) for module in adapted.modules())
    kept = {key: value for key, value in adapted.state_dict().items() if "lora" not in key}
    assert all(torch.equal(value, base.state_dict()[key]) for key, value in kept.items())
    merged = library.load(tmp_path / "run")
    assert not any(isinstance(module, LoRA) for module in merged.modules())
    assert not torch.equal(merged.blocks[0].attention.q.weight, base.blocks[0].attention.q.weight)


def test_lora_without_a_checkpoint_is_refused(refused, tmp_path):
    assert "--from" in refused("run", "gpt", "--preset", "tiny", "--lora", 2, "--out", tmp_path / "run")


def test_a_checkpoint_of_another_kind_is_refused(finished, refused, tmp_path):
    words = ("--preset", "tiny", "--from", finished("gpt"), "--out", tmp_path / "run")
    assert "holds a GPT, and a BERT is needed" in refused("run", "bert", *words)
    assert "not the name of a checkpoint" in refused("run", "gpt", "--preset", "tiny", "--from", tmp_path / "no")


# ---------------------------------------------------------------------- one's own data


def test_gpt_on_own_text_in_larger_tokens(engram, tmp_path, monkeypatch):
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "cache"))
    (tmp_path / "own.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 200)
    answer = engram("run", "gpt", "--preset", "tiny", "--data", tmp_path / "own.txt", "--tokenizer", "bpe",
                    "--vocab-size", 300, "--out", tmp_path / "run")  # fmt: skip
    assert answer.code == 0, answer.err
    assert library.load(tmp_path / "run").tokenizer.decode([*library.load(tmp_path / "run").tokenizer.encode("fox")])


def test_translate_on_own_pairs(engram, tmp_path):
    (tmp_path / "own.tsv").write_text("".join(f"{i}\t{i + 1}\n" for i in range(100)))
    answer = engram("run", "translate", "--preset", "tiny", "--data", tmp_path / "own.tsv", "--out", tmp_path / "run")
    assert answer.code == 0, answer.err


def test_a_line_without_a_tab_is_named(refused, tmp_path):
    (tmp_path / "own.tsv").write_text("1\t2\n3 4\n")
    assert "Line 2" in refused("run", "translate", "--data", tmp_path / "own.tsv", "--out", tmp_path / "run")


def captioned(folder, count=30):
    folder.mkdir()
    for i in range(count):
        color = ((255, 0, 0), (0, 0, 255))[i % 2]
        Image.new("RGB", (16, 16), color).save(folder / f"{i}.png")
    lines = [f"{i}.png\ta {('red', 'blue')[i % 2]} square\n" for i in range(count)]
    (folder / "captions.tsv").write_text("".join(lines))
    return folder


def test_clip_on_own_captioned_pictures(engram, tmp_path):
    folder = captioned(tmp_path / "own")
    answer = engram("run", "clip", "--preset", "tiny", "--data", folder, "--batch", 4, "--out", tmp_path / "run")
    assert answer.code == 0, answer.err
    said = engram("sample", tmp_path / "run", "--image", folder / "0.png", "--labels", "a red square", "a blue square")
    assert said.code == 0, said.err
    assert "a red square" in said.out


def test_a_caption_without_its_picture_is_named(refused, tmp_path):
    folder = captioned(tmp_path / "own")
    (folder / "captions.tsv").write_text("../secret.png\ta secret\n")
    assert "names ../secret.png" in refused("run", "clip", "--data", folder, "--out", tmp_path / "run")


def test_vit_begins_from_a_checkpoint_of_another_size_and_other_classes(finished, engram, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "own.npz", x=rng.integers(0, 255, (30, 12, 12), dtype=np.uint8), y=np.arange(30) % 3)
    words = ("--preset", "tiny", "--from", finished("vit"), "--data", tmp_path / "own.npz", "--out", tmp_path / "run")
    answer = engram("run", "vit", *words)
    assert answer.code == 0, answer.err
    assert library.load(tmp_path / "run").config.classes == 3
    assert engram("run", "--resume", tmp_path / "run", "--steps", 25).code == 0


# ---------------------------------------------------------------------- speech


def test_a_gpt_speaks_as_it_is_asked(finished, engram):
    run = finished("gpt")

    def write(*words):
        answer = engram(
            "sample", run, "--prompt", "ROMEO:", "--max-new-tokens", 30, "--temperature", 0, "--json", *words
        )
        (found,) = json.loads(answer.out)["samples"]
        assert found["prompt"] == "ROMEO:"
        return found["text"]

    greedy = write()
    one = engram("sample", run, "--prompt", "ROMEO:", "--max-new-tokens", 30, "--temperature", 0)
    assert one.out.startswith("ROMEO:" + greedy)
    assert write("--draft", run) == greedy
    assert greedy.startswith(write("--max-new-tokens", 9, "--num-beams", 1))
    stop = greedy[4:6]
    assert write("--stop", stop) == greedy.partition(stop)[0]
    assert engram("sample", run, "--count", 3, "--max-new-tokens", 5).out.count("———") == 2
    assert engram("sample", run, "--bits", 8, "--cache-bits", 8, "--max-new-tokens", 5).code == 0
    assert write("--prompt-lookup") == greedy


def test_what_cannot_be_said_is_refused(finished, refused):
    assert "not in the vocabulary: 'é'" in refused("sample", finished("gpt"), "--prompt", "é")
    assert "top_p" in refused("sample", finished("gpt"), "--top-p", 2)
    assert "leave out --num-beams" in refused("sample", finished("gpt"), "--num-beams", 2, "--prompt-lookup")
    assert "one draft" in refused("sample", finished("gpt"), "--draft", finished("gpt"), "--prompt-lookup")
    assert "has no [MASK]" in refused("sample", finished("bert"), "--text", "my lord")
    assert "begins with a run folder" in refused("sample", "--count", 3)
    assert "There is no image" in refused("sample", finished("vit"), "--image", "nowhere.png")


def test_checkpoints_stand_where_runs_stand(finished, engram, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (20, 10), (255, 0, 0)).save("red.png")
    asked = {
        "gpt": ("--prompt", "ROMEO:", "--max-new-tokens", 5),
        "bert": ("--text", "my [MASK] lord"),
        "translate": ("--text", "3 May 1999"),
        "vit": ("--image", "red.png"),
        "clip": ("--image", "red.png", "--labels", "a red circle", "a blue circle"),
    }
    looked = {"vit": ("--image", "red.png"), "clip": ("--image", "red.png", "--text", "a red circle")}
    for name, words in asked.items():
        engram("export", finished(name), "--out", tmp_path / name)
        assert engram("sample", tmp_path / name, *words).code == 0
        answer = engram("inspect", tmp_path / name, *looked.get(name, ("--text", "May")))
        assert answer.code == 0, answer.err
    assert "give it a --text" in refused("inspect", tmp_path / "gpt")
