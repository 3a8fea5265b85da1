"""Uploads of user data: checked and stored, or refused in a sentence with nothing left behind."""

import asyncio
import io
import stat
import zipfile

import numpy as np
import pytest
from PIL import Image

from engram.core.errors import EngramError
from engram.data.user_data import load_user_data
from engram.lab import uploads
from engram.lab.uploads import Uploads


@pytest.fixture
def place(tmp_path):
    return Uploads(tmp_path)


def upload(place, name, content, pieces=3):
    async def parts():
        size = max(1, len(content) // pieces)
        for start in range(0, len(content), size):
            yield content[start : start + size]

    async def inspect(name):
        info = load_user_data(place.folder / name).info
        return {"kind": info.kind, "sizes": dict(info.sizes)}

    return asyncio.run(place.receive(name, parts(), inspect))


def left(place):
    return sorted(path.name for path in place.folder.iterdir()) if place.folder.exists() else []


def zipped(files):
    """A zip file of these contents, the same bytes at any time: tests are named after what they are given."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return content.getvalue()


def png(value, size=8):
    content = io.BytesIO()
    Image.fromarray(np.full((size, size), value, np.uint8)).save(content, "PNG")
    return content.getvalue()


PICKLED = b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (3,), }" + b" " * 60 + b"\n"
IMAGES = {f"{kind}/{i}.png": png(20 * i) for kind in ("cat", "dog") for i in range(6)}


def test_a_text_is_stored(place):
    info = upload(place, "poem.txt", b"so much depends upon\n" * 50)
    assert info["name"] == "poem.txt"
    assert info["kind"] == "text"
    assert place.names() == ["poem.txt"]
    assert place.path("poem.txt").read_text().startswith("so much")


def test_a_table_is_stored(place):
    rows = "\n".join(f"{i},{i * i},{i % 2}" for i in range(40))
    info = upload(place, "squares.csv", f"a,b,label\n{rows}\n".encode())
    assert sum(info["sizes"].values()) == 40


def test_images_in_a_zip_file_are_unpacked_and_all_else_is_not(place):
    info = upload(place, "pets.zip", zipped({**IMAGES, "cat/run.py": b"print(1)", "cat/x.pkl": b"\x80"}))
    assert info["name"] == "pets"
    assert info["kind"] == "images"
    assert {path.suffix for path in place.path("pets").rglob("*") if path.is_file()} == {".png"}


@pytest.mark.parametrize(
    "name",
    [
        "../x.txt",
        "/etc/x.txt",
        "a/b.txt",
        ".hidden.txt",
        "x.pkl",
        "x.py",
        "x",
        "",
        "x.txt\n",
        "é.txt",
        "x" * 80 + ".txt",
    ],
)
def test_names_that_are_none(place, name):
    with pytest.raises(EngramError, match="is refused"):
        upload(place, name, b"some text that is long enough")
    assert left(place) == []


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("a.txt", b"\xff\xfe\x00" * 20, "UTF-8"),
        ("a.txt", b"x", "empty"),
        ("a.csv", b"a,b\n1,2\n1\n", ""),
        ("a.csv", b"\x00\x01\x02" * 99, ""),
        ("a.npz", b"PK\x03\x04 no zip", ""),
        ("a.npy", PICKLED, ""),
        ("a.zip", b"no zip at all", "zip file cannot be read"),
        pytest.param("a.zip", zipped({"notes.md": b"nothing"}), "", id="zip of nothing useful"),
        pytest.param("a.zip", zipped({**IMAGES, "cat/broken.png": b"no picture"}), "broken", id="broken image"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_and_leaves_nothing(place, name, content, part):
    with pytest.raises(EngramError) as refused:
        upload(place, name, content)
    assert part in str(refused.value)
    assert "\n" not in str(refused.value)
    assert left(place) == []


@pytest.mark.parametrize("name", ["../../evil.txt", "/etc/evil.txt", "a/../../evil.txt", "..\\evil.txt", "C:evil.txt"])
def test_a_zip_file_cannot_write_outside_of_its_folder(place, tmp_path, name):
    with pytest.raises(EngramError, match="outside itself"):
        upload(place, "a.zip", zipped({**IMAGES, name: b"evil, and long enough to be a text"}))
    assert left(place) == []
    assert not list(tmp_path.rglob("*evil*"))


def test_links_in_a_zip_file_are_left_out(place):
    content = io.BytesIO(zipped(IMAGES))
    with zipfile.ZipFile(content, "a") as archive:
        link = zipfile.ZipInfo("cat/link.png")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    upload(place, "pets.zip", content.getvalue())
    assert not [path for path in place.path("pets").rglob("*") if path.is_symlink() or path.name == "link.png"]


def test_bombs_are_refused(place, monkeypatch):
    monkeypatch.setattr(uploads, "MAX_UNPACKED_BYTES", 1 << 20)
    monkeypatch.setattr(uploads, "MAX_FILE_BYTES", 1 << 20)
    with pytest.raises(EngramError, match="zip file may hold"):
        upload(place, "a.zip", zipped({"cat/a.txt": b"a" * (2 << 20)}))
    with pytest.raises(EngramError, match="larger than the limit of 1 MB"):
        upload(place, "a.txt", b"a" * ((1 << 20) + 1))
    monkeypatch.setattr(uploads, "MAX_ENTRIES", 5)
    with pytest.raises(EngramError, match="zip file may hold"):
        upload(place, "a.zip", zipped(IMAGES))
    assert left(place) == []


def test_an_entry_that_lies_about_its_size_is_stopped(place, monkeypatch):
    content = bytearray(zipped({"cat/a.txt": b"a" * 100_000}))
    size = (100_000).to_bytes(4, "little")
    content = bytes(content).replace(size, (10).to_bytes(4, "little"))
    monkeypatch.setattr(uploads, "MAX_UNPACKED_BYTES", 1000)
    with pytest.raises(EngramError):
        upload(place, "a.zip", content)
    assert left(place) == []


def test_nothing_is_overwritten(place):
    upload(place, "poem.txt", b"so much depends upon a red wheel barrow")
    with pytest.raises(EngramError, match="already"):
        upload(place, "poem.txt", b"something else that is long enough")
    assert b"barrow" in place.path("poem.txt").read_bytes()
    place.delete("poem.txt")
    assert left(place) == []
    with pytest.raises(EngramError, match="no data set"):
        place.delete("../poem.txt")
