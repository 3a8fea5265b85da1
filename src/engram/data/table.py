"""Tables: typed columns, and their encoding as rows of numbers for a network.

    encoder = TableEncoder.fit(table)              # learns medians, categories and kinds from the training rows
    point_NF = encoder.encode(table)               # float32: one row per sample, `encoder.names` names its columns
    encoder.decode(point_NF)                       # back to values of the table's columns

A column is numeric, categorical or a date. A missing number is imputed with the median, and a second column indicates
it if any was missing in training. A category becomes a one-hot vector; one that was not seen in training is all zeros.
A date becomes year, month, day of the month, day of the week and hour. Standardization is the model's part.
"""

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt
from torch import Tensor

from engram.core.errors import EngramError, unknown

Array = npt.NDArray[Any]
Kind = Literal["number", "category", "date"]
MISSING = frozenset(("", "?", "na", "n/a", "nan", "null", "none", "nil", "-", "#n/a", "<na>"))
"""cells that stand for a missing value, in lower case"""
MAX_LEVELS = 100
"""categories of a column that get a one-hot column of their own: the most frequent ones"""
DATE_PARTS = ("year", "month", "day", "weekday", "hour")


class Table:
    """Columns by name: float64 with NaN for missing numbers, or objects (str, None if missing) for words."""

    def __init__(self, columns: Mapping[str, Array]) -> None:
        self.columns = dict(columns)
        self.size = len(next(iter(self.columns.values()))) if self.columns else 0

    @classmethod
    def from_cells(cls, names: Sequence[str], columns: Iterable[Sequence[str]]) -> "Table":
        """Parse columns of text: numbers if all cells that are not missing are numbers, otherwise words."""
        return cls({name: parse_cells(cells) for name, cells in zip(names, columns, strict=True)})

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: str) -> Array: ...
    @overload
    def __getitem__(self, index: Tensor | slice) -> "Table": ...
    def __getitem__(self, index: "str | Tensor | slice") -> "Array | Table":
        """Return a column by its name, or the rows at an index."""
        if isinstance(index, str):
            if index not in self.columns:
                raise unknown("column", index, self.columns)
            return self.columns[index]
        rows = index.numpy() if isinstance(index, Tensor) else index
        return Table({name: column[rows] for name, column in self.columns.items()})

    def drop(self, *names: str) -> "Table":
        """Return the table without some columns."""
        return Table({name: column for name, column in self.columns.items() if name not in names})


def parse_cells(cells: Sequence[str]) -> Array:
    """Parse one column of text as float64 numbers, or as objects if some cell is a word."""
    known = [None if cell.strip().lower() in MISSING else cell.strip() for cell in cells]
    try:
        numbers = np.array([math.nan if cell is None else float(cell) for cell in known])
    except ValueError:
        return np.array(known, dtype=object)
    return numbers


def is_words(column: Array) -> bool:
    """Whether a column holds words rather than numbers."""
    return column.dtype.kind == "O"


def parse_dates(column: Array) -> Array | None:
    """Parse ISO dates and times as seconds since 1970 (UTC), NaN where missing; None if a cell is no date."""
    found = np.full(len(column), math.nan)
    for i, cell in enumerate(column):
        if cell is None:
            continue
        try:
            moment = datetime.fromisoformat(cell)
        except ValueError:
            return None
        found[i] = moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    return found


