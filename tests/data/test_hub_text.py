"""Streams of `datasets`, from a folder of files as it would be from the hub."""

import json
import sys

import pytest

from engram.core.errors import EngramError
from engram.data import corpus
from engram.data.tokenizer import Tokenizer

datasets = pytest.importorskip("datasets")
BYTES = Tokenizer.train("bytes", ["a"])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    place = tmp_path / "set"
    place.mkdir()
    lines = [json.dumps({"id": i, "story": f"Story {i} begins.\nIt ends."}) for i in range(200)]
    (place / "train.jsonl").write_text("\n".join(lines))
    return place


def test_texts_are_streamed_and_some_are_held_back(folder):
    found = corpus.tokenize_corpus(corpus.read_text(f"hf:{folder}", "windows"), BYTES)
    train, valid = (BYTES.decode(found[part].ids.tolist()) for part in ("train", "valid"))
    assert train.count("begins") == 196
    assert [f"Story {i} " in valid for i in (0, 50, 100, 150)] == [True] * 4
    assert "Story 50 " not in train


def test_by_lines(folder):
    assert list(corpus.read_text(f"hf:{folder}", "lines").splits["valid"]())[:2] == ["Story 0 begins.", "It ends."]


def test_once_tokenized_nothing_is_asked_for_any_more(folder, monkeypatch):
    corpus.tokenize_corpus(corpus.read_text(f"hf:{folder}", "windows"), BYTES)
    monkeypatch.setattr(datasets, "load_dataset", None)
    assert len(corpus.tokenize_corpus(corpus.read_text(f"hf:{folder}", "windows"), BYTES)["train"].ids) > 1000


def test_its_own_splits_are_taken(folder):
    (folder / "validation.jsonl").write_text(json.dumps({"id": 0, "story": "Held back. " * 20}))
    found = corpus.tokenize_corpus(corpus.read_text(f"hf:{folder}", "windows"), BYTES)
    assert BYTES.decode(found["valid"].ids.tolist()).startswith("Held back.")


def test_what_cannot_be_had_is_said_in_a_sentence(folder, tmp_path, monkeypatch):

    def unreachable(*words, **options):
        raise ConnectionError("there is no network\nand more of it")

    with monkeypatch.context() as patch:
        patch.setattr(datasets, "load_dataset", unreachable)
        with pytest.raises(EngramError, match="cannot be loaded: there is no network"):
            list(corpus.read_text("hf:nobody/nothing", "windows").splits)
    (folder / "train.jsonl").write_text(json.dumps({"id": 1}))
    with pytest.raises(EngramError, match="no text to train on; its columns are id"):
        list(corpus.read_text(f"hf:{folder}", "windows").splits["train"]())
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(EngramError, match=r"pip install engram\[datasets\]"):
        list(corpus.read_text(f"hf:{folder}", "windows").splits)


def test_a_run_on_a_stream(folder, engram, tmp_path):
    words = ("run", "gpt", "--preset", "tiny", "--data", f"hf:{folder}", "--windows", "epoch")
    answer = engram(*words, "--out", tmp_path / "run")
    assert answer.code == 0, answer.err
