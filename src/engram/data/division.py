"""How a set without splits of its own is divided: at random, but the same for everyone, forever."""

import numpy as np
import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.data.columns import Bitmaps
from engram.data.dataset import Split


def shuffled(count: int) -> Tensor:
    """A fixed random order; NumPy promises the stream of this generator across versions, torch does not."""
    keys = np.random.PCG64(0).random_raw(count)
    return torch.from_numpy(np.argsort(keys, kind="stable"))


def divided(split: Split, **sizes: int) -> dict[str, Split]:
    """Cut a split into parts of the given sizes; within a part the items keep their order."""
    pieces = torch.split(shuffled(len(split)), list(sizes.values()))
    return {name: _view(split, piece.sort().values) for name, piece in zip(sizes, pieces, strict=True)}


def _view(split: Split, rows: Tensor) -> Split:
    bitmaps = {name: column.view(rows) for name in split if isinstance(column := split[name], Bitmaps)}
    rest = Split({name: split[name] for name in split if name not in bitmaps})
    return Split({**bitmaps, **rest.take(rows).columns})


def cut(text: str) -> tuple[str, str]:
    """The first nine tenths of a text to learn from, and the rest to be examined on."""
    place = int(len(text) * 0.9)
    return text[:place], text[place:]


def counts(train: int) -> dict[str, int]:
    """The sizes of the splits of a generated set with `train` items to learn from."""
    if not isinstance(train, int) or train < 1:
        raise EngramError(f"count is a whole number of items from 1, not {train}.")
    tenth = max(1, train // 10)
    return {"train": train, "valid": tenth, "test": tenth}
