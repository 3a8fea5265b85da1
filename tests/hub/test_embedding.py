"""Text embeddings and semantic search: pooled by hand, and as transformers pools them."""

import io
import json

import numpy as np
import pytest
import torch
import transformers

import engram as library
from engram.core.errors import EngramError
from engram.core.tap import watch
from engram.hub import search
from engram.hub.models import fetch_model
from engram.hub.search import Passage, read_passages
from engram.transformers.gpt.model import GPT

TEXTS = ["to be or not to be", "my lord", "O", "the king is dead, long live the king"]
SHAPES = [
    {"position": "learned", "norm": "layer"},
    {"attention_window": (3, 0), "norm": "rms", "residual": "parallel"},
    {"rope": library.transformers.GPT.Config().rope, "kv_heads": 1, "residual": "sandwich-norm"},
]


@pytest.mark.parametrize("shape", SHAPES)
def test_vectors_of_a_batch_are_those_of_each_text_alone(shape):
    torch.manual_seed(0)
    model = GPT(GPT.Config(vocabulary=11, width=16, heads=2, layers=2, context=12, **shape)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
        x_BT, lengths = torch.randint(11, (4, 9)), [9, 1, 4, 7]
        valid_BT = torch.arange(9) < torch.tensor(lengths)[:, None]
        h_BTE = model.encode(x_BT, valid_BT)
        with watch(model, "*.residual") as seen:
            torch.testing.assert_close(model.encode(x_BT, valid_BT), h_BTE, atol=1e-5, rtol=1e-5)
        assert len(seen) == 2
        for row, length, h_TE in zip(x_BT, lengths, h_BTE, strict=True):
            torch.testing.assert_close(h_TE[:length], model.encode(row[None, :length])[0], atol=1e-5, rtol=1e-5)
            assert not h_TE[length:].any()
            torch.testing.assert_close(model.head(h_TE[:length]), model(row[None, :length])[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["bert", "gpt"])
@pytest.mark.parametrize("pooling", ["auto", "mean", "cls", "last"])
def test_pooling(name, pooling, finished):
    model = library.load(finished(name))
    found = model.embed(TEXTS, pooling=pooling, normalize=False, batch=3)
    assert found.dtype == np.float32
    kind = {"bert": "mean", "gpt": "last"}[name] if pooling == "auto" else pooling
    with torch.no_grad():
        for text, vector in zip(TEXTS, found, strict=True):
            h_TE = model.encode(torch.tensor([model.tokenizer.encode(text)[: model.config.context]]))[0]
            expected = {"mean": h_TE.mean(0), "cls": h_TE[0], "last": h_TE[-1]}[kind]
            np.testing.assert_allclose(vector, expected.numpy(), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(model.embed(TEXTS, pooling=pooling), axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(model.embed("my lord").shape, (1, model.config.width))


def test_a_text_without_tokens_has_no_vector(finished):
    with pytest.raises(EngramError, match="Text 2 of 2 has no tokens"):
        library.load(finished("gpt")).embed(["a", ""])


@pytest.mark.download
def test_vectors_of_minilm_are_those_of_transformers():
    theirs = transformers.AutoModel.from_pretrained(fetch_model("minilm")).eval()
    ours, expected = library.load("minilm"), []
    for text in TEXTS:
        with torch.no_grad():
            h_TE = theirs(torch.tensor([ours.tokenizer.encode(text)])).last_hidden_state[0]
        expected.append(torch.nn.functional.normalize(h_TE.mean(0), dim=0).numpy())
    np.testing.assert_allclose(ours.embed(TEXTS), np.stack(expected), atol=1e-5)


# ---------------------------------------------------------------------- command line


def test_embed_writes_vectors_and_texts(finished, engram, refused, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("to be\n\nmy lord\n")
    out = tmp_path / "v.npz"
    assert engram("embed", finished("bert"), tmp_path / "a.txt", "--out", out).code == 0
    with np.load(out) as found:
        assert found["texts"].tolist() == ["to be", "my lord"]
        np.testing.assert_allclose(
            found["vectors"], library.load(finished("bert")).embed(["to be", "my lord"]), atol=1e-6
        )
    assert "is there already" in refused("embed", finished("bert"), tmp_path / "a.txt", "--out", out)
    monkeypatch.setattr("sys.stdin", io.StringIO("to be\n"))
    answer = engram("embed", finished("bert"), "-", "--out", tmp_path / "v.npy", "--raw", "--pooling", "cls")
    assert answer.code == 0, answer.err
    assert np.load(tmp_path / "v.npy").shape == (1, library.load(finished("bert")).config.width)


def test_embed_refuses_in_a_sentence(finished, refused, tmp_path):
    (tmp_path / "a.txt").write_text("to be\n")
    (tmp_path / "empty.txt").write_text("\n\n")
    gpt, text = finished("gpt"), tmp_path / "a.txt"
    assert "needs files" in refused("embed", gpt)
    assert "must end in .npz or .npy" in refused("embed", gpt, text, "--out", tmp_path / "v.csv")
    assert "There is no file" in refused("embed", gpt, tmp_path / "nothing.txt", "--out", tmp_path / "v.npz")
    assert "hold no text" in refused("embed", gpt, tmp_path / "empty.txt", "--out", tmp_path / "v.npz")
    assert "gives no vectors of texts" in refused("embed", finished("mlp"), text, "--out", tmp_path / "v.npz")
    assert "--batch must be at least 1" in refused("embed", gpt, text, "--batch", 0, "--out", tmp_path / "v.npz")


def test_passages_are_paragraphs_of_some_words(tmp_path):
    (tmp_path / "a.md").write_text("# Title\n\nthe first of\ntwo lines\n\n\nand a second paragraph\n" + "word " * 200)
    (tmp_path / "b.py").write_text("one two three four five")
    passages = read_passages([str(tmp_path)])
    assert [(one.line, len(one.text.split())) for one in passages] == [(3, 5), (7, 150), (7, 54)]
    assert passages[0].text == "the first of two lines"
    (tmp_path / "c.txt").write_text("too few")
    with pytest.raises(EngramError, match="hold no passage"):
        read_passages([str(tmp_path / "c.txt")])


def test_search_finds_what_is_nearest_and_keeps_the_vectors(finished, engram, refused, tmp_path, monkeypatch):
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "cache"))
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("the king is dead today\n\nmy lord is not here\n\nto be or not to be\n")
    command = ("search", "my lord is not here", tmp_path / "texts", "--model", finished("bert"), "--json")
    rows = [json.loads(line) for line in engram(*command).out.splitlines()]
    assert rows[0]["text"] == "my lord is not here"
    assert rows[0]["line"] == 3
    assert rows[0]["cosine"] == pytest.approx(1, abs=1e-5)
    assert [row["cosine"] for row in rows] == sorted((row["cosine"] for row in rows), reverse=True)
    embedded = []
    monkeypatch.setattr(search, "BATCH", 1)
    model = library.load(finished("bert"))
    passages = read_passages([str(tmp_path / "texts")])
    search.search(model, "x y", passages, 1, embedded.append)
    assert embedded == []  # they were in the cache
    search.search(model, "x y", [*passages, Passage("", 1, "a new one of five")], 1, embedded.append)
    assert embedded == [1, 2, 3, 4]
    (file,) = (path for path in (tmp_path / "cache").glob("passages-*.npy") if np.load(path).shape[0] == 3)
    file.write_bytes(b"damaged")
    assert json.loads(engram(*command, "--top", 1).out)["text"] == "my lord is not here"
    assert "There is no file or folder" in refused("search", "x", tmp_path / "nowhere", "--model", finished("bert"))
    assert "needs files or folders" in refused("search", "x")
    assert "--top must be at least 1" in refused("search", "x", tmp_path / "texts", "--top", 0)
    assert "The query is empty" in refused("search", " ", tmp_path / "texts")
