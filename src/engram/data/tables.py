"""One's own numbers: CSV files, and NumPy's .npy and .npz. What looks like pictures becomes pictures."""

import csv
import math
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.data.checks import check_finite
from engram.data.dataset import Parts, Split

Array = npt.NDArray[Any]
Labelled = tuple[Array, Array | None]
LIMIT = 4 << 30
"""bytes that a file may unpack to: against accidents and zip bombs"""
INPUTS = ("x", "image", "images", "point", "points", "data")
LABELS = ("label", "labels", "class", "target", "targets", "y")
SPLITS = {"": "", "_train": "train", "_valid": "valid", "_val": "valid", "_test": "test"}
SMALLEST_PICTURE = 16
"""fewer columns of whole numbers are taken as measurements, not as pixels"""


@dataclass(frozen=True)
class Layout:
    """How a CSV file is written."""

    path: Path
    delimiter: str
    names: list[str]
    header: bool

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """(line number, cells) of each row of data, each found to have all its cells."""
        with self.path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream, delimiter=self.delimiter)
            for row in islice(filter(None, reader), int(self.header), None):
                if len(row) != len(self.names):
                    raise EngramError(
                        f"Line {reader.line_num} of {self.path} has {len(row)} columns where the first line has "
                        f"{len(self.names)}."
                    )
                yield reader.line_num, [cell.strip() for cell in row]


def read_csv(path: Path) -> Parts:
    """One row per item; the label is a column so named, or the last one if it holds whole numbers or words."""
    with _csv(path):
        layout = _layout(path)
        label = _label(layout)
        y = None if label is None else _column(layout, label)
        inputs = [i for i in range(len(layout.names)) if i != label]
        return _parts(path, {"": (_numbers(layout, inputs), y)})


@contextmanager
def _csv(path: Path) -> Iterator[None]:
    """Refuse a CSV file that is too large, or none at all."""
    if path.stat().st_size > LIMIT:
        raise EngramError(f"{path} is larger than the {LIMIT >> 30} GB that are read at once: save it as .npz.")
    try:
        yield
    except (UnicodeDecodeError, csv.Error) as error:
        raise EngramError(f"{path} is not a CSV file in UTF-8: {error}.") from error


def _layout(path: Path) -> Layout:
    """The first row is a header if it names a label, or if none of its cells is a number."""
    with path.open(newline="", encoding="utf-8-sig") as stream:
        line = next((line for line in stream if line.strip()), "")
    if not line:
        raise EngramError(f"{path} is empty.")
    delimiter = max(",;\t", key=line.count)
    first = [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter))]
    header = any(cell.lower() in LABELS for cell in first) or not any(map(_is_number, first))
    names = first if header else [str(i) for i in range(len(first))]
    return Layout(path, delimiter, names, header)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _label(layout: Layout) -> int | None:
    """Which column is the label. Without a name it is the last; but files of pictures often have it first."""
    for i, name in enumerate(layout.names):
        if layout.header and name.lower() in LABELS:
            return i
    last = len(layout.names) - 1
    words = _column(layout, last)
    if last == 0 or _side(last + 1) or _measured(words):
        return None
    corner_pixel = _side(last) is not None and len(set(words)) == 1
    return 0 if corner_pixel else last


def _side(columns: int) -> int | None:
    """The side of the square picture that so many columns would be the pixels of."""
    side = math.isqrt(columns)
    return side if side * side == columns >= SMALLEST_PICTURE else None


def _column(layout: Layout, index: int) -> Array:
    """The cells of one column as they are written."""
    cells = [row[index] for _, row in layout.rows()]
    if not cells:
        raise EngramError(f"{layout.path} has no rows of data.")
    return np.array(cells)


def _measured(words: Array) -> bool:
    """Whether these are numbers of which some are not whole, and so no labels."""
    return all(map(_is_number, words)) and any(not float(word).is_integer() for word in words)


