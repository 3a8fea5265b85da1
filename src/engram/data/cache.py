"""The cache: each data set as one safetensors file, with a small JSON file beside it that vouches for it.

The JSON file holds the size and sha256 of the data file and is written last, so a data set is either wholly there or
not there at all, whatever was interrupted. A string column is kept as two tensors, its bytes and its offsets, and a
column of bitmaps as its bits; the header of the safetensors file says which is which.
"""

import itertools
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from engram.core import together
from engram.core.errors import EngramError
from engram.data.columns import Bitmaps, Strings
from engram.data.dataset import Parts, Split
from engram.data.sources import hash_of

FULLY_CHECKED = 200 << 20
"""bytes up to which a file is hashed each time it is read; above that only its size is compared"""


SILENT_SECONDS = 3.0
REMINDER_SECONDS = 60.0
"""a process that waits for another says so after the first, and again after each of the second"""
LOCK_HOURS = 6


class Damaged(Exception):
    """The cached file is not the one that was written."""


def folder() -> Path:
    """Where data sets are kept: `ENGRAM_DATA`, or `~/.cache/engram`."""
    return Path(os.environ.get("ENGRAM_DATA") or Path.home() / ".cache" / "engram").expanduser()


@contextmanager
def complaining() -> Iterator[None]:
    """Turn the machine's refusal to read or write the cache (no space, no permission) into a sentence."""
    try:
        yield
    except OSError as error:
        raise EngramError(
            f"The data cache {folder()} cannot be used ({error.strerror or error}): free it, or name another folder in "
            "the environment variable ENGRAM_DATA."
        ) from error


@contextmanager
def locked(name: str, what: str) -> Iterator[None]:
    """Hold the lock of a cache entry, so that one process at a time makes it; `what` names the entry in messages.

    The holder works alone: other processes of a distributed run wait for this lock, so a collective under it would
    never end. The system releases the lock of a process that dies; what it left behind is removed.
    """
    with complaining():
        folder().mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder() / f"{name}.lock")
        acquire(lock, what)
    try:
        for stale in folder().glob(f".{name}-*"):
            shutil.rmtree(stale, ignore_errors=True)
        with together.alone():
            yield
    finally:
        lock.release()


def acquire(lock: FileLock, what: str) -> None:
    """Acquire a lock; a wait of more than some seconds is announced, and it ends after `LOCK_HOURS`."""
    deadline = time.monotonic() + 3600 * LOCK_HOURS
    for pause in itertools.chain([SILENT_SECONDS], itertools.repeat(REMINDER_SECONDS)):
        try:
            lock.acquire(timeout=min(pause, max(0.0, deadline - time.monotonic())))
            return
        except Timeout:
            if time.monotonic() >= deadline:
                raise EngramError(
                    f"Another process has been making {what} for {LOCK_HOURS} hours: end it if it hangs (it holds "
                    f"{lock.lock_file}), and try again."
                ) from None
            print(f"engram: waiting for {what}, which another process is making", file=sys.stderr, flush=True)


@contextmanager
def draft(name: str) -> Iterator[Path]:
    """A folder inside the cache for work on a data set, gone afterwards whatever happens."""
    with complaining(), tempfile.TemporaryDirectory(dir=folder(), prefix=f".{name}-") as path:
        yield Path(path)


def path_of(name: str) -> Path:
    return folder() / f"{name}.safetensors"


def voucher_of(name: str) -> Path:
    return folder() / f"{name}.json"


def cached(name: str) -> bool:
    """Whether `name` lies in the cache, as far as its size tells."""
    try:
        return bool(_voucher(name)["size"] == path_of(name).stat().st_size)
    except (OSError, Damaged):
        return False


def write(name: str, parts: Parts) -> None:
    """Keep a data set. Nobody ever sees half of it."""
    tensors: dict[str, Tensor] = {}
    layout: dict[str, Any] = {"classes": parts.classes, "splits": {}}
    for part, split in parts.splits.items():
        layout["splits"][part] = {column: _pack(f"{part}/{column}", split[column], tensors) for column in split}
    with draft(name) as place:
        new = place / "data"
        save_file({key: value.contiguous() for key, value in tensors.items()}, new, {"layout": json.dumps(layout)})
        voucher = place / "voucher"
        voucher.write_text(json.dumps({"size": new.stat().st_size, "sha256": hash_of(new)}))
        voucher_of(name).unlink(missing_ok=True)
        install(new, path_of(name))
        install(voucher, voucher_of(name))


def read(name: str) -> Parts:
    """A data set out of the cache; FileNotFoundError if it is not there, Damaged if it is not what was written."""
    path, voucher = path_of(name), _voucher(name)
    if not path.exists() or path.stat().st_size != voucher["size"]:
        raise Damaged
    if voucher["size"] <= FULLY_CHECKED and hash_of(path) != voucher["sha256"]:
        raise Damaged
    try:
        with safe_open(path, framework="pt") as file:
            layout = json.loads(file.metadata()["layout"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
        splits = {
            part: Split({column: _unpack(f"{part}/{column}", form, tensors) for column, form in columns.items()})
            for part, columns in layout["splits"].items()
        }
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise Damaged from error
    return Parts(splits, tuple(layout["classes"]))


def _voucher(name: str) -> dict[str, Any]:
    try:
        voucher = json.loads(voucher_of(name).read_text())
    except ValueError as error:
        raise Damaged from error
    if not isinstance(voucher, dict) or not {"size", "sha256"} <= voucher.keys():
        raise Damaged
    return voucher


def install(new: Path, path: Path) -> None:
    """Move a complete file to its place once it is on disk."""
    new.chmod(0o644)  # safetensors writes for the owner alone, and a cache may be shared
    with new.open("rb+") as stream:
        os.fsync(stream.fileno())
    new.replace(path)


def _pack(key: str, column: Any, tensors: dict[str, Tensor]) -> Any:
    """Put a column's tensors into `tensors`; the return value says how to put them together again."""
    if isinstance(column, Tensor):
        tensors[key] = column
        return "tensor"
    if isinstance(column, Bitmaps):
        tensors[key] = column.bits[column.rows]
        return [column.height, column.width]
    strings = column if isinstance(column, Strings) else Strings.of(column)
    tensors[key], tensors[f"{key}.offsets"] = strings.packed()
    return "strings"


def _unpack(key: str, form: Any, tensors: Mapping[str, Tensor]) -> Any:
    if form == "tensor":
        return tensors[key]
    if form == "strings":
        return Strings.of_offsets(tensors[key], tensors[f"{key}.offsets"])
    return Bitmaps(tensors[key], *form)
