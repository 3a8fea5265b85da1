"""Data given from Python: arrays, frames, texts, iterators; kept, found again, and refused in a sentence."""

import datasets
import numpy as np
import pandas as pd
import pytest
import torch

from engram import data
from engram.core.errors import EngramError
from engram.data.python_data import is_text, store

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "cache"))


def test_the_same_data_are_stored_once(tmp_path):
    x = RNG.normal(size=(30, 3))
    assert store(x) == store(x.copy())
    assert store(x) != store(x + 1)
    assert len(list((tmp_path / "cache").glob("*.safetensors"))) == 2


@pytest.mark.parametrize("as_type", [np.asarray, torch.as_tensor, np.ndarray.tolist], ids=["numpy", "torch", "list"])
def test_inputs_and_labels(as_type):
    x, y = RNG.normal(size=(40, 3)), RNG.integers(0, 3, 40)
    loaded = data.load(store((as_type(x), as_type(y))))
    assert loaded.classes == ("0", "1", "2")
    assert loaded.info.columns == {"point": "float32 3", "label": "int64"}
    assert loaded.info.sizes == {"train": 32, "valid": 4, "test": 4}


def test_images_of_any_layout():
    pixels = RNG.integers(0, 256, (30, 6, 5, 3)).astype(np.uint8)
    last, first = data.load(store(pixels)), data.load(store(torch.from_numpy(pixels).permute(0, 3, 1, 2)))
    assert torch.equal(last.train["image"], first.train["image"])
    assert torch.equal(last.train["image"], data.load(store(pixels / 255)).train["image"])


def test_frames_with_words_dates_and_gaps():
    frame = pd.DataFrame(
        {"a": [1.0, None, 3.0] * 10, "c": list("xyz") * 10, "d": pd.date_range("2020-01-01", periods=30)}
    )
    loaded = data.load(store(frame), target="c")
    assert loaded.classes == ("x", "y", "z")
    assert loaded.encoder.names[:2] == ["a", "a is missing"]
    import pyarrow

    assert data.load(store(pyarrow.Table.from_pandas(frame)), target="c").encoder.names == loaded.encoder.names


def test_a_frame_with_its_target_apart():
    frame = pd.DataFrame({"a": RNG.normal(size=30), "b": RNG.normal(size=30)})
    loaded = data.load(store((frame, frame["a"] * 2)))
    torch.testing.assert_close(loaded.train["target"], 2 * loaded.train["point"][:, 0])


def test_texts_and_one_text():
    assert len(data.load(store([f"document {i}" for i in range(20)])).train) == 16
    whole = data.load(store("to be or not to be, that is the question " * 5))
    assert "".join([*whole.train["text"], *whole.valid["text"]]).startswith("to be")


def test_iterators_are_read_to_their_end():
    assert len(data.load(store(f"document {i}" for i in range(20))).train) == 16
    pairs = ((RNG.normal(size=3), float(i) / 3) for i in range(30))
    assert data.load(store(pairs)).info.columns == {"point": "float32 3", "target": "float32"}


def test_a_hugging_face_data_set():
    made = datasets.Dataset.from_dict({"a": list(range(30)), "word": list("ab") * 15})
    assert data.load(store(made), target="word").classes == ("a", "b")
    assert "text" in data.load(store(datasets.Dataset.from_dict({"text": [f"line {i}" for i in range(20)]}))).train


def test_a_text_is_told_from_a_name():
    assert is_text("one\ntwo")
    assert is_text("a sentence that is long enough to be a text")
    assert not is_text("mnist")
    assert not is_text("my folder/with spaces.csv")


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (object(), "of type object"),
        ([], "is empty"),
        (np.zeros((0, 3)), "is empty"),
        ((np.zeros((5, 3)), np.zeros(4)), "5 samples but 4 labels"),
        (iter([]), "gives nothing"),
        ({"weights": np.zeros(3)}, "has the arrays weights"),
        ("short", "fewer than 10 characters"),
        (np.full((20, 2), np.inf), "infinite number"),
    ],
    ids=["object", "empty list", "no rows", "labels", "iterator", "names", "text", "infinite"],
)
def test_what_cannot_be_learned_from_is_refused(value, sentence):
    with pytest.raises(EngramError, match=sentence) as caught:
        data.load(store(value))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_data_that_are_gone_are_named(tmp_path):
    name = store(RNG.normal(size=(30, 3)))
    for file in (tmp_path / "cache").iterdir():
        file.unlink()
    with pytest.raises(EngramError, match="no longer in"):
        data.load(name)


@pytest.mark.parametrize("seed", range(4))
def test_a_split_does_not_follow_the_random_numbers_of_the_rows(seed):
    """Both are streams of PCG64: with the same seed the largest numbers would all be test rows."""
    x = np.random.default_rng(seed).random((3000, 1))
    loaded = data.load(store(x))
    assert loaded.test["point"].mean().item() == pytest.approx(0.5, abs=0.08)
