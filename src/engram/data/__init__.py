"""Data: sets that are generated, sets that are obtained from packages and kept in a cache, and one's own files.

data = load("mnist")
data.train["image"]          # uint8 55000 × 1 × 28 × 28
load("points", shape="moons", seed=1)
load("my/pictures")          # a folder of class folders, or a .csv, .npz, .npy or .txt file
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from engram.core.errors import EngramError
from engram.data import (  # noqa: F401 (a module of sets enters them in the catalogue)
    cache,
    emoji,
    fetch,
    images,
    patterns,
    points,
    sequences,
    shapes,
    spikes,
    text,
    words,
)
from engram.data.augment import Augment
from engram.data.catalogue import ENTRIES, check_options, entry
from engram.data.checks import check_splits, describe
from engram.data.columns import Bitmaps, Strings
from engram.data.dataset import Data, Info, Split
from engram.data.own import READERS, exists, load_own

__all__ = [
    "Augment",
    "Bitmaps",
    "Data",
    "Info",
    "Split",
    "Strings",
    "absolute",
    "cached",
    "get",
    "info",
    "load",
    "names",
]


def load(name: str | Path, **options: Any) -> Data:
    """A data set by its name, obtained first if need be, or one's own file or folder by its path."""
    if _is_path(name):
        return load_own(Path(name), **options)
    known = entry(str(name))
    check_options(f"the data set {name}", known.options(), options)
    if known.generate:
        parts = known.generate(**options)
        check_splits(known.info.name, parts.splits)
    else:
        parts = fetch.obtain(known)
        parts = known.arrange(parts, **options) if known.arrange else parts
    first = next(iter(parts.splits.values()))
    actual = replace(
        known.info,
        columns={column: describe(first[column]) for column in first},
        sizes={part: len(split) for part, split in parts.splits.items()},
    )
    return Data(actual, parts.splits, parts.classes)


def names() -> list[str]:
    """Every known data set."""
    return sorted(ENTRIES)


def info(name: str) -> Info:
    """What is known of a data set without loading it."""
    return entry(name).info


def cached(name: str) -> bool:
    """Whether a data set can be had without a network: generated, or in the cache."""
    return not entry(name).sources or cache.cached(name)


def get(name: str, from_file: Path | None = None) -> Path:
    """Obtain a data set into the cache, from a file that the user has or else from its sources; where it lies."""
    known = entry(name)
    if not known.sources:
        raise EngramError(f"The data set {name} is generated when it is loaded: there is nothing to obtain.")
    fetch.obtain(known, from_file)
    return cache.path_of(name)


def absolute(name: str) -> str:
    """A path as it is found from anywhere, a name as it is."""
    return str(Path(name).resolve()) if _is_path(name) else name


def _is_path(name: str | Path) -> bool:
    """A name that is known wins over a file that happens to be called the same; write ./mnist for the file."""
    if isinstance(name, Path):
        return True
    if name in ENTRIES or name.startswith("hf:"):
        return False
    return any(slash in name for slash in "/\\") or Path(name).suffix.lower() in READERS or exists(Path(name))
