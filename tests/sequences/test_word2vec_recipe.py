"""What a person does with word vectors: own text, phrases, questions, export."""

import pytest
import torch
from gensim.models import KeyedVectors

from engram import WordVectors, load
from engram.training.run import Run

TEXT = "the king and the queen of new york ruled\nthe man and the woman of new york laughed\n" * 60


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "cache"))
    (tmp_path / "own.txt").write_text(TEXT)
    return tmp_path / "own.txt"


@pytest.mark.parametrize(
    "flags",
    [
        ("--phrases", 2, "--threshold", 1),
        ("--architecture", "cbow"),
        ("--shared-negatives", "sentence"),
        ("--objective", "softmax", "--batch", 50),
        ("--no-lines",),
        ("--workers", 2),
    ],
)
def test_own_text_in_every_way(flags, own, engram, tmp_path):
    answer = engram("run", "word2vec", "--preset", "tiny", "--data", own, *flags, "--out", tmp_path / "run")
    assert answer.code == 0, answer.err
    words = WordVectors.load(tmp_path / "run")
    assert any("new_york" in word for word in words.words) == ("--phrases" in flags)
    assert engram("run", "--resume", tmp_path / "run", "--steps", 30).code == 0
    assert Run.open(tmp_path / "run").step == 30


def test_questions_and_their_answers(finished, engram, refused):
    folder = finished("word2vec")
    said = engram("sample", folder, "--words", "king", "love", "--analogy", "man", "king", "woman", "--topn", 3).out
    assert "king\n" in said
    assert "man : king = woman :" in said
    assert "does not match" in engram("sample", folder, "--odd-one-out", "king", "queen", "day").out
    assert 'Did you mean "king"' in refused("sample", folder, "--words", "kking")
    assert "three words" in refused("sample", folder, "--analogy", "man", "king")
    assert engram("inspect", folder, "--words", "man", "king", "woman", "queen").code == 0


def test_export_is_what_gensim_opens_and_what_the_run_holds(finished, engram, refused, tmp_path):
    folder = finished("word2vec")
    assert engram("export", folder, "--to", "word2vec", "--out", tmp_path / "v.bin").code == 0
    theirs, ours = KeyedVectors.load_word2vec_format(str(tmp_path / "v.bin"), binary=True), WordVectors.load(folder)
    assert theirs.index_to_key == ours.words
    assert torch.equal(torch.from_numpy(theirs.vectors), ours.vectors)
    model = load(folder)
    assert torch.equal(ours["king"], model.v[model.tokenizer.token_to_id("king")])
    assert "is for word vectors" in refused("export", finished("mlp"), "--to", "word2vec", "--out", tmp_path / "no")


def test_benchmarks_are_drawn_where_the_words_are_known(engram, tmp_path):
    answer = engram("run", "word2vec", "--preset", "tiny", "--benchmarks", "--min-count", 3, "--out", tmp_path / "run")
    assert answer.code == 0, answer.err
    assert "analogies accuracy" in answer.out
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Analogy accuracy" in page
    assert "Analogies" in page
