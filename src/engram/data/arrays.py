"""NumPy arrays of the user, .npy and .npz files.

Images or rows of a table, with labels or regression targets.
"""

import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.data.checks import check_finite
from engram.data.dataset import Parts, Split
from engram.data.table import Table, is_number
from engram.data.table_splits import TableOptions, Task

Array = npt.NDArray[Any]
LabeledArrays = tuple[Array, Array | None]
MAX_BYTES = 4 << 30
"""limit of the unpacked size of a file (against zip bombs)"""
MIN_PIXELS = 16
"""fewer columns of integers are features, not pixels of an image"""
INPUTS = ("x", "image", "images", "point", "points", "data")
TARGET = "target"
"""name of the target as a column of a table of arrays"""
LABELS = ("label", "labels", "class", "target", "targets", "y")
SPLITS = {"": "", "_train": "train", "_valid": "valid", "_val": "valid", "_test": "test"}


def read_npy(path: Path) -> Parts:
    """Read one array of images, or of rows without target."""
    return make_parts(str(path), {"": (read_array(path), None)})


def read_array(path: Path) -> Array:
    """Read a .npy file of numbers."""
    array = _load_numpy(path)
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
        raise EngramError(f"{path} must hold one array of numbers: give a CSV or an .npy file.")
    return array


def read_inputs(path: Path) -> Array:
    """Read the inputs of a .npy file, or of the first array of inputs of a .npz file."""
    arrays = _load_numpy(path)
    if isinstance(arrays, np.ndarray):
        return arrays
    names = [f"{name}{ending}" for ending in ("", "_test", "_valid", "_train") for name in INPUTS]
    x = _find_array(arrays, names)
    if x is None:
        raise EngramError(f"{path} has the arrays {', '.join(arrays)}: name the inputs x.")
    return x


def read_npz(path: Path, *, task: Task = "auto") -> Parts:
    """Read arrays x and y (or image and label), or x_train, y_train, x_test and so on."""
    arrays = _load_numpy(path)
    if isinstance(arrays, np.ndarray):
        arrays = {"x": arrays}
    return make_parts(str(path), find_pairs(str(path), arrays), task)


def find_pairs(source: str, arrays: Mapping[str, Array]) -> dict[str, LabeledArrays]:
    """Return inputs and labels by split, found by the names of the arrays."""
    pairs: dict[str, LabeledArrays] = {}
    for ending, split in SPLITS.items():
        x, y = (_find_array(arrays, [f"{name}{ending}" for name in names]) for names in (INPUTS, LABELS))
        if x is not None:
            pairs[split] = (x, y)
    if not pairs or ("" in pairs and len(pairs) > 1):
        raise EngramError(
            f"{source} has the arrays {', '.join(arrays)}: name them x and y, or x_train, y_train, x_test and y_test."
        )
    return pairs


