"""Checks of data: no empty split, no NaN or infinity, the expected types, shapes and sizes."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.data.columns import Bitmaps
from engram.data.dataset import Info, Split


def describe(column: Any) -> str:
    """Return type and shape of one sample, as in `Info.columns`: "uint8 1×28×28", "int64", "str"."""
    if not isinstance(column, (Tensor, Bitmaps)):
        return "str"
    shape = "×".join(map(str, column.shape[1:]))
    return f"{str(column.dtype).removeprefix('torch.')} {shape}".strip()


def check_splits(name: str, splits: Mapping[str, Split]) -> None:
    """Refuse empty splits, NaN and infinity; `name` is the data set or file named in the error."""
    for part, split in splits.items():
        if len(split) == 0:
            raise EngramError(f'The split "{part}" of {name} is empty: more data are needed to make it.')
        for column in split:
            check_finite(f"{name} ({part})", column, split[column])


def check_finite(name: str, column: str, values: Any) -> None:
    """Refuse NaN and infinity; the error names the first row that has one, counted from 1."""
    if not isinstance(values, Tensor) or not values.is_floating_point() or bool(torch.isfinite(values).all()):
        return
    bad = ~torch.isfinite(values.reshape(len(values), -1))
    row, place = bad.nonzero()[0].tolist()
    found = values.reshape(len(values), -1)[row, place].item()
    raise EngramError(f'The column "{column}" of {name} has {found} in row {row + 1}: repair or remove that row.')


def check_known(info: Info, splits: Mapping[str, Split]) -> None:
    """Refuse a downloaded data set whose sizes, types or shapes differ from its description."""
    sizes = {part: len(split) for part, split in splits.items()}
    if sizes != dict(info.sizes):
        raise EngramError(f"What was downloaded as {info.name} has splits {sizes} instead of {dict(info.sizes)}.")
    for part, split in splits.items():
        columns = {column: describe(split[column]) for column in split}
        if columns != dict(info.columns):
            raise EngramError(
                f'What was downloaded as {info.name} has columns {columns} in "{part}" instead of {dict(info.columns)}.'
            )
