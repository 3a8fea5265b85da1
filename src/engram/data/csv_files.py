"""CSV and Parquet files of the user: tables, or images in a CSV file whose columns are pixels."""

import csv
import math
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from engram.core.errors import EngramError
from engram.data.arrays import LABELS, MAX_BYTES, make_parts, square_side
from engram.data.dataset import Parts, Split
from engram.data.table import MISSING, Table, is_number
from engram.data.table_splits import TableOptions, Task

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Layout:
    """Format of a CSV file."""

    path: Path
    delimiter: str
    """what stands between cells; a space means any number of spaces"""
    names: list[str]
    header: bool
    """whether the first row is not one of data"""

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield (line number, cells) of each row; an error if a row has too few or too many cells."""
        with self.path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream, delimiter=self.delimiter, skipinitialspace=self.delimiter == " ")
            for row in islice(filter(None, reader), int(self.header), None):
                if len(row) != len(self.names):
                    raise EngramError(
                        f"Line {reader.line_num} of {self.path} has {len(row)} columns where the first line has "
                        f"{len(self.names)}."
                    )
                yield reader.line_num, [cell.strip() for cell in row]

    def columns(self) -> list[list[str]]:
        """Return the cells of each column."""
        rows = [row for _, row in self.rows()]
        if not rows:
            raise EngramError(f"{self.path} has no rows of data.")
        return [list(column) for column in zip(*rows, strict=True)]


def read_csv(path: Path, *, target: str = "", ignore: tuple[str, ...] = (), task: Task = "auto") -> Parts:
    """Read one sample per row.

    The default target is a column so named, or the last one if it has integers or words.
    """
    with explain_csv_errors(path):
        layout = detect_layout(path)
        plain = not (target or ignore or task != "auto")
        if plain and (pixels := read_pixels(layout)) is not None:
            return pixels
        columns = layout.columns()
        default = None if target else find_target(layout, columns)
        options = TableOptions(
            target=target or ("" if default is None else layout.names[default]), ignore=ignore, task=task
        )
        return Parts({"": Split({"table": Table.from_cells(layout.names, columns)})}, table=options)


@contextmanager
def explain_csv_errors(path: Path) -> Iterator[None]:
    """Refuse a file that is too large or not CSV."""
    if path.stat().st_size > MAX_BYTES:
        raise EngramError(f"{path} is larger than the {MAX_BYTES >> 30} GB that are read at once: save it as .npz.")
    try:
        yield
    except UnicodeDecodeError as error:
        raise EngramError(f"{path} is not a CSV file in UTF-8: it has another kind of data.") from error
    except csv.Error as error:
        raise EngramError(f"{path} is not a CSV file: {error}.") from error


def detect_layout(path: Path) -> Layout:
    """Detect delimiter and header: a first row that names a label, or in which no cell is a number."""
    with path.open(newline="", encoding="utf-8-sig") as stream:
        lines = list(islice((line for line in stream if line.strip()), 2))
    if not lines:
        raise EngramError(f"{path} is empty.")
    delimiter = detect_delimiter(lines)
    first, second = (
        [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter, skipinitialspace=delimiter == " "))]
        for line in (lines[0], lines[-1])
    )
    if has_counts(first, second):
        return Layout(path, delimiter, [*map(str, range(len(second) - 1)), "target"], header=True)
    header = any(cell.lower() in LABELS for cell in first) or not any(map(is_number, first))
    return Layout(path, delimiter, unique_names(first) if header else [str(i) for i in range(len(first))], header)


def detect_delimiter(lines: list[str]) -> str:
    """Return the most frequent of comma, semicolon and tab; spaces if none, and rows are numbers."""
    delimiter = max(",;\t", key=lines[0].count)
    if delimiter not in lines[0]:
        cells = lines[-1].split()
        if len(cells) == len(lines[0].split()) > 1 and all(map(is_number, cells)):
            return " "
    return delimiter


def has_counts(first: list[str], second: list[str]) -> bool:
    """Whether the first row is scikit-learn's: numbers of rows and inputs, and names of classes."""
    return (
        len(first) > 2
        and all(cell.isdecimal() for cell in first[:2])
        and int(first[1]) == len(second) - 1
        and not any(map(is_number, first[2:]))
        and all(map(is_number, second))
    )


