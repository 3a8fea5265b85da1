"""Text as tokens: nothing is lost wherever it is cut, nothing is done twice, nothing half done is ever used."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engram.core.errors import EngramError
from engram.data import corpus, tokens
from engram.data.tokenizer import Tokenizer
from tests.processes import Process

BYTES = Tokenizer.train("bytes", ["a"])
TEXTS = {
    "lines": "to be or not to be\nthat is the question\n\n" * 12,
    "no line break": "to be or not to be that is the question " * 20,
    "several bytes": "naïve → 😀 日本語 été " * 25,
    "several bytes without a space": "日本語😀é→" * 40,
    "windows": "to be or\r\nnot to be\r\n\r\n" * 25,
    "old mac": "to be or\rnot to be\r" * 30,
    "one long line and a short one": "to be or not " * 60 + "\nend",
    "one line that ends": "to be or not to be " * 30 + "\n",
    "one line and empty ones": "to be or not to be " * 30 + "\n\n\n",
    "emoji": "😀" * 60,
}
BLOCKS = [7, 64, 100, 1 << 20]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """A cache of its own for each test."""
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def written(tmp_path):
    def write(text, name="own.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def whole(text):
    """All splits of a text one after the other."""
    return "".join(piece for split in text.splits.values() for piece in split())


# ---------------------------------------------------------------------- reading


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("name", TEXTS)
def test_the_parts_of_a_file_are_the_whole_file(written, monkeypatch, name, block):
    monkeypatch.setattr(corpus, "BLOCK", block)
    assert whole(corpus.read_text(str(written(TEXTS[name])), "windows")) == TEXTS[name]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(alphabet="aé→😀\n\r \ufeff", min_size=100, max_size=160), st.integers(4, 40))
def test_the_parts_of_any_file_are_the_whole_file(written, text, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "BLOCK", block)
        found = whole(corpus.read_text(str(written(text)), "windows"))
    assert found == text.removeprefix("\ufeff")


@pytest.mark.parametrize("block", BLOCKS)
def test_a_byte_order_mark_is_no_text(written, monkeypatch, block):
    monkeypatch.setattr(corpus, "BLOCK", block)
    path = written(b"\xef\xbb\xbf" + TEXTS["lines"].encode())
    assert whole(corpus.read_text(str(path), "windows")) == TEXTS["lines"]


@pytest.mark.parametrize("last", ["to be\n", "to be"])
def test_a_mark_inside_a_text_is_text(written, last):
    text = "to be or not to be\n" * 20 + f"\ufeff{last * 5}"
    assert whole(corpus.read_text(str(written(text)), "windows")) == text


@pytest.mark.parametrize("block", [64, 100, 1 << 20])
@pytest.mark.parametrize("name", ["lines", "windows"])
def test_lines_are_lines_wherever_a_block_ends(written, monkeypatch, name, block):
    monkeypatch.setattr(corpus, "BLOCK", block)
    text = corpus.read_text(str(written(TEXTS[name])), "lines")
    found = [piece for split in text.splits.values() for piece in split()]
    assert found == [line for line in TEXTS[name].splitlines() if line]


@pytest.mark.parametrize("name", TEXTS)
def test_a_file_is_cut_near_ninety_percent(written, name):
    text = TEXTS[name]
    train = "".join(corpus.read_text(str(written(text)), "windows").splits["train"]())
    part = len(train.encode()) / len(text.encode())
    assert 0.89 < part < 0.98


def test_a_file_is_cut_at_the_end_of_a_line(written):
    train = "".join(corpus.read_text(str(written(TEXTS["lines"])), "windows").splits["train"]())
    assert train.endswith("\n")


def test_few_files_are_each_cut(written):
    for i in range(3):
        written(f"file {i} " * 100 + "\n" + f"last {i} " * 5, f"folder/{i}.txt")
    folder = written(b"", "folder/not a text.md").parent
    text = corpus.read_text(str(folder), "windows")
    for split in text.splits.values():
        found = "".join(split())
        assert all(f" {i} " in found for i in range(3))


@pytest.mark.parametrize("count", [10, 25])
def test_many_files_are_dealt_out_whole(written, count):
    for i in range(count):
        written(f"<{i}>" + "x" * 50, f"folder/{i:02}.txt")
    text = corpus.read_text(str(written("y", "folder/y.md").parent), "windows")
    dealt = {part: {piece.partition(">")[0] for piece in split()} for part, split in text.splits.items()}
    assert set.union(*dealt.values()) == {f"<{i}" for i in range(count)}
    assert sum(map(len, dealt.values())) == count
    assert len(dealt["valid"]) == len(dealt["test"]) == count // 10


def test_dealing_out_does_not_depend_on_chance(written):
    for i in range(12):
        written(f"<{i}>" + "x" * 50, f"folder/{i:02}.txt")
    folder = written("y", "folder/y.md").parent
    first, second = ({part: list(split()) for part, split in corpus.read_text(str(folder), "windows").splits.items()}
                     for _ in range(2))  # fmt: skip
    assert first == second


def test_a_split_can_be_read_again(written):
    train = corpus.read_text(str(written(TEXTS["lines"])), "windows").splits["train"]
    assert list(train()) == list(train())


# ---------------------------------------------------------------------- what cannot be read


@pytest.mark.parametrize("content", ["éa".encode("latin-1") * 100, "to be".encode("utf-16") * 50, b"a" * 500 + b"\xff"])
def test_what_is_not_utf8_is_said(written, content):
    path = written(content)
    with pytest.raises(EngramError, match=r"own.txt is not UTF-8 text .*: save it as UTF-8\.$"):
        whole(corpus.read_text(str(path), "windows"))


@pytest.mark.parametrize("content", ["", "a", "\n"])
def test_an_empty_file_is_said(written, content):
    path = written(content)
    with pytest.raises(EngramError, match=r"own.txt is empty, or nearly: .*\.$"):
        corpus.read_text(str(path), "windows")


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(EngramError, match=r"There is no file or folder .*none.txt\.$"):
        corpus.read_text(str(tmp_path / "none.txt"), "windows")


def test_nothing_but_empty_lines_is_said(written):
    text = corpus.read_text(str(written("\n" * 500)), "lines")
    with pytest.raises(EngramError, match=r"too little text"):
        corpus.tokenize_corpus(text, BYTES)


# ---------------------------------------------------------------------- tokens


def made(path, by="windows", tokenizer=BYTES):
    return corpus.tokenize_corpus(corpus.read_text(str(path), by), tokenizer)


@pytest.mark.parametrize("name", TEXTS)
def test_tokens_are_the_text(written, name):
    found = made(written(TEXTS[name]))
    assert BYTES.decode([*found["train"].ids.tolist(), *found["valid"].ids.tolist()]) == TEXTS[name]


def test_pieces_are_lines(written):
    found = made(written(TEXTS["lines"]), "lines")["train"]
    lines = [line for line in TEXTS["lines"].splitlines() if line]
    assert [BYTES.decode(found.segment(i).tolist()) for i in range(len(found))] == lines[: len(found)]


def test_special_tokens_are_not_in_a_corpus(written):
    tokenizer = Tokenizer.train("characters", [TEXTS["lines"]], special_tokens=("</s>",), template="$A </s>")
    assert not (made(written(TEXTS["lines"]), "lines", tokenizer)["train"].ids == 0).any()


@pytest.mark.parametrize(("size", "dtype"), [(1 << 15, torch.int16), ((1 << 15) + 1, torch.int32)])
def test_tokens_take_as_few_bytes_as_they_can(written, monkeypatch, size, dtype):
    monkeypatch.setattr(Tokenizer, "max_id", size - 1)
    monkeypatch.setattr(
        Tokenizer, "encode_batch", lambda self, texts, add_special_tokens: [[0, size - 1] for _ in texts]
    )
    ids = made(written(TEXTS["lines"]))["train"].ids
    assert ids.dtype == dtype
    assert ids.max() == size - 1


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux tells what is mapped")
def test_tokens_are_mapped_and_not_read(written):
    path = written(TEXTS["lines"])
    ids = made(path)["train"].ids
    assert "train.ids" in Path("/proc/self/maps").read_text()
    assert len(ids)


def test_writing_to_tokens_changes_no_file(written):
    path = written(TEXTS["lines"])
    ids = made(path)["train"].ids
    before = ids.clone()
    ids.zero_()
    assert torch.equal(made(path)["train"].ids, before)


@pytest.fixture
def counted(monkeypatch):
    """How often texts are tokenized."""
    calls, encode = [], Tokenizer.encode_batch

    def counting(self, texts, **options):
        calls.append(len(texts))
        return encode(self, texts, **options)

    monkeypatch.setattr(Tokenizer, "encode_batch", counting)
    return calls


def test_a_text_is_tokenized_once(written, counted):
    path = written(TEXTS["lines"])
    first = made(path)
    times = len(counted)
    second = made(path)
    assert len(counted) == times > 0
    assert torch.equal(first["train"].ids, second["train"].ids)


def test_a_file_that_changed_is_tokenized_again(written, counted):
    made(written(TEXTS["lines"]))
    times = len(counted)
    found = made(written(TEXTS["lines"].replace("to be", "we do")))
    assert len(counted) > times
    assert "to be" not in BYTES.decode(found["train"].ids.tolist())


def test_identity_changes_with_the_time_of_a_file_and_with_how_it_is_read(written):
    path = written(TEXTS["lines"])
    before = corpus.read_text(str(path), "windows").fingerprint
    assert corpus.read_text(str(path), "lines").fingerprint != before
    os.utime(path, ns=(1, 1))
    assert corpus.read_text(str(path), "windows").fingerprint != before


def test_another_tokenizer_is_another_file(written, counted):
    path = written(TEXTS["lines"])
    made(path)
    times = len(counted)
    made(path, tokenizer=Tokenizer.train("characters", [TEXTS["lines"]]))
    assert len(counted) > times


def test_a_set_without_a_test_is_examined_on_what_validated_it(written):
    found = made(written(TEXTS["lines"]))
    assert found["test"] is found["valid"]


# ---------------------------------------------------------------------- several at once, and half done


CODE = """
import sys, time
from engram.data import corpus
from engram.data.tokenizer import Tokenizer
path, log, wait = sys.argv[1:]
encode = Tokenizer.encode_batch
def slowly(self, texts, **options):
    with open(log, "a") as stream:
        stream.write("tokenized\\n")
    time.sleep(float(wait))
    return encode(self, texts, **options)