def _numbers(layout: Layout, columns: list[int]) -> Array:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a file without rows, which is refused as an empty array
            return np.loadtxt(
                layout.path, delimiter=layout.delimiter, skiprows=int(layout.header), ndmin=2,
                usecols=None if len(columns) == len(layout.names) else columns,
                comments=None, quotechar='"', encoding="utf-8-sig",
            )  # fmt: skip
    except ValueError:
        _blame(layout, columns)


def _blame(layout: Layout, columns: list[int]) -> NoReturn:
    """Say which cell is not a number."""
    for line, row in layout.rows():
        for i in columns:
            if not _is_number(row[i]):
                raise EngramError(
                    f"Line {line} of {layout.path} has «{row[i]}» in the column «{layout.names[i]}», where a number "
                    "should be: only the label may be a word."
                )
    raise EngramError(f"{layout.path} cannot be read as a table of numbers.")


def read_npy(path: Path) -> Parts:
    """One array of pictures or points, without labels."""
    return _parts(path, {"": (read_array(path), None)})


def read_array(path: Path) -> Array:
    """The numbers of a CSV file or of an .npy file as they stand, every column alike."""
    if path.suffix.lower() == ".csv":
        with _csv(path):
            layout = _layout(path)
            return _numbers(layout, list(range(len(layout.names))))
    array = _opened(path)
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
        raise EngramError(f"{path} must hold one array of numbers: give a CSV or an .npy file.")
    return array


def read_npz(path: Path) -> Parts:
    """Arrays x and y (or image and label), or x_train, y_train, x_test and so on."""
    arrays = _opened(path)
    if isinstance(arrays, np.ndarray):
        arrays = {"x": arrays}
    pairs: dict[str, Labelled] = {}
    for ending, split in SPLITS.items():
        x, y = (_first(arrays, [f"{name}{ending}" for name in names]) for names in (INPUTS, LABELS))
        if x is not None:
            pairs[split] = (x, y)
    if not pairs or ("" in pairs and len(pairs) > 1):
        raise EngramError(
            f"{path} has the arrays {', '.join(arrays)}: name them x and y, or x_train, y_train, x_test and y_test."
        )
    return _parts(path, pairs)