def unique_names(names: list[str]) -> list[str]:
    """Return names of columns that differ: a repeated one gets a number, an empty one is its place."""
    seen: Counter[str] = Counter()
    found = []
    for i, name in enumerate(names):
        name = name or f"column {i + 1}"
        found.append(f"{name}.{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


def find_target(layout: Layout, columns: list[list[str]]) -> int | None:
    """Return the index of the default target: a column so named, else the last unless it has fractions."""
    for i, name in enumerate(layout.names):
        if layout.header and name.lower() in LABELS:
            return i
    last = len(layout.names) - 1
    return None if last == 0 or is_continuous(columns[last]) else last


def is_continuous(cells: list[str]) -> bool:
    """Whether all known cells are numbers and some are not integers."""
    known = [cell for cell in cells if cell.lower() not in MISSING]
    return all(map(is_number, known)) and any(not float(cell).is_integer() for cell in known)


def read_table(path: Path) -> Table:
    """Read all columns of a CSV or Parquet file."""
    if path.suffix.lower() == ".parquet":
        table: Table = read_parquet(path).splits[""]["table"]
        return table
    with explain_csv_errors(path):
        layout = detect_layout(path)
        return Table.from_cells(layout.names, layout.columns())


# ---------------------------------------------------------------------- pixels


def read_pixels(layout: Layout) -> Parts | None:
    """Read a file whose columns are the pixels of square images, perhaps with a label.

    None if it is no such file.
    """
    label = find_label(layout)
    inputs = [i for i in range(len(layout.names)) if i != label]
    named = layout.header and not all(layout.names[i][-1:].isdigit() for i in inputs)
    if not square_side(len(inputs)) or named:
        return None
    x = load_numbers(layout, inputs)
    if x is None or not np.isfinite(x).all() or (x != np.rint(x)).any() or x.min() < 0 or x.max() > 255:
        return None
    y = None if label is None else np.array([row[label] for _, row in layout.rows()])
    return make_parts(str(layout.path), {"": (x, y)})


def read_pixel_rows(path: Path, count: int) -> Array:
    """Read rows of `count` pixels from 0 to 255 as uint8; a label beside them is left out."""
    with explain_csv_errors(path):
        layout = detect_layout(path)
        label = find_label(layout) if len(layout.names) > count else None
        inputs = [i for i in range(len(layout.names)) if i != label]
        if len(inputs) != count:
            raise EngramError(f"{path} has {len(inputs)} columns, and the model takes images of {count} pixels.")
        x = load_numbers(layout, inputs)
        if x is None:
            report_cell(layout)
        if not np.isfinite(x).all() or (x != np.rint(x)).any() or x.min() < 0 or x.max() > 255:
            raise EngramError(f"{path} has a cell that is no pixel: they are whole numbers from 0 to 255.")
        return x.astype(np.uint8)


def find_label(layout: Layout) -> int | None:
    """Return the index of the label beside pixels: by name, else the first or the last column."""
    for i, name in enumerate(layout.names):
        if layout.header and name.lower() in LABELS:
            return i
    last = len(layout.names) - 1
    if square_side(last + 1) or not square_side(last):
        return None
    corner_pixel = len({row[last] for _, row in layout.rows()}) == 1
    return 0 if corner_pixel else last


def load_numbers(layout: Layout, columns: list[int]) -> Array | None:
    """Load columns of numbers; None if some cell is not a number."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a file without rows, which is refused as an empty array
            x = np.loadtxt(
                layout.path, delimiter=layout.delimiter.strip(" ") or None, skiprows=int(layout.header), ndmin=2,
                usecols=None if len(columns) == len(layout.names) else columns,
                comments=None, quotechar='"', encoding="utf-8-sig",
            )  # fmt: skip
    except ValueError:
        return None
    return x if len(x) else None


def read_numbers(path: Path) -> Array:
    """Read all numbers of a CSV file as one array."""
    with explain_csv_errors(path):
        layout = detect_layout(path)
        x = load_numbers(layout, list(range(len(layout.names))))
        return x if x is not None and np.isfinite(x).all() else report_cell(layout)


def report_cell(layout: Layout) -> NoReturn:
    """Raise an error that names the first cell that is not a finite number."""
    layout.columns()
    for line, row in layout.rows():
        for name, cell in zip(layout.names, row, strict=True):
            if not is_number(cell) or not math.isfinite(float(cell)):
                raise EngramError(f'Line {line} of {layout.path} has "{cell}" in the column "{name}", not a number.')
    raise EngramError(f"{layout.path} cannot be read as a table of numbers.")


# ---------------------------------------------------------------------- Parquet


def read_parquet(path: Path, *, target: str = "", ignore: tuple[str, ...] = (), task: Task = "auto") -> Parts:
    """Read a Parquet file; the default target is a column so named."""
    from engram.data.frames import read_frame

    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise EngramError("Reading Parquet files needs pyarrow: pip install 'engram[parquet]'.") from None
    try:
        frame = parquet.read_table(path)
    except ArrowException as error:
        raise EngramError(f"{path} cannot be read as a Parquet file: {str(error).splitlines()[0]}.") from error
    return read_frame(frame, target=target, ignore=ignore, task=task)