Tokenizer.encode_batch = slowly
found = corpus.tokenize_corpus(corpus.read_text(path, "windows"), Tokenizer.train("bytes", ["a"]))
print(len(found["train"].ids))
"""


def process(path, log, wait):
    return Process([sys.executable, "-c", CODE, path, log, wait], stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_two_processes_at_once_do_it_once(written, tmp_path):
    path, log = written(TEXTS["lines"]), tmp_path / "log"
    with process(path, log, 0.3) as one, process(path, log, 0.3) as other:
        said = [each.communicate(timeout=60)[0] for each in (one, other)]
    assert said[0] == said[1] == f"{len(made(path)['train'].ids)}\n"
    assert log.read_text().count("tokenized") == 2  # the two splits


def drafts(own_cache):
    return list(own_cache.glob("tokens/*.partial"))


@pytest.fixture
def killed(written, tmp_path):
    """A text whose tokenizing was killed half-way."""
    path, log = written(TEXTS["lines"]), tmp_path / "log"
    with process(path, log, 60):
        deadline = time.monotonic() + 30
        while not log.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
    return path


def test_killed_half_way_leaves_nothing_that_looks_whole(killed, own_cache):
    assert drafts(own_cache)
    assert not list(own_cache.rglob("about.json"))


def test_killed_half_way_is_brought_to_its_end(killed, own_cache):
    train = "".join(corpus.read_text(str(killed), "windows").splits["train"]())
    assert BYTES.decode(made(killed)["train"].ids.tolist()) == train
    assert not drafts(own_cache)


@pytest.mark.parametrize("torn", [0, 1, 5])
def test_what_was_tokenized_is_not_tokenized_again(torn, tmp_path, monkeypatch):
    """Interrupted after some pieces, of which the last tokens may not have reached the disk: it goes on after them."""
    pieces, monkeyed = [f"piece {i} " for i in range(50)], []
    monkeypatch.setattr(tokens, "ENCODE_BATCH", 8)
    tokens.write_tokens("whole", {"train": lambda: iter(pieces)}, BYTES, tmp_path / "whole")

    def interrupted():
        yield from pieces[:32]
        raise KeyboardInterrupt

    monkeypatch.setattr(tokens, "FLUSH_BYTES", 1)
    with pytest.raises(KeyboardInterrupt):
        tokens.write_tokens("half", {"train": interrupted}, BYTES, tmp_path / "half")
    ids = tmp_path / "half.partial" / "train.ids"
    os.truncate(ids, ids.stat().st_size - torn)
    encode = Tokenizer.encode_batch
    monkeypatch.setattr(Tokenizer, "encode_batch", lambda *a, **o: monkeyed.extend(a[1]) or encode(*a, **o))
    tokens.write_tokens("half", {"train": lambda: iter(pieces)}, BYTES, tmp_path / "half")
    assert monkeyed == pieces[32 - bool(torn) :]
    for name in ("train.ids", "train.ends", "about.json"):
        assert (tmp_path / "half" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_an_error_half_way_leaves_no_draft(written, own_cache):
    path = written(b"a" * 500 + b"\xff")
    with pytest.raises(EngramError):
        made(path)
    assert not drafts(own_cache)
    assert not list((own_cache / "tokens").iterdir())


def test_a_folder_without_its_description_is_made_again(written, own_cache):
    path = written(TEXTS["lines"])
    before = made(path)["train"].ids.clone()
    (place,) = (own_cache / "tokens").iterdir()
    about = json.loads((place / "about.json").read_text())
    (place / "about.json").unlink()
    (place / "train.ids").write_bytes(b"")
    assert torch.equal(made(path)["train"].ids, before)
    assert json.loads((place / "about.json").read_text()) == about


# ---------------------------------------------------------------------- batches


def numbered(length):
    """Tokens that are their own places."""
    return corpus.Tokens(torch.arange(length, dtype=torch.int32), torch.tensor([length]))


def windows(seed=0, length=50, batch=6, context=8):
    return corpus.RandomWindows(numbered(length), batch, context, torch.Generator().manual_seed(seed))


def test_a_window_is_followed_by_the_same_moved_by_one():
    batch = next(windows())
    assert batch["x"].shape == (6, 8)
    assert torch.equal(batch["y"], batch["x"] + 1)
    assert torch.equal(batch["x"], batch["x"][:, :1] + torch.arange(8))


def test_windows_come_from_everywhere():
    some = windows(length=12)
    starts = torch.cat([next(some)["x"][:, 0] for _ in range(50)])
    assert set(starts.tolist()) == {0, 1, 2, 3}


def test_a_text_just_long_enough_has_one_window():
    assert next(windows(length=9))["x"][:, 0].tolist() == [0] * 6


def test_a_text_too_short_is_said():
    with pytest.raises(EngramError, match=r"The text has 8 tokens, .*lower --context\.$"):
        windows(length=8)


def test_windows_go_on_exactly_where_they_were():
    first, second = windows(), windows(seed=1)
    for _ in range(3):
        next(first)
    second.load_state_dict(first.state_dict())
    for _ in range(3):
        assert torch.equal(next(first)["x"], next(second)["x"])


@pytest.mark.parametrize(("length", "context"), [(50, 7), (50, 49), (50, 100), (2, 8), (9, 8), (17, 8)])
def test_rows_cover_a_text(length, context):
    x, y = corpus.cover_windows(numbered(length), context, 10_000)
    width = min(context, length - 1)
    assert torch.equal(y, x + 1)
    covered = (length - 1) // width * width
    assert x.flatten().tolist() == list(range(covered))


@pytest.mark.parametrize("most", [1, 8, 100, 799])
def test_rows_are_an_even_choice_of_a_long_text(most):
    x, _ = corpus.cover_windows(numbered(10_001), 8, most)
    starts = x[:, 0]
    assert len(x) == max(1, most // 8)
    assert (starts % 8 == 0).all()
    if len(x) > 1:
        assert starts[0] == 0
        assert starts[-1] == 9992
        gaps = starts.diff()
        assert gaps.max() - gaps.min() <= 8
