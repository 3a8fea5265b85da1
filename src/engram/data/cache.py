"""Cache of data sets: one safetensors file for each, beside a JSON manifest.

The manifest holds size and sha256 checksum of the data file and is written last, so an interrupted write leaves no
data set at all instead of half of one. A string column is stored as two tensors, bytes and offsets, and a column of
bitmaps as bits; the metadata of the safetensors file describes the layout.
"""

import itertools
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from engram.core.errors import EngramError
from engram.core.global_batch import local_only
from engram.data.columns import Bitmaps, Strings
from engram.data.dataset import Parts, Split
from engram.data.progress import announce
from engram.data.sources import compute_sha256
from engram.data.table import Array, Table, is_words
from engram.data.table_splits import TableOptions

MAX_HASHED_BYTES = 200 << 20
"""files up to this size are hashed each time they are read; of larger files only the size is compared"""


SILENT_SECONDS = 3.0
REMINDER_SECONDS = 60.0
"""a process that waits for the lock says so after SILENT_SECONDS, then every REMINDER_SECONDS"""
LOCK_HOURS = 6


class CorruptedError(Exception):
    """The cached file is not the one that was written (size, checksum or layout differs)."""


def cache_folder() -> Path:
    """Return the folder of the cache: `ENGRAM_DATA`, or `~/.cache/engram`."""
    return Path(os.environ.get("ENGRAM_DATA") or Path.home() / ".cache" / "engram").expanduser()


@contextmanager
def explain_errors() -> Iterator[None]:
    """Turn an OSError of the cache (no space, no permission) into an EngramError."""
    try:
        yield
    except OSError as error:
        raise EngramError(
            f"The data cache {cache_folder()} cannot be used ({error.strerror or error}): free it, or name "
            "another folder in the environment variable ENGRAM_DATA."
        ) from error


@contextmanager
def lock_entry(name: str, what: str) -> Iterator[None]:
    """Hold the file lock of a cache entry, so that one process at a time builds it.

    `what` names it in messages.

    The holder runs without collectives: other ranks of a distributed run wait for this lock, so a collective under it
    would deadlock. The system releases the lock of a process that dies; its temporary folders are removed.
    """
    with explain_errors():
        cache_folder().mkdir(parents=True, exist_ok=True)
        lock = FileLock(cache_folder() / f"{name}.lock")
        acquire(lock, what)
    try:
        for stale in cache_folder().glob(f".{name}-*"):
            shutil.rmtree(stale, ignore_errors=True)
        with local_only():
            yield
    finally:
        lock.release()


def acquire(lock: FileLock, what: str) -> None:
    """Acquire a lock; print a message while waiting, and give up after `LOCK_HOURS`."""
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
            announce(f"waiting for {what}, which another process is making")


@contextmanager
def temporary_folder(name: str) -> Iterator[Path]:
    """Yield a temporary folder inside the cache, removed afterwards."""
    with explain_errors(), tempfile.TemporaryDirectory(dir=cache_folder(), prefix=f".{name}-") as path:
        yield Path(path)


def data_path(name: str) -> Path:
    """Return the path of a data set's safetensors file."""
    return cache_folder() / f"{name}.safetensors"


def manifest_path(name: str) -> Path:
    """Return the path of a data set's manifest."""
    return cache_folder() / f"{name}.json"


def is_cached(name: str) -> bool:
    """Whether the cache has `name`, with the size in its manifest."""
    try:
        return bool(_read_manifest(name)["size"] == data_path(name).stat().st_size)
    except (OSError, CorruptedError):
        return False


def write(name: str, parts: Parts) -> None:
    """Write a data set to the cache atomically."""
    tensors, layout = pack(parts)
    with temporary_folder(name) as folder:
        new = folder / "data"
        save_file({key: value.contiguous() for key, value in tensors.items()}, new, {"layout": json.dumps(layout)})
        manifest = folder / "manifest"
        manifest.write_text(json.dumps({"size": new.stat().st_size, "sha256": compute_sha256(new)}))
        manifest_path(name).unlink(missing_ok=True)
        replace_file(new, data_path(name))
        replace_file(manifest, manifest_path(name))


