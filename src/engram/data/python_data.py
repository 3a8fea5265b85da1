"""Data given from Python: arrays, data frames, texts and Hugging Face data sets.

They are kept in the cache for resuming.

name = store(images)                   # uint8 or float array N × H × W, N × C × H × W or N × H × W × C
name = store((X, y))                   # rows and labels or regression targets
name = store(frame)                    # pandas, polars or pyarrow
name = store(["a text", "another"])    # texts; an iterator of texts or rows is read to its end
name = store((texts, classes))         # labeled texts

The name is made of the content, so the same data are stored once. `engram data list` does not show them.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from engram.core.errors import EngramError
from engram.data import cache
from engram.data.arrays import MAX_BYTES, find_pairs, make_parts
from engram.data.dataset import Data, Parts, Split
from engram.data.frames import is_frame, read_frame
from engram.data.registry import check_options
from engram.data.table import Table
from engram.data.table_splits import TableOptions
from engram.data.user_data import complete, split_texts

PREFIX = "python-"
DIGITS = 16
"""digits of a hash that follow the prefix"""
SOURCE = "data given from Python"
MIN_TEXT = 40
"""a string of at least so many characters that contains white space is a text; a shorter one is a name or a path"""


def is_text(value: str) -> bool:
    """Whether a string is a text to learn from, rather than the name of a data set or a path."""
    return "\n" in value or (len(value) >= MIN_TEXT and any(letter.isspace() for letter in value))


def describe_stored(sentence: str) -> str:
    """Return a sentence in which names of data given from Python are put into words."""
    words = re.sub(rf"\b{PREFIX}[0-9a-f]{{{DIGITS}}}\b", SOURCE, sentence)
    return words[0].upper() + words[1:] if words.startswith(SOURCE) else words


def is_stored(name: str) -> bool:
    """Whether a name is that of data given from Python."""
    return name.startswith(PREFIX)


def store(value: Any) -> str:
    """Put data given from Python into the cache; return the name under which `load` finds it."""
    parts = to_parts(value)
    tensors, layout = cache.pack(parts)
    digest = hashlib.sha256(json.dumps(layout).encode())
    for key in sorted(tensors):
        digest.update(key.encode() + tensors[key].contiguous().numpy().tobytes())
    name = PREFIX + digest.hexdigest()[:DIGITS]
    if not cache.is_cached(name):
        with cache.lock_entry(name, SOURCE):
            cache.write(name, parts)
    return name


def load_stored(name: str, **options: Any) -> Data:
    """Load data that `store` has put into the cache; the options are those of tables."""
    parts = read_stored(name)
    if parts.table is None:
        check_options(SOURCE, {}, options)
        kind = "text" if "text" in next(iter(parts.splits.values())) else "images"
        return complete(name, SOURCE, kind, parts)
    check_options(SOURCE, asdict(TableOptions()), options)
    return complete(name, SOURCE, "table", replace(parts, table=replace(parts.table, **options)))


def read_stored(name: str) -> Parts:
    """Return what `store` has put into the cache, as it was given."""
    try:
        return cache.read(name)
    except (FileNotFoundError, cache.CorruptedError):
        raise EngramError(f"The data {name}, given from Python, are no longer in {cache.cache_folder()}.") from None


def to_parts(value: Any) -> Parts:
    """Convert data given from Python to splits."""
    if isinstance(value, str):
        return from_texts([value])
    if is_frame(value):
        return read_frame(value)
    if hasattr(value, "column_names") and hasattr(value, "with_format"):
        return from_dataset(value)
    if isinstance(value, Mapping):
        return make_parts(SOURCE, find_pairs(SOURCE, {str(key): to_array(one) for key, one in value.items()}))
    if isinstance(value, Iterator):
        value = read_iterator(value)
    if isinstance(value, (list, tuple)) and value and all(isinstance(one, str) for one in value):
        return from_texts(value)
    if isinstance(value, tuple) and len(value) == 2:
        return from_xy(*value)
    array = to_array(value)
    if not array.ndim:
        raise unlearnable(value)
    return make_parts(SOURCE, {"": (array, None)})


def from_xy(x: Any, y: Any) -> Parts:
    """Convert inputs and labels: arrays, or a data frame or texts, which become a table."""
    if is_frame(x):
        table = read_frame(x).splits[""]["table"]
    elif are_texts(x):
        table = Table({"text": np.array(list(x), dtype=object)})
    else:
        return make_parts(SOURCE, {"": (to_array(x), to_array(y))})
    target = to_array(y).ravel()
    if len(target) != len(table):
        raise EngramError(f"{SOURCE.capitalize()} has {len(table)} samples but {len(target)} labels.")
    column = target.astype(np.float64) if target.dtype.kind in "biuf" else target.astype(str).astype(object)
    table = Table({**table.columns, "target": column})
    return Parts({"": Split({"table": table})}, table=TableOptions(target="target"))


def are_texts(x: Any) -> bool:
    """Whether inputs are a list, a tuple or an array of strings."""
    flat = isinstance(x, (list, tuple)) or (isinstance(x, np.ndarray) and x.ndim == 1)
    return flat and len(x) > 0 and all(isinstance(one, str) for one in x)


def from_texts(texts: Sequence[str]) -> Parts:
    """Convert texts to splits."""
    if sum(map(len, texts)) < 10:
        raise EngramError("The text has fewer than 10 characters: too few to train on.")
    return split_texts(texts)


def from_dataset(dataset: Any) -> Parts:
    """Convert a Hugging Face data set: a column of texts or of images with a label, or a table."""
    names = list(dataset.column_names)
    if "image" in names:
        images = np.stack([np.asarray(image.convert("RGB")) for image in dataset["image"]])
        label = next((name for name in ("label", "labels") if name in names), None)
        return make_parts(SOURCE, {"": (images, None if label is None else np.asarray(dataset[label]))})
    if "text" in names and len(names) == 1:
        return from_texts(list(dataset["text"]))
    return read_frame(dataset.with_format("arrow")[:])


def read_iterator(values: Iterator[Any]) -> list[Any]:
    """Read an iterator to its end; refuse more than can be kept in memory."""
    found, size = [], 0
    for value in values:
        pieces = value if isinstance(value, tuple) else (value,)
        size += sum(len(one) if isinstance(one, str) else to_array(one).nbytes for one in pieces)
        if size > MAX_BYTES:
            raise EngramError(f"The iterator gives more than {MAX_BYTES >> 30} GB: write a file and give its path.")
        found.append(value)
    if not found:
        raise EngramError("The iterator gives nothing to learn from.")
    pairs = isinstance(found[0], tuple) and len(found[0]) == 2
    if pairs:
        return tuple(map(np.asarray, zip(*found, strict=True)))  # type: ignore[return-value]
    return found


def to_array(value: Any) -> npt.NDArray[Any]:
    """Convert to a NumPy array of numbers or words."""
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    if is_frame(value):
        value = value.to_numpy()
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.empty(0, dtype=object)
    if array.dtype.kind == "O" and array.size and all(isinstance(one, str) for one in itertools.islice(array.flat, 9)):
        array = array.astype(str)
    if array.dtype.kind not in "biufU":
        raise unlearnable(value)
    return array


def unlearnable(value: Any) -> EngramError:
    """Return the error for data of a type from which nothing can be learned."""
    kind = type(value).__name__
    return EngramError(
        f"Data of type {kind} cannot be learned from: give an array, (X, y), a data frame, a text or texts."
    )
