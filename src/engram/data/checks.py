"""What is looked at before any data is trusted: that there is some, of the expected kind, and no NaN in it."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.data.columns import Bitmaps
from engram.data.dataset import Info, Split


def describe(column: Any) -> str:
    """Type and shape of one item, as `Info.columns` writes it: «uint8 1×28×28», «int64», «str»."""
    if not isinstance(column, (Tensor, Bitmaps)):
        return "str"
    shape = "×".join(map(str, column.shape[1:]))
    return f"{str(column.dtype).removeprefix('torch.')} {shape}".strip()


def check_splits(name: str, splits: Mapping[str, Split]) -> None:
    """Refuse empty splits, and floats that are not numbers; `name` is the data set or file to blame."""
    for part, split in splits.items():
        if len(split) == 0:
            raise EngramError(f"The split «{part}» of {name} is empty: more data are needed to make it.")
        for column in split:
            check_finite(f"{name} ({part})", column, split[column])


def check_finite(name: str, column: str, values: Any) -> None:
    """Refuse NaN and infinity, and say in which row the first one is."""
    if not isinstance(values, Tensor) or not values.is_floating_point() or bool(torch.isfinite(values).all()):
        return
    bad = ~torch.isfinite(values.reshape(len(values), -1))
    row, place = bad.nonzero()[0].tolist()
    found = values.reshape(len(values), -1)[row, place].item()
    raise EngramError(
        f"The column «{column}» of {name} has {found} in row {row} (counted from 0): repair or remove that row."
    )


def check_known(info: Info, splits: Mapping[str, Split]) -> None:
    """Refuse a set that is not what its entry promises: the wrong sizes, types or shapes."""
    sizes = {part: len(split) for part, split in splits.items()}
    if sizes != dict(info.sizes):
        raise EngramError(f"What was obtained as {info.name} has splits {sizes} instead of {dict(info.sizes)}.")
    for part, split in splits.items():
        columns = {column: describe(split[column]) for column in split}
        if columns != dict(info.columns):
            raise EngramError(
                f"What was obtained as {info.name} has columns {columns} in «{part}» instead of {dict(info.columns)}."
            )
