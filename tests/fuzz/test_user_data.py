"""User data: tables, arrays, texts, pairs, images and captions, each like a good one and wrong somewhere."""

import csv
import io
import itertools
import os
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from engram.core.errors import EngramError
from engram.data import corpus
from engram.data.series import read_series
from engram.data.tokenizer import Tokenizer
from engram.data.user_data import load_user_data
from tests.fuzz.hostile import NUMBERS, damaged
from tests.fuzz.law import lawful, trials

names = itertools.count()


def tried(tmp_path, name, content, read=load_user_data):
    """A file of that content, read by the law."""
    folder = tmp_path / str(next(names))
    folder.mkdir()
    (folder / name).write_bytes(content)
    with lawful(folder, (name, content)):
        read(folder / name)


def saved(array, **more):
    content = io.BytesIO()
    np.savez(content, x=array, **more) if more else np.save(content, array)
    return content.getvalue()


def encode_image(kind, mode="RGB", size=(9, 7)):
    content = io.BytesIO()
    Image.effect_noise(size, 50).convert(mode).save(content, kind)
    return content.getvalue()


TABLE = b"a,b,label\n" + b"".join(b"%d,%d.5,%s\n" % (i, i * i, b"yes" if i % 2 else b"no") for i in range(12))
TABLES = (
    TABLE,
    TABLE.replace(b",", b";"),
    b"\n".join(b",".join([b"%d" % (i + j) for j in range(17)]) for i in range(9)),
)
ARRAYS = (saved(np.arange(60.0).reshape(12, 5)), saved(np.zeros((5, 4, 4, 3), np.uint8)), saved(np.ones((4, 3), "f2")))
ZIPPED = (
    saved(np.arange(60.0).reshape(12, 5), y=np.arange(12)),
    saved(np.zeros((9, 6, 6), np.uint8), label=np.array(["a", "b", "c"] * 3)),
)
PICTURES = {
    ".png": (
        encode_image("PNG"),
        encode_image("PNG", "P"),
        encode_image("PNG", "RGBA"),
        encode_image("PNG", "I;16"),
        encode_image("PNG", "1"),
    ),
    ".jpg": (encode_image("JPEG"), encode_image("JPEG", "L"), encode_image("JPEG", "CMYK")),
    ".gif": (encode_image("GIF", "P"),),
    ".bmp": (encode_image("BMP"), encode_image("BMP", "1")),
}
CELLS = (
    "",
    " ",
    "1",
    "-0",
    "1e999",
    "nan",
    "inf",
    "0x1p9",
    "1_000",
    "9" * 400,
    '"',
    '"a\nb"',
    "ü",
    "\0",
    "a" * 200,
    "1,2",
    "label",
    "class",
)


@trials(60)
@given(st.sampled_from(TABLES).flatmap(damaged))
def test_a_table_with_damage(tmp_path, content):
    tried(tmp_path, "a.csv", content)
    tried(tmp_path, "b.csv", content, read_series)


@trials(60)
@given(
    st.lists(st.lists(st.sampled_from(CELLS) | st.floats().map(str), max_size=5), max_size=9), st.sampled_from(",;\t")
)
def test_a_table_of_strange_cells(tmp_path, rows, delimiter):
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows(rows)
    content = text.getvalue().encode("utf-8", "surrogatepass")
    tried(tmp_path, "a.csv", content)
    tried(tmp_path, "b.csv", content, read_series)


@trials(80)
@given(st.sampled_from(ARRAYS).flatmap(damaged))
def test_an_array_with_damage(tmp_path, content):
    tried(tmp_path, "a.npy", content)
    tried(tmp_path, "b.npy", content, read_series)


@trials(80)
@given(
    st.sampled_from(("<f8", "|u1", "|O", "<U9", "<U1000000000", "<M8[s]", "<c16", "|b1", "<f2", ">i8", "|V8", "<g")),
    st.lists(st.sampled_from(NUMBERS), max_size=5).map(tuple),
    st.booleans(),
    st.binary(max_size=200),
)
def test_an_array_that_announces_what_it_does_not_hold(tmp_path, kind, shape, turned, rest):
    header = repr({"descr": kind, "fortran_order": turned, "shape": shape}).encode() + b"\n"
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + rest
    tried(tmp_path, "a.npy", content)
    tried(tmp_path, "b.npy", content, read_series)
    inside = io.BytesIO()
    with zipfile.ZipFile(inside, "w") as archive:
        archive.writestr("x.npy", content)
    tried(tmp_path, "a.npz", inside.getvalue())


@trials(80)
@given(st.sampled_from(ZIPPED).flatmap(damaged))
def test_arrays_in_a_file_with_damage(tmp_path, content):
    tried(tmp_path, "a.npz", content)


kinds = st.sampled_from(("f8", "f4", "f2", "i8", "u8", "u1", "b1", "U3", "c16", "M8[s]", "S2"))
shapes = st.lists(st.integers(0, 17), max_size=5).map(tuple)


