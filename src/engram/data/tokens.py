"""Tokens on disk: for each split a file of token ids and a file of segment ends, both memory-mapped.

    TOKENS/about.json       type and sizes; written last, so a folder that has it is complete
    TOKENS/train.ids        token ids of the split, one after the other
    TOKENS/train.ends       number of tokens up to the end of each segment

A text is tokenized into a folder TOKENS.partial, which is flushed to disk now and then, ids before ends; an interrupted
tokenization continues after the last segment whose end is on disk.
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
from engram.data.progress import announce
from engram.data.tokenizer import Tokenizer

Segments = Callable[[], Iterator[str]]
ENCODE_BATCH = 1024
"""segments tokenized at once, on all cores"""
FLUSH_BYTES = 1 << 26
"""bytes of ids written between two flushes to disk"""
REPORT_SECONDS = 15.0
"""seconds between two progress messages"""


@dataclass(frozen=True)
class Tokens:
    """One split: all token ids one after the other, and the ends of the segments; both memory-mapped."""

    ids: Tensor
    ends: Tensor

    def segment(self, i: int) -> Tensor:
        """Return the token ids of segment i."""
        start = int(self.ends[i - 1]) if i else 0
        return self.ids[start : int(self.ends[i])].long()

    def __len__(self) -> int:
        return len(self.ends)


def open_tokens(place: Path) -> dict[str, Tokens]:
    """Memory-map the splits of a tokenized text."""
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


def write_tokens(name: str, splits: Mapping[str, Segments], tokenizer: Tokenizer, place: Path) -> None:
    """Tokenize splits into PLACE.partial, resuming if interrupted, and rename it to PLACE when complete."""
    dtype = np.dtype("int16" if tokenizer.max_id < 1 << 15 else "int32")
    partial = place.with_suffix(".partial")
    with cache.explain_errors():
        partial.mkdir(parents=True, exist_ok=True)
    try:
        sizes = {}
        for part, segments in splits.items():
            with cache.explain_errors(), TokenWriter(partial / part, dtype) as file:
                sizes[part] = file.extend(islice(segments(), file.count, None), tokenizer, f"{name}, {part}")
        with cache.explain_errors():
            (partial / "about.json").write_text(json.dumps({"dtype": dtype.name, "splits": sizes}))
            shutil.rmtree(place, ignore_errors=True)
            os.rename(partial, place)
    except EngramError as error:
        if not isinstance(error.__cause__, OSError):  # the text is at fault, not the disk: nothing to resume
            shutil.rmtree(partial, ignore_errors=True)
        raise


class TokenWriter:
    """Appends token ids and segment ends of one split to its files."""

    def __init__(self, path: Path, dtype: "np.dtype[Any]") -> None:
        self.dtype = dtype
        self.ids, self.ends = (path.with_suffix(suffix).open("a+b") for suffix in (".ids", ".ends"))
        self.count = os.fstat(self.ends.fileno()).st_size // 8
        self.total = self._read_end(self.count)
        while self.total * dtype.itemsize > os.fstat(self.ids.fileno()).st_size:  # ends on disk whose ids are not
            self.count -= 1
            self.total = self._read_end(self.count)
        self.ids.truncate(self.total * dtype.itemsize)
        self.ends.truncate(self.count * 8)

    def _read_end(self, count: int) -> int:
        if not count:
            return 0
        self.ends.seek(8 * (count - 1))
        return int.from_bytes(self.ends.read(8), sys.byteorder)

    def __enter__(self) -> "TokenWriter":
        return self

    def __exit__(self, *error: object) -> None:
        self.ids.close()
        self.ends.close()

    def extend(self, segments: Iterator[str], tokenizer: Tokenizer, name: str) -> list[int]:
        """Tokenize and append segments; return the number of tokens and of segments."""
        pending_ends, unflushed, reported = bytearray(), 0, time.monotonic()
        for batch in batched(segments, ENCODE_BATCH):
            for row in tokenizer.encode_batch(batch, add_special_tokens=False):
                self.total += len(row)
                self.count += 1
                unflushed += self.ids.write(np.array(row, self.dtype).tobytes())
                pending_ends += self.total.to_bytes(8, sys.byteorder)
            if unflushed >= FLUSH_BYTES:
                self._flush(pending_ends)
                unflushed = 0
            if time.monotonic() - reported > REPORT_SECONDS:
                reported = time.monotonic()
                announce(f"tokenizing {name}: {self.total / 1e6:,.1f} million tokens")
        self._flush(pending_ends)
        return [self.total, self.count]

    def _flush(self, pending_ends: bytearray) -> None:
        """Flush the ids first, then their ends."""
        self.ids.flush()
        os.fsync(self.ids.fileno())
        self.ends.write(pending_ends)
        self.ends.flush()
        os.fsync(self.ends.fileno())
        pending_ends.clear()


def batched(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    """Yield lists of `size` items; the last may be shorter."""
    while batch := list(islice(items, size)):
        yield batch
