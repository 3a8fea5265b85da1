"""Data frames (pandas, polars, pyarrow; through narwhals) as tables."""

import math
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from engram.core.errors import EngramError
from engram.data.arrays import LABELS
from engram.data.dataset import Parts, Split
from engram.data.table import Array, Table
from engram.data.table_splits import TableOptions, Task


def is_frame(value: Any) -> bool:
    """Whether narwhals knows a value as a data frame or as one column."""
    return bool(nw.dependencies.is_into_dataframe(value) or nw.dependencies.is_into_series(value))


def read_frame(frame: Any, *, target: str = "", ignore: tuple[str, ...] = (), task: Task = "auto") -> Parts:
    """Read a data frame, one sample per row; the default target is a column so named."""
    table = frame_to_table(frame)
    default = next((name for name in table.columns if name.lower() in LABELS), "")
    options = TableOptions(target=target or default, ignore=ignore, task=task)
    return Parts({"": Split({"table": table})}, table=options)


def frame_to_table(frame: Any) -> Table:
    """Convert a data frame, or a single column, to a table."""
    known = nw.from_native(frame, eager_only=True, allow_series=True)
    if isinstance(known, nw.Series):
        known = known.alias(known.name or "target").to_frame()
    if len(set(map(str, known.columns))) < len(known.columns):
        raise EngramError("The data frame has two columns of one name: rename one.")
    if not len(known):
        raise EngramError("The data frame has no rows.")
    return Table({str(name): series_to_array(known[name]) for name in known.columns})


def series_to_array(series: "nw.Series[Any]") -> Array:
    """Convert a column to float64 with NaN where missing, or to objects: words, and dates in ISO format."""
    if series.dtype.is_numeric() or series.dtype == nw.Boolean:
        return np.array([math.nan if value is None else float(value) for value in series.to_list()])
    if series.dtype.is_temporal():
        return np.array([None if is_null(value) else value.isoformat() for value in series.to_list()], dtype=object)
    cells = [None if is_null(value) or value == "" else value for value in series.to_list()]
    if all(cell is None or isinstance(cell, (int, float)) for cell in cells):
        return np.array([math.nan if cell is None else float(cell) for cell in cells])
    return np.array([None if cell is None else str(cell) for cell in cells], dtype=object)


def is_null(value: Any) -> bool:
    """Whether a value is missing: None, NaN or NaT."""
    return value is None or value != value