def _opened(path: Path) -> Any:
    """An array, or a dict of arrays. A pickle inside is refused: to read one is to run whatever it says."""
    try:
        if _unpacked(path) > LIMIT:
            raise ValueError(f"it would unpack to more than {LIMIT >> 30} GB")
        with path.open("rb") as stream, np.errstate(invalid="ignore"):  # of sizes that no array has
            loaded = np.load(stream, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return _native(loaded)
            arrays = dict(loaded)
        if not all(isinstance(array, np.ndarray) for array in arrays.values()):  # np.load gives other members as bytes
            raise ValueError("it holds something else")
        return {name: _native(array) for name, array in arrays.items()}
    except OSError:
        raise
    except Exception as error:  # what NumPy, zipfile and zlib say of damage has no common kind
        why = "it holds Python objects" if "allow_pickle" in str(error) else str(error) or type(error).__name__
        raise EngramError(f"{path} cannot be read as NumPy arrays of numbers: {why.rstrip('.')}.") from error


def _native(array: Array) -> Array:
    """The same numbers in this machine's order of bytes, the only one that torch reads."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _unpacked(path: Path) -> int:
    """The bytes that a file takes once it is read, as far as it says so itself; zipfile reads no more than that."""
    if not zipfile.is_zipfile(path):
        return path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        return sum(entry.file_size for entry in archive.infolist())


def _first(arrays: Mapping[str, Array], names: list[str]) -> Array | None:
    lower = {name.lower(): array for name, array in arrays.items()}
    return next((lower[name] for name in names if name in lower), None)


def _parts(path: Path, pairs: Mapping[str, Labelled]) -> Parts:
    """Columns `image` or `point`, and `label` or (where it is measured) `target`, for each split."""
    labels = {split: y for split, (_, y) in pairs.items() if y is not None}
    target, coded, classes = _encoded(path, labels)
    splits = {}
    for split, (x, _) in pairs.items():
        name, column = _inputs(path, x)
        columns = {name: column, **({target: coded[split]} if split in coded else {})}
        check_finite(str(path), name, column)
        check_finite(str(path), target, columns.get(target))
        if len({len(one) for one in columns.values()}) > 1:
            raise EngramError(f"{path} has {len(column)} items but {len(coded[split])} labels {split}".rstrip() + ".")
        splits[split] = Split(columns)
    return Parts(splits, classes)


def _inputs(path: Path, x: Array) -> tuple[str, Tensor]:
    """What an array of items is: pictures if it has the shape and the values of pictures, otherwise points."""
    if x.dtype.kind not in "biuf":
        raise EngramError(f"{path} holds values of type {x.dtype}, not numbers.")
    if x.ndim == 0 or x.size == 0:
        raise EngramError(f"{path} is empty: its array has the shape {x.shape}.")
    if x.ndim in (3, 4):
        return "image", _pictures(path, x)
    if x.ndim > 4:
        raise EngramError(f"{path} has an array of the shape {x.shape}: pictures have 3 or 4 axes, points 2.")
    x = x.reshape(len(x), -1)
    side = _side(x.shape[1])
    if side and _whole(x) and x.min() >= 0 and x.max() <= 255:
        return "image", torch.from_numpy(x.astype(np.uint8)).reshape(-1, 1, side, side)
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused as that
        return "point", torch.from_numpy(x.astype(np.float32))


def _pictures(path: Path, x: Array) -> Tensor:
    """N × H × W, N × H × W × C or N × C × H × W as uint8 N × C × H × W; floats are taken to go from 0 to 1."""
    if x.ndim == 3:
        x = x[:, None]
    elif x.shape[1] not in (1, 3):
        x = np.moveaxis(x, -1, 1)
    if x.shape[1] not in (1, 3):
        raise EngramError(f"{path} has an array of the shape {x.shape}: pictures have 1 or 3 channels.")
    check_finite(str(path), "image", torch.from_numpy(x) if x.dtype.kind == "f" else None)
    top = 1 if x.dtype.kind == "b" or (x.dtype.kind == "f" and x.max() <= 1) else 255
    if x.min() < 0 or x.max() > top:
        raise EngramError(f"{path} has pixels from {x.min()} to {x.max()}: they must go from 0 to 1 or from 0 to 255.")
    return torch.from_numpy(np.ascontiguousarray(np.rint(x * (255 / top)).astype(np.uint8)))


def _whole(x: Array) -> bool:
    return x.dtype.kind in "iub" or bool(np.isfinite(x).all() and (x == np.rint(x)).all())


def _encoded(path: Path, labels: Mapping[str, Array]) -> tuple[str, dict[str, Tensor], tuple[str, ...]]:
    """Labels as numbers from 0 with the names of the classes; measured values as they are, to be regressed."""
    if not labels:
        return "label", {}, ()
    for y in labels.values():
        if y.dtype.kind not in "biufU":
            raise EngramError(f"{path} has labels of type {y.dtype}: they must be numbers or words.")
    joined = np.concatenate([y.ravel() for y in labels.values()])
    if joined.dtype.kind == "U" and all(map(_is_number, joined)):
        joined = joined.astype(np.float64)
    lengths = np.cumsum([y.size for y in labels.values()])[:-1]
    if joined.dtype.kind == "f" and not _whole(joined):
        pieces = np.split(joined.astype(np.float32), lengths)
        return "target", dict(zip(labels, map(torch.from_numpy, pieces), strict=True)), ()
    values = joined if joined.dtype.kind == "U" else joined.astype(np.int64)
    classes, codes = np.unique(values, return_inverse=True)
    pieces = np.split(codes.astype(np.int64), lengths)
    return "label", dict(zip(labels, map(torch.from_numpy, pieces), strict=True)), tuple(map(str, classes))
