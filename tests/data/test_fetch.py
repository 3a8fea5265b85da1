"""Obtaining, keeping and reading again, with a package made up on the spot."""

import hashlib
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engram.core.errors import EngramError
from engram.data import cache, fetch, registry, sources
from engram.data.columns import Strings
from engram.data.dataset import Parts, Split
from engram.data.sources import Archive, DataSource
from tests.processes import Process


def read(files):
    numbers = torch.tensor(list(files["numbers.bin"]))
    return Parts(
        {"train": Split({"label": numbers, "text": Strings.from_texts(map(str, numbers.tolist()))})}, ("a", "b")
    )


def package(folder: Path) -> Path:
    """The same archive each time, to the byte."""
    path = folder / "tiny.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo("numbers.bin"), bytes([3, 1, 2]))
    return path


@pytest.fixture
def calls():
    return []


@pytest.fixture
def entry(fresh_cache, tmp_path, monkeypatch, calls):
    """A set of three items that a client called `pip` delivers; `calls` says how often it was asked."""
    sha256 = hashlib.sha256(package(tmp_path).read_bytes()).hexdigest()

    def deliver(name, folder, progress):
        calls.append(name)
        package(folder)

    monkeypatch.setitem(sources.CLIENTS, "pip", deliver)
    monkeypatch.setattr(registry, "ENTRIES", {})
    registry.register_downloaded(
        "tiny", DataSource(read, Archive("pip", "tiny==1", ("numbers.bin",), sha256)),
        title="", kind="", license="", columns={"label": "int64", "text": "str"}, sizes={"train": 3},
    )  # fmt: skip
    return registry.get_entry("tiny")


def expect_tiny(parts):
    assert parts.splits["train"]["label"].tolist() == [3, 1, 2]
    assert list(parts.splits["train"]["text"]) == ["3", "1", "2"]
    assert parts.classes == ("a", "b")


def leftovers(folder):
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_downloads_once_and_reads_ever_after(entry, calls):
    expect_tiny(fetch.fetch_dataset(entry))
    expect_tiny(fetch.fetch_dataset(entry))
    assert calls == ["tiny==1"]


def test_keeps_one_file_and_its_voucher_and_nothing_else(entry, fresh_cache):
    fetch.fetch_dataset(entry)
    assert leftovers(fresh_cache) == ["tiny.json", "tiny.safetensors"]


def wrong_hash(entry):
    (source,) = entry.sources
    return replace(entry, sources=(DataSource(read, replace(source.archives[0], sha256="0" * 64)),))


def test_a_wrong_hash_is_refused_and_leaves_nothing(entry, fresh_cache):
    with pytest.raises(EngramError, match="its sha256 is .*should be 000000000000…"):
        fetch.fetch_dataset(wrong_hash(entry))
    assert leftovers(fresh_cache) == []


def test_a_wrong_member_is_refused(entry):
    archive = Archive("pip", "tiny==1", ("numbers.bin",), contents=("0" * 64,))
    with pytest.raises(EngramError, match=r"sha256 of its numbers\.bin"):
        fetch.fetch_dataset(replace(entry, sources=(DataSource(read, archive),)))


def test_the_next_source_is_tried(entry, calls):
    archive = entry.sources[0].archives[0]
    bad = replace(archive, name="gone==1", sha256="0" * 64)
    expect_tiny(fetch.fetch_dataset(replace(entry, sources=(DataSource(read, bad), *entry.sources))))
    assert calls == ["gone==1", "tiny==1"]


def test_what_is_not_as_promised_is_not_kept(entry, fresh_cache):
    with pytest.raises(EngramError, match="instead of"):
        fetch.fetch_dataset(replace(entry, info=replace(entry.info, sizes={"train": 4})))
    assert leftovers(fresh_cache) == []


