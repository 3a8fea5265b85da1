"""Packed columns behave like the lists and tensors that they stand for."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engram.data import Bitmaps, Strings
from engram.data.dataset import Split

texts = st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=8)


@given(texts)
def test_strings_hold_any_text(words):
    assert list(Strings.from_texts(words)) == words


@given(texts.filter(len), st.data())
def test_strings_pack_again_after_any_selection(words, data):
    rows = data.draw(st.lists(st.integers(0, len(words) - 1), max_size=8))
    chosen = Strings.from_texts(words)[torch.tensor(rows, dtype=torch.int64)]
    assert list(Strings.from_offsets(*chosen.pack())) == [words[i] for i in rows]


def test_strings_index_like_a_list():
    words = Strings.from_texts(["eins", "zwei", "drei"])
    assert words[-1] == "drei"
    assert words[1:] == ["zwei", "drei"]
    assert words == Strings.from_texts(["eins", "zwei", "drei"])
    assert words != ["eins", "zwei"]


def test_a_selection_of_strings_copies_no_text():
    words = Strings.from_texts(["eins", "zwei", "drei"])
    assert words[torch.tensor([2, 0])].content.data_ptr() == words.content.data_ptr()


def test_bitmaps_unpack_to_the_pictures_they_were_made_of():
    picture = torch.rand(5, 1, 4, 8) > 0.5
    bitmaps = Bitmaps(torch.from_numpy(np.packbits(picture.reshape(5, -1).numpy(), axis=1)), 4, 8)
    expected = picture.to(torch.uint8) * 255
    assert torch.equal(bitmaps[:], expected)
    assert torch.equal(bitmaps[torch.tensor([3, 1])], expected[[3, 1]])
    assert torch.equal(bitmaps.view(torch.tensor([4, 2]))[0], expected[4])
    assert bitmaps.shape == (5, 1, 4, 8)


@pytest.mark.parametrize("column", [Strings.from_texts(["a", "b", "c"]), ["a", "b", "c"]])
def test_a_split_takes_rows_of_strings(column):
    assert list(Split({"text": column}).select(torch.tensor([2, 0]))["text"]) == ["c", "a"]