@trials(60)
@given(
    st.dictionaries(
        st.sampled_from(("x", "y", "x_train", "y_train", "x_test", "y_test", "x_val", "Image", "labels", "z")),
        st.tuples(kinds, shapes, st.sampled_from((0, 1, 7, 255, 256, "max", "nan"))), max_size=4,
    )
)  # fmt: skip
def test_arrays_of_any_kind_and_shape(tmp_path, wanted):
    content = io.BytesIO()
    np.savez(content, **{name: filled(*about) for name, about in wanted.items()})
    tried(tmp_path, "a.npz", content.getvalue())


def filled(kind, shape, value):
    array = np.zeros(shape, kind)
    if array.dtype.kind in "iuf":
        largest = np.finfo(kind).max if array.dtype.kind == "f" else np.iinfo(kind).max
        value = {"max": largest, "nan": np.nan if array.dtype.kind == "f" else 1}.get(value, value)
        array.flat[: array.size // 2] = min(value, largest) if value == value else value
    return array


@trials(60)
@given(st.sampled_from([(end, content) for end, all_ in PICTURES.items() for content in all_]).flatmap(
    lambda pair: st.tuples(st.just(pair[0]), damaged(pair[1]))))  # fmt: skip
def test_a_picture_with_damage(tmp_path, pair):
    folder = tmp_path / str(next(names))
    (folder / "cat").mkdir(parents=True)
    for i in range(4):
        (folder / "cat" / f"{i}.png").write_bytes(PICTURES[".png"][0])
    (folder / "cat" / f"x{pair[0]}").write_bytes(pair[1])
    with lawful(folder, pair):
        load_user_data(folder)


def test_a_picture_that_would_fill_the_memory(tmp_path):
    """Thirty thousand pixels a side: 2.7 GB in memory, some kilobytes as a file."""
    content = bytearray(encode_image("PNG", "1", (8, 8)))
    for side in (30_000, 2**31 - 1):
        content[16:24] = side.to_bytes(4, "big") * 2
        folder = tmp_path / str(side) / "cat"
        folder.mkdir(parents=True)
        (folder / "a.png").write_bytes(content)
        with lawful(tmp_path), pytest.raises(Exception, match="pixels large|cannot be read|too large"):
            load_user_data(folder.parent)


@pytest.mark.parametrize("name", ["a.csv", "a.npy", "a.npz", "a.txt", "a.tsv", "a.png", "captions.tsv"])
@pytest.mark.parametrize(
    "make", [os.mkfifo, os.mkdir, lambda path: os.symlink(path, path), lambda path: os.symlink("/dev/zero", path)]
)
def test_what_is_called_like_a_file_and_is_none(tmp_path, name, make):
    """A pipe that nobody writes to, a folder, a link to itself, a device without end."""
    make(tmp_path / name)
    for path in (tmp_path, tmp_path / name):
        with lawful(tmp_path), pytest.raises(EngramError):
            load_user_data(path)
        with lawful(tmp_path), pytest.raises(EngramError):
            corpus.read_text(str(path), "lines")


def test_a_program_is_no_image(tmp_path):
    """Pillow would have PostScript interpreted by another program, whatever the file is called."""
    (tmp_path / "a.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(x) print\n%%EOF\n"
    )
    with lawful(tmp_path), pytest.raises(EngramError, match="cannot be read as an image"):
        load_user_data(tmp_path)


@trials(60)
@given(st.binary(max_size=60) | damaged(b"ein Satz\ta sentence\nnoch einer\tanother\n" * 3))
def test_texts_and_pairs(tmp_path, content):
    tried(tmp_path, "a.txt", content)
    tried(tmp_path, "a.tsv", content)
    for by in ("lines", "windows"):
        tried(tmp_path, "b.txt", content * 5, lambda path, by=by: tokens(path, by))


BYTES = Tokenizer.train("bytes", [])


def tokens(path, by):
    """A text as language models read it: piece by piece, into a cache of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENGRAM_DATA", str(path.parent / "cache"))
        corpus.tokenize_corpus(corpus.read_text(str(path), by), BYTES)


LISTED = ("a.png", "../b.png", "/etc/passwd", "", "a\0", "link.png", ".", "x" * 300)


@trials(60)
@given(st.lists(st.tuples(st.sampled_from(LISTED), st.text(max_size=9)), max_size=4), st.binary(max_size=5))
def test_captions(tmp_path, rows, rest):
    folder = tmp_path / str(next(names))
    folder.mkdir()
    (folder / "a.png").write_bytes(PICTURES[".png"][0])
    (folder / "link.png").symlink_to("/etc/passwd")
    listed = "".join(f"{file}\t{caption}\n" for file, caption in rows).encode("utf-8", "surrogatepass") + rest
    (folder / "captions.tsv").write_bytes(listed)
    with lawful(folder, listed):
        load_user_data(folder)
