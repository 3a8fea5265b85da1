"""Random splits of data sets that come without any, the same on every machine."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.data.columns import Bitmaps
from engram.data.dataset import Split

USER_SEED = int.from_bytes(b"engram", "big")
"""seed of the splits of user data: rows that `np.random.default_rng(0)` has made would follow the stream of seed 0"""


def fixed_permutation(count: int, seed: int = 0) -> Tensor:
    """Return a permutation that never changes.

    NumPy guarantees this stream across versions, torch does not.
    """
    keys = np.random.PCG64(seed).random_raw(count)
    return torch.from_numpy(np.argsort(keys, kind="stable"))


def random_split(split: Split, **sizes: int) -> dict[str, Split]:
    """Split at random into parts of the given sizes; within a part the samples keep their order."""
    return split_by(fixed_permutation(len(split)), split, sizes)


def split_user_data(split: Split, **sizes: int) -> dict[str, Split]:
    """Split user data at random into parts of the given sizes; within a part the samples keep their order."""
    return split_by(fixed_permutation(len(split), USER_SEED), split, sizes)


def split_by(order: Tensor, split: Split, sizes: Mapping[str, int]) -> dict[str, Split]:
    """Split into parts of the given sizes by a permutation."""
    parts = torch.split(order, list(sizes.values()))
    return {name: _view(split, part.sort().values) for name, part in zip(sizes, parts, strict=True)}


def _view(split: Split, rows: Tensor) -> Split:
    bitmaps = {name: column.view(rows) for name in split if isinstance(column := split[name], Bitmaps)}
    rest = Split({name: split[name] for name in split if name not in bitmaps})
    return Split({**bitmaps, **rest.select(rows).columns})


def split_text(text: str) -> tuple[str, str]:
    """Return the first 90 % of a text for training and the rest for validation."""
    place = int(len(text) * 0.9)
    return text[:place], text[place:]


def split_sizes(train: int) -> dict[str, int]:
    """Return the sizes of the splits of a generated data set with `train` training samples."""
    if not isinstance(train, int) or train < 1:
        raise EngramError(f"count is a whole number of samples from 1, not {train}.")
    tenth = max(1, train // 10)
    return {"train": train, "valid": tenth, "test": tenth}
