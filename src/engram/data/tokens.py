"""Tokens on disk: one file of numbers and one of the places where pieces end, for each split, both memory-mapped.

    TOKENS/about.json       what the numbers are, and how many; written last, so what has it is whole
    TOKENS/train.ids        every token of the split, one after the other
    TOKENS/train.ends       after how many tokens each piece ends

A text is tokenised into a folder of another name. Every so often what is there is flushed to disk, tokens before ends;
so a tokenising that was interrupted goes on after the last piece whose end is known.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.data import cache
from engram.data.tokeniser import Tokeniser

Pieces = Callable[[], Iterator[str]]
TOGETHER = 1024
"""pieces that are tokenised at once, on all cores"""
FLUSHED = 1 << 26
"""bytes of tokens after which they are flushed to disk"""
SECONDS_BETWEEN_LINES = 15.0
"""a long tokenising says how far it is"""


@dataclass(frozen=True)
class Tokens:
    """One split: all tokens one after the other, and where pieces end; both memory-mapped."""

    ids: Tensor
    ends: Tensor

    def piece(self, i: int) -> Tensor:
        start = int(self.ends[i - 1]) if i else 0
        return self.ids[start : int(self.ends[i])].long()

    def __len__(self) -> int:
        return len(self.ends)


def mapped(place: Path) -> dict[str, Tokens]:
    """The splits of a text that has been tokenised."""
    about = json.loads((place / "about.json").read_text())
    kind = torch.int16 if about["dtype"] == "int16" else torch.int32

    def file(name: str, size: int, dtype: torch.dtype) -> Tensor:
        if not size:
            return torch.empty(0, dtype=dtype)
        return torch.from_file(str(place / name), shared=False, size=size, dtype=dtype)

    return {
        part: Tokens(file(f"{part}.ids", total, kind), file(f"{part}.ends", count, torch.int64))
        for part, (total, count) in about["splits"].items()
    }


def write(name: str, splits: Mapping[str, Pieces], tokeniser: Tokeniser, place: Path) -> None:
    """Tokenise into PLACE.partial, and give it its name when it is whole. What an interrupted one left is kept."""
    dtype = np.dtype("int16" if tokeniser.last < 1 << 15 else "int32")
    draft = place.with_suffix(".partial")
    with cache.complaining():
        draft.mkdir(parents=True, exist_ok=True)
    try:
        sizes = {}
        for part, pieces in splits.items():
            with cache.complaining(), File(draft / part, dtype) as file:
                sizes[part] = file.extend(islice(pieces(), file.count, None), tokeniser, f"{name}, {part}")
        with cache.complaining():
            (draft / "about.json").write_text(json.dumps({"dtype": dtype.name, "splits": sizes}))
            shutil.rmtree(place, ignore_errors=True)
            os.rename(draft, place)
    except EngramError as error:
        if not isinstance(error.__cause__, OSError):  # the text is at fault: another will be another file
            shutil.rmtree(draft, ignore_errors=True)
        raise


class File:
    """Tokens and ends of one split while they are being written."""

    def __init__(self, path: Path, dtype: "np.dtype[Any]") -> None:
        self.dtype = dtype
        self.ids, self.ends = (path.with_suffix(suffix).open("a+b") for suffix in (".ids", ".ends"))
        self.count = os.fstat(self.ends.fileno()).st_size // 8
        self.total = self._end(self.count)
        while self.total * dtype.itemsize > os.fstat(self.ids.fileno()).st_size:  # ends that came before their tokens
            self.count -= 1
            self.total = self._end(self.count)
        self.ids.truncate(self.total * dtype.itemsize)
        self.ends.truncate(self.count * 8)

    def _end(self, count: int) -> int:
        if not count:
            return 0
        self.ends.seek(8 * (count - 1))
        return int.from_bytes(self.ends.read(8), sys.byteorder)

    def __enter__(self) -> "File":
        return self

    def __exit__(self, *error: object) -> None:
        self.ids.close()
        self.ends.close()

    def extend(self, pieces: Iterator[str], tokeniser: Tokeniser, name: str) -> list[int]:
        """Add pieces; returns how many tokens and pieces there are."""
        waiting, unflushed, said = bytearray(), 0, time.monotonic()
        for batch in batched(pieces, TOGETHER):
            for row in tokeniser.encode_all(batch, special=False):
                self.total += len(row)
                self.count += 1
                unflushed += self.ids.write(np.array(row, self.dtype).tobytes())
                waiting += self.total.to_bytes(8, sys.byteorder)
            if unflushed >= FLUSHED:
                self._flush(waiting)
                unflushed = 0
            if time.monotonic() - said > SECONDS_BETWEEN_LINES:
                said = time.monotonic()
                print(f"engram: tokenising {name}: {self.total / 1e6:,.1f} million tokens", file=sys.stderr)
        self._flush(waiting)
        return [self.total, self.count]

    def _flush(self, waiting: bytearray) -> None:
        """Tokens first, then the ends that vouch for them."""
        self.ids.flush()
        os.fsync(self.ids.fileno())
        self.ends.write(waiting)
        self.ends.flush()
        os.fsync(self.ends.fileno())
        waiting.clear()


def batched(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while batch := list(islice(items, size)):
        yield batch