def test_an_interruption_leaves_nothing(entry, fresh_cache, monkeypatch):
    def interrupted(name, folder, progress):
        (folder / "half").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setitem(sources.CLIENTS, "pip", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch.fetch_dataset(entry)
    assert leftovers(fresh_cache) == []


def test_what_a_killed_process_left_is_cleared(entry, fresh_cache):
    (fresh_cache / ".tiny-killed").mkdir(parents=True)
    fetch.fetch_dataset(entry)
    assert leftovers(fresh_cache) == ["tiny.json", "tiny.safetensors"]


def flipped(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


DAMAGES = {"truncated": lambda content: content[:-1], "flipped": flipped, "emptied": lambda content: b""}


@pytest.mark.parametrize("file", ["tiny.safetensors", "tiny.json"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_obtained_again(entry, fresh_cache, calls, file, damage):
    fetch.fetch_dataset(entry)
    path = fresh_cache / file
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    expect_tiny(fetch.fetch_dataset(entry))
    assert len(calls) == 2


def test_a_lost_file_is_obtained_again(entry, fresh_cache, calls):
    fetch.fetch_dataset(entry)
    (fresh_cache / "tiny.safetensors").unlink()
    assert not cache.is_cached("tiny")
    expect_tiny(fetch.fetch_dataset(entry))
    assert len(calls) == 2


def test_a_damaged_file_that_cannot_be_obtained_again_is_one_sentence(entry, fresh_cache):
    fetch.fetch_dataset(entry)
    (fresh_cache / "tiny.safetensors").write_bytes(b"")
    with pytest.raises(EngramError, match="its file in the cache is damaged"):
        fetch.fetch_dataset(wrong_hash(entry))


def test_from_a_file_of_the_user(entry, tmp_path, calls):
    expect_tiny(fetch.fetch_dataset(entry, package(tmp_path)))
    assert calls == []


def test_from_a_folder_of_archives(entry, tmp_path, calls):
    folder = tmp_path / "archives"
    folder.mkdir()
    package(folder)
    (folder / "another.txt").write_text("not it")
    expect_tiny(fetch.fetch_dataset(entry, folder))
    assert calls == []


def test_the_wrong_file_of_the_user_is_refused(entry, tmp_path):
    wrong = tmp_path / "wrong.zip"
    wrong.write_bytes(b"PK\x03\x04 but not a zip")
    with pytest.raises(
        EngramError, match=r"wrong\.zip is not what tiny is made of.* give the file of pip tiny==1 \([0-9a-f]{12}…\)"
    ):
        fetch.fetch_dataset(entry, wrong)
    with pytest.raises(EngramError, match="There is no file"):
        fetch.fetch_dataset(entry, tmp_path / "none")


def test_a_cache_that_cannot_be_written_is_one_sentence(entry, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "file" / "below"))
    with pytest.raises(EngramError, match="ENGRAM_DATA"):
        fetch.fetch_dataset(entry)


TWO = """
import hashlib, sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_fetch import package, read
from engram.data import fetch, registry, sources
def deliver(name, folder, progress):
    with open({log!r}, "a") as log: log.write("x")
    time.sleep(0.5)
    package(folder)
sources.CLIENTS["pip"] = deliver
registry.register_downloaded("tiny",
    sources.DataSource(read, sources.Archive("pip", "tiny==1", ("numbers.bin",), {sha256!r})),
    title="", kind="", license="", columns={{"label": "int64", "text": "str"}}, sizes={{"train": 3}})
assert fetch.fetch_dataset(registry.get_entry("tiny")).splits["train"]["label"].tolist() == [3, 1, 2]
"""


@pytest.mark.slow
def test_of_two_processes_one_downloads(tmp_path, fresh_cache):
    log = tmp_path / "log"
    sha256 = hashlib.sha256(package(tmp_path).read_bytes()).hexdigest()
    code = TWO.format(tests=str(Path(__file__).parent), log=str(log), sha256=sha256)
    with Process([sys.executable, "-c", code]) as one, Process([sys.executable, "-c", code]) as other:
        assert [one.wait(60), other.wait(60)] == [0, 0]
    assert log.read_text() == "x"


def test_a_client_that_hangs_is_given_up(monkeypatch, tmp_path):
    monkeypatch.setattr(sources, "TIMEOUT_S", 0.2)
    with pytest.raises(sources.Unavailable, match="no answer"):
        sources.run_client([sys.executable, "-c", "import time; time.sleep(5)"], tmp_path)


def test_a_client_that_fails_is_quoted_in_its_last_words(tmp_path):
    code = "import sys; sys.exit('noise\\nERROR: no such package.\\nwarning: something else')"
    with pytest.raises(sources.Unavailable, match=r"^ERROR: no such package$"):
        sources.run_client([sys.executable, "-c", code], tmp_path)


def test_a_member_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sources.archive, "MAX_MEMBER_BYTES", 2)
    archive = Archive("pip", "tiny==1", ("numbers.bin",), contents=("",))
    with pytest.raises(sources.Unavailable, match="would unpack to"):
        archive.verify(package(tmp_path))