@dataclass(frozen=True, kw_only=True)
class Feature:
    """How one column of a table is encoded, as learned from the training rows."""

    name: str
    kind: Kind
    fill_value: float = 0.0
    """number or time in place of a missing one: the median"""
    indicator: bool = False
    """whether a column indicates missing values"""
    levels: tuple[str, ...] = ()
    """categories, the most frequent first"""
    integer: bool = False
    """whether all numbers are integers"""

    @classmethod
    def fit(cls, name: str, column: Array) -> "Feature | None":
        """Learn how to encode a column; None if it holds nothing, or another word in every row."""
        if not is_words(column):
            known = column[np.isfinite(column)]
            if np.isinf(column).any():
                raise EngramError(f'The column "{name}" has an infinite number: repair or remove that row.')
            if not len(known):
                return None
            integer = bool((known == np.rint(known)).all())
            return cls(name=name, kind="number", fill_value=float(np.median(known)), indicator=len(known) < len(column),
                       integer=integer)  # fmt: skip
        missing = any(cell is None for cell in column)
        if all(cell is None for cell in column):
            return None
        if (seconds := parse_dates(column)) is not None:
            return cls(name=name, kind="date", fill_value=float(np.nanmedian(seconds)), indicator=missing)
        counts = Counter(cell for cell in column if cell is not None)
        if len(counts) == len(column) > 20:
            return None
        ranked = sorted(counts, key=lambda level: (-counts[level], level))
        return cls(name=name, kind="category", indicator=missing, levels=tuple(ranked[:MAX_LEVELS]))

    @property
    def names(self) -> list[str]:
        """Names of the encoded columns."""
        parts = {
            "number": [self.name],
            "category": [f"{self.name}={level}" for level in self.levels],
            "date": [f"{self.name}.{part}" for part in DATE_PARTS],
        }[self.kind]
        return [*parts, *([f"{self.name} is missing"] if self.indicator else [])]

    def encode(self, column: Array) -> Array:
        """Return the encoded columns, N × `len(names)`."""
        if self.kind == "category":
            cells = [None if cell is None else str(cell) for cell in column] if is_words(column) else as_words(column)
            place = {level: i for i, level in enumerate(self.levels)}
            x_NF = np.zeros((len(column), len(self.levels)))
            rows = [(row, place[cell]) for row, cell in enumerate(cells) if cell in place]
            if rows:
                x_NF[tuple(np.array(rows).T)] = 1
            missing = np.array([cell is None for cell in cells], dtype=bool)
        else:
            values = self._numbers(column)
            missing = np.isnan(values)
            values = np.where(missing, self.fill_value, values)
            x_NF = values[:, None] if self.kind == "number" else date_parts(values)
        return np.column_stack([x_NF, missing]) if self.indicator else x_NF

    def _numbers(self, column: Array) -> Array:
        if self.kind == "number":
            if is_words(column):
                word = next(cell for cell in column if cell is not None and not is_number(cell))
                raise EngramError(f'The column "{self.name}" has "{word}", where a number should be.')
            if np.isinf(column).any():
                raise EngramError(f'The column "{self.name}" has an infinite number: repair or remove that row.')
            return column
        dates = parse_dates(column) if is_words(column) else (column if np.isnan(column).all() else None)
        if dates is None:
            raise EngramError(f'The column "{self.name}" has a value that is no date such as 2026-01-31.')
        return dates

    def decode(self, x_NF: Array) -> list[Any]:
        """Return values of the column: the nearest integer, the most likely category, an ISO date.

        None if missing.
        """
        values: list[Any]
        if self.kind == "category":
            values = [self.levels[i] for i in x_NF[:, : len(self.levels)].argmax(1)]
        elif self.kind == "date":
            values = [decode_date(row) for row in x_NF[:, : len(DATE_PARTS)]]
        else:
            values = [round(value) if self.integer else value for value in x_NF[:, 0].tolist()]
        missing = x_NF[:, -1] > 0.5 if self.indicator else np.zeros(len(x_NF), bool)
        return [None if absent else value for value, absent in zip(values, missing, strict=True)]

    def describe(self, column: Array) -> str:
        """Describe missing values and rare categories of the training rows; an empty string if there are none."""
        missing = int(sum(cell is None for cell in column) if is_words(column) else np.isnan(column).sum())
        text = f'column "{self.name}": '
        if missing and self.kind == "category":
            return f"{text}{missing} of {len(column)} values are missing, marked by an indicator column"
        if missing:
            how = f"the median {self.fill_value:g}" if self.kind == "number" else "the median date"
            return f"{text}{missing} of {len(column)} values are missing, imputed with {how} beside an indicator column"
        if self.kind == "category" and len(self.levels) == MAX_LEVELS:
            return f"{text}only the {MAX_LEVELS} most frequent categories have a column of their own"
        return ""


