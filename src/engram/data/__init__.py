"""Data sets: generated, downloaded into a cache, or user data read from files.

data = load("mnist")
data.train["image"]          # uint8 55000 × 1 × 28 × 28
load("points", shape="moons", seed=1)
load("my/images")            # a folder of class folders, or a .csv, .npz, .npy or .txt file
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from engram.core.errors import EngramError
from engram.data import (  # noqa: F401
    cache,
    emoji,
    fetch,
    images,
    patterns,
    points,
    sequences,
    shapes,
    small_tables,
    spikes,
    text,
    word_similarity,
)
from engram.data.augment import Augment
from engram.data.checks import check_splits, describe
from engram.data.columns import Bitmaps, Strings
from engram.data.dataset import Data, Info, Split
from engram.data.python_data import is_stored, load_stored
from engram.data.registry import ENTRIES, check_options, get_entry
from engram.data.user_data import READERS, exists, load_user_data

__all__ = [
    "Augment",
    "Bitmaps",
    "Data",
    "Info",
    "Split",
    "Strings",
    "absolute",
    "download",
    "get_info",
    "is_cached",
    "list_names",
    "load",
]


def load(name: str | Path, **options: Any) -> Data:
    """Load a data set by its name, downloading it first if needed, or user data by its path."""
    if is_stored(str(name)):
        return load_stored(str(name), **options)
    if _is_path(name):
        return load_user_data(Path(name), **options)
    known = get_entry(str(name))
    check_options(f"the data set {name}", known.options(), options)
    if known.generate:
        parts = known.generate(**options)
        check_splits(known.info.name, parts.splits)
    else:
        parts = fetch.fetch_dataset(known)
        parts = known.arrange(parts, **options) if known.arrange else parts
    first = next(iter(parts.splits.values()))
    actual = replace(
        known.info,
        columns={column: describe(first[column]) for column in first},
        sizes={part: len(split) for part, split in parts.splits.items()},
    )
    return Data(actual, parts.splits, parts.classes, parts.encoder)


def list_names() -> list[str]:
    """Return the names of all known data sets."""
    return sorted(ENTRIES)


def get_info(name: str) -> Info:
    """Return the description of a data set without loading it."""
    return get_entry(name).info


def is_cached(name: str) -> bool:
    """Whether a data set loads without a network: generated, or in the cache."""
    return not get_entry(name).sources or cache.is_cached(name)


def download(name: str, from_file: Path | None = None) -> Path:
    """Put a data set into the cache, from an archive that the user has or from its sources.

    Return its path.
    """
    known = get_entry(name)
    if not known.sources:
        raise EngramError(f"The data set {name} is generated when it is loaded: there is nothing to download.")
    fetch.fetch_dataset(known, from_file)
    return cache.data_path(name)


def absolute(name: str) -> str:
    """Return the absolute path of user data; the name of a data set stays as it is."""
    return str(Path(name).resolve()) if _is_path(name) else name


def _is_path(name: str | Path) -> bool:
    """Whether user data is meant.

    The name of a data set wins over a file of that name (write ./mnist for the file).
    """
    if isinstance(name, Path):
        return True
    if name in ENTRIES or name.startswith("hf:") or is_stored(name):
        return False
    return any(slash in name for slash in "/\\") or Path(name).suffix.lower() in READERS or exists(Path(name))