def _load_numpy(path: Path) -> Any:
    """Load an array or a dict of arrays; pickles are refused, because reading one runs code."""
    try:
        with path.open("rb") as stream:
            if not stream.read(6).startswith((b"PK", b"\x93NUMPY")):
                raise ValueError("it is neither an .npy nor an .npz file")
        if _unpacked_size(path) > MAX_BYTES:
            raise ValueError(f"it would unpack to more than {MAX_BYTES >> 30} GB")
        with path.open("rb") as stream, np.errstate(invalid="ignore"):  # about impossible shapes
            loaded = np.load(stream, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return _to_native(loaded)
            arrays = dict(loaded)
        if not all(isinstance(array, np.ndarray) for array in arrays.values()):  # np.load gives other members as bytes
            raise ValueError("it holds something else")
        return {name: _to_native(array) for name, array in arrays.items()}
    except OSError:
        raise
    except Exception as error:  # what NumPy, zipfile and zlib say of damage has no common kind
        why = "it holds Python objects" if "allow_pickle" in str(error) else str(error) or type(error).__name__
        raise EngramError(f"{path} cannot be read as NumPy arrays of numbers: {why.rstrip('.')}.") from error


def _to_native(array: Array) -> Array:
    """Return the array in native byte order, the only one that torch reads."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _unpacked_size(path: Path) -> int:
    """Return the unpacked size that a file declares; zipfile reads no more than that."""
    if not zipfile.is_zipfile(path):
        return path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        return sum(entry.file_size for entry in archive.infolist())


def _find_array(arrays: Mapping[str, Array], names: list[str]) -> Array | None:
    lower = {name.lower(): array for name, array in arrays.items()}
    return next((lower[name] for name in names if name in lower), None)


def make_parts(source: str, pairs: Mapping[str, LabeledArrays], task: Task = "auto") -> Parts:
    """Return the arrays of each split as `image` with `label` or `target`, or as a `table`."""
    for split, (x, y) in pairs.items():
        check_shapes(source, split, x, y)
    if not all(is_image(x) for x, _ in pairs.values()):
        return make_tables(source, pairs, task)
    labels = {split: y for split, (_, y) in pairs.items() if y is not None}
    target, encoded, classes = _encode_labels(source, labels)
    splits = {}
    for split, (x, _) in pairs.items():
        columns = {"image": _to_images(source, x), **({target: encoded[split]} if split in encoded else {})}
        check_finite(source, target, columns.get(target))
        splits[split] = Split(columns)
    return Parts(splits, classes)


def check_shapes(source: str, split: str, x: Array, y: Array | None) -> None:
    """Refuse arrays that hold no numbers, nothing at all, or another number of labels than samples."""
    if x.dtype.kind not in "biuf":
        raise EngramError(f"{source} holds values of type {x.dtype}, not numbers.")
    if x.ndim == 0 or x.size == 0:
        raise EngramError(f"{source} is empty: its array has the shape {x.shape}.")
    if x.ndim > 4:
        raise EngramError(f"{source} has an array of the shape {x.shape}: images have 3 or 4 axes, rows of a table 2.")
    if y is not None and y.size != len(x):
        raise EngramError(f"{source} has {len(x)} samples but {y.size} labels {split}".rstrip() + ".")


def is_image(x: Array) -> bool:
    """Whether an array has the shape and the values of images, or of their pixels as rows."""
    if x.ndim > 2:
        return True
    pixels = x.ndim == 2 and square_side(x.shape[1]) is not None
    return pixels and _is_integer(x) and x.min() >= 0 and x.max() <= 255


def square_side(columns: int) -> int | None:
    """Side of the square image whose pixels are these columns."""
    side = math.isqrt(columns)
    return side if side * side == columns >= MIN_PIXELS else None


def make_tables(source: str, pairs: Mapping[str, LabeledArrays], task: Task) -> Parts:
    """Return rows of numbers as a table whose columns are numbered, with the labels as its target."""
    splits, labeled = {}, any(y is not None for _, y in pairs.values())
    for split, (x, y) in pairs.items():
        if (y is None) and labeled:
            raise EngramError(f"{source} has labels for some of its splits only.")
        if y is not None and y.dtype.kind not in "biufU":
            raise EngramError(f"{source} has labels of type {y.dtype}: they must be numbers or words.")
        rows = x.reshape(len(x), -1).astype(np.float64)
        columns = {str(i): rows[:, i] for i in range(rows.shape[1])}
        splits[split] = Split({"table": Table(columns | ({} if y is None else {TARGET: to_column(y.ravel())}))})
    return Parts(splits, table=TableOptions(target=TARGET if labeled else "", task=task))


def to_column(y: Array) -> Array:
    """Return labels as a column of a table: numbers as float64, words as objects."""
    return y.astype(object) if y.dtype.kind == "U" else y.astype(np.float64)


def _to_images(source: str, x: Array) -> Tensor:
    """Convert N × (H W), N × H × W, N × H × W × C or N × C × H × W to uint8 N × C × H × W.

    Floats go from 0 to 1.
    """
    if x.ndim == 2:
        side = square_side(x.shape[1]) or 1
        return torch.from_numpy(x.astype(np.uint8)).reshape(-1, 1, side, side)
    if x.ndim == 3:
        x = x[:, None]
    elif x.shape[1] not in (1, 3):
        x = np.moveaxis(x, -1, 1)
    if x.shape[1] not in (1, 3):
        raise EngramError(f"{source} has an array of the shape {x.shape}: images have 1 or 3 channels.")
    check_finite(source, "image", torch.from_numpy(x) if x.dtype.kind == "f" else None)
    top = 1 if x.dtype.kind == "b" or (x.dtype.kind == "f" and x.max() <= 1) else 255
    if x.min() < 0 or x.max() > top:
        raise EngramError(
            f"{source} has pixels from {x.min()} to {x.max()}: they must go from 0 to 1 or from 0 to 255."
        )
    return torch.from_numpy(np.ascontiguousarray(np.rint(x * (255 / top)).astype(np.uint8)))


def _is_integer(x: Array) -> bool:
    return x.dtype.kind in "iub" or bool(np.isfinite(x).all() and (x == np.rint(x)).all())


def _encode_labels(source: str, labels: Mapping[str, Array]) -> tuple[str, dict[str, Tensor], tuple[str, ...]]:
    """Encode labels as integers from 0 with their class names; regression targets stay floats."""
    if not labels:
        return "label", {}, ()
    for y in labels.values():
        if y.dtype.kind not in "biufU":
            raise EngramError(f"{source} has labels of type {y.dtype}: they must be numbers or words.")
    joined = np.concatenate([y.ravel() for y in labels.values()])
    if joined.dtype.kind == "U" and all(map(is_number, joined)):
        joined = joined.astype(np.float64)
    lengths = np.cumsum([y.size for y in labels.values()])[:-1]
    if joined.dtype.kind == "f" and not _is_integer(joined):
        pieces = np.split(joined.astype(np.float32), lengths)
        return "target", dict(zip(labels, map(torch.from_numpy, pieces), strict=True)), ()
    values = joined if joined.dtype.kind == "U" else joined.astype(np.int64)
    classes, codes = np.unique(values, return_inverse=True)
    pieces = np.split(codes.astype(np.int64), lengths)
    return "label", dict(zip(labels, map(torch.from_numpy, pieces), strict=True)), tuple(map(str, classes))