def is_number(cell: str) -> bool:
    """Whether a text is a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def as_words(column: Array) -> list[str | None]:
    """Return numbers as words, integers without a decimal point, None where missing."""
    return [None if math.isnan(value) else f"{value:g}" for value in column.tolist()]


def date_parts(seconds: Array) -> Array:
    """Return year, month, day, weekday (Monday is 0) and hour of times in seconds, N × 5."""
    moments = [datetime.fromtimestamp(value, UTC) for value in seconds.tolist()]
    return np.array([(m.year, m.month, m.day, m.weekday(), m.hour) for m in moments], dtype=float).reshape(-1, 5)


def decode_date(row: Array) -> str:
    """Return the date nearest to encoded parts, in ISO format."""
    year, month, day, _, hour = (round(value) for value in row.tolist())
    year, month = min(max(year, 1), 9999), min(max(month, 1), 12)
    last = [31, 29 if year % 4 == 0 and (year % 100 or year % 400 == 0) else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
    moment = datetime(year, month, min(max(day, 1), last[month - 1]), min(max(hour, 0), 23))
    return moment.isoformat() if hour > 0 else moment.date().isoformat()


@dataclass(frozen=True)
class TableEncoder:
    """Encodes the rows of a table as numbers; fitted on the training rows alone."""

    features: tuple[Feature, ...]
    notes: tuple[str, ...] = ()
    """sentences about missing values and columns that are left out"""
    center: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    """what is subtracted from each encoded column, and what it is then divided by, if rows are rescaled"""

    @classmethod
    def fit(cls, table: Table) -> "TableEncoder":
        """Learn the encoding of every column."""
        features, notes = [], []
        for name, column in table.columns.items():
            feature = Feature.fit(name, column)
            if feature is None:
                what = "has another word in every row" if is_words(column) and any(column) else "holds no values"
                notes.append(f'column "{name}" {what}: it is left out')
            else:
                features.append(feature)
                notes += filter(None, [feature.describe(column)])
        if not features:
            raise EngramError("The table has no column to learn from beside the target.")
        return cls(tuple(features), tuple(notes))

    @property
    def names(self) -> list[str]:
        """Names of the encoded columns."""
        return [name for feature in self.features for name in feature.names]

    def standardized(self, point_NF: Array) -> "TableEncoder":
        """Return an encoder that also standardizes, by the encoded training rows."""
        mean_F, std_F = point_NF.mean(0, dtype=np.float64), point_NF.std(0, dtype=np.float64)
        return self._rescaled(mean_F, std_F)

    def normalized(self, point_NF: Array) -> "TableEncoder":
        """Return an encoder that also maps each column to values from 0 to 1, by the encoded training rows."""
        low_F, high_F = point_NF.min(0).astype(np.float64), point_NF.max(0).astype(np.float64)
        return self._rescaled(low_F, high_F - low_F)

    def shifted(self, point_NF: Array) -> "TableEncoder":
        """Return an encoder that also standardizes all columns alike, as one sequence, by the training rows."""
        one_F = np.ones(point_NF.shape[1])
        return self._rescaled(point_NF.mean(dtype=np.float64) * one_F, point_NF.std(dtype=np.float64) * one_F)

    def _rescaled(self, center_F: Array, scale_F: Array) -> "TableEncoder":
        scale_F = np.where(scale_F > 1e-9 * np.abs(center_F).clip(1), scale_F, 1.0)
        return replace(self, center=tuple(center_F.tolist()), scale=tuple(scale_F.tolist()))

    def rescale(self, point_NF: Array) -> Array:
        """Subtract the center of each column and divide by its scale."""
        return ((point_NF - np.array(self.center)) / np.array(self.scale)).astype(np.float32)

    def encode(self, table: Table) -> Array:
        """Return rows of numbers, float32 N × F; the table may have more columns, in any order."""
        lacking = [feature.name for feature in self.features if feature.name not in table.columns]
        if lacking:
            raise EngramError(
                f"The table lacks the column {lacking[0]!r}: it needs {', '.join(f.name for f in self.features)}."
            )
        parts = [feature.encode(table[feature.name]) for feature in self.features]
        with np.errstate(over="ignore"):
            point_NF = np.concatenate(parts, axis=1).astype(np.float32)
        if not np.isfinite(point_NF).all():
            raise EngramError("The table has a number that is too large for 32 bits: scale its column.")
        return self.rescale(point_NF) if self.center else point_NF

    def decode(self, point_NF: Array) -> dict[str, list[Any]]:
        """Return encoded rows as values of the table's columns."""
        point_NF = np.asarray(point_NF, dtype=np.float64)
        if self.center:
            point_NF = point_NF * np.array(self.scale) + np.array(self.center)
        sizes = [len(feature.names) for feature in self.features]
        parts = np.split(point_NF, np.cumsum(sizes)[:-1], axis=1)
        return {feature.name: feature.decode(part) for feature, part in zip(self.features, parts, strict=True)}

    def decode_rows(self, point_NF: Array) -> list[dict[str, Any]]:
        """Return encoded rows as values by column."""
        columns = self.decode(point_NF)
        return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

    def to_csv(self, point_NF: Array) -> str:
        """Return encoded rows as CSV text with the names of the table's columns."""
        columns = self.decode(point_NF)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
        return text.getvalue().rstrip("\n")

    def to_json(self) -> dict[str, Any]:
        """Return the encoder as JSON keeps it."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "TableEncoder":
        """Restore an encoder from JSON."""
        features = [Feature(**{**one, "levels": tuple(one["levels"])}) for one in values["features"]]
        return cls(tuple(features), *(tuple(values[name]) for name in ("notes", "center", "scale")))