def pack(parts: Parts) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return a data set as tensors and the layout from which it is read again."""
    tensors: dict[str, Tensor] = {}
    layout: dict[str, Any] = {"classes": parts.classes, "splits": {}}
    if parts.table is not None:
        layout["table"] = asdict(parts.table)
    for part, split in parts.splits.items():
        layout["splits"][part] = {column: _pack(f"{part}/{column}", split[column], tensors) for column in split}
    return tensors, layout


def read(name: str) -> Parts:
    """Read a data set from the cache.

    FileNotFoundError if it is missing, CorruptedError if the checksum differs.
    """
    path, manifest = data_path(name), _read_manifest(name)
    if not path.exists() or path.stat().st_size != manifest["size"]:
        raise CorruptedError
    if manifest["size"] <= MAX_HASHED_BYTES and compute_sha256(path) != manifest["sha256"]:
        raise CorruptedError
    try:
        with safe_open(path, framework="pt") as file:
            layout = json.loads(file.metadata()["layout"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
        splits = {
            part: Split({column: _unpack(f"{part}/{column}", form, tensors) for column, form in columns.items()})
            for part, columns in layout["splits"].items()
        }
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise CorruptedError from error
    table = layout.get("table")
    options = TableOptions(**{**table, "ignore": tuple(table["ignore"])}) if table else None
    return Parts(splits, tuple(layout["classes"]), table=options)


def _read_manifest(name: str) -> dict[str, Any]:
    try:
        manifest = json.loads(manifest_path(name).read_text())
    except ValueError as error:
        raise CorruptedError from error
    if not isinstance(manifest, dict) or not {"size", "sha256"} <= manifest.keys():
        raise CorruptedError
    return manifest


def replace_file(new: Path, path: Path) -> None:
    """Flush a complete file to disk and move it to `path` atomically."""
    new.chmod(0o644)  # safetensors writes for the owner alone, and a cache may be shared
    with new.open("rb+") as stream:
        os.fsync(stream.fileno())
    new.replace(path)


def _pack(key: str, column: Any, tensors: dict[str, Tensor]) -> Any:
    """Add a column's tensors to `tensors`; return the layout that `_unpack` needs."""
    if isinstance(column, Tensor):
        tensors[key] = column
        return "tensor"
    if isinstance(column, Bitmaps):
        tensors[key] = column.bits[column.rows]
        return [column.height, column.width]
    if isinstance(column, Table):
        return {name: _pack(f"{key}/{name}", table_column(values), tensors) for name, values in column.columns.items()}
    strings = column if isinstance(column, Strings) else Strings.from_texts(column)
    tensors[key], tensors[f"{key}.offsets"] = strings.pack()
    return "strings"


def table_column(values: Array) -> Any:
    """Return a column of a table as a tensor of numbers, or as strings, empty where missing."""
    if is_words(values):
        return Strings.from_texts(["" if cell is None else cell for cell in values])
    return torch.from_numpy(values.astype(np.float64))


def array_column(values: Any) -> Array:
    """Invert `table_column`."""
    return values.numpy() if isinstance(values, Tensor) else np.array([cell or None for cell in values], dtype=object)


def _unpack(key: str, form: Any, tensors: Mapping[str, Tensor]) -> Any:
    if form == "tensor":
        return tensors[key]
    if form == "strings":
        return Strings.from_offsets(tensors[key], tensors[f"{key}.offsets"])
    if isinstance(form, dict):
        columns = {name: _unpack(f"{key}/{name}", inner, tensors) for name, inner in form.items()}
        return Table({name: array_column(values) for name, values in columns.items()})
    return Bitmaps(tensors[key], *form)
