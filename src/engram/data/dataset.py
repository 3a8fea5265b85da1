"""Data sets: columns of equal length in named splits (train, valid, test), with a description.

A column is a tensor, a list of strings, or any object with a length that a tensor of indices selects from. Common
columns: `image` (uint8, N × C × H × W), `label` (int64, N), `point`, `text`, `source` and `target`, `caption`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from engram.core.errors import EngramError, unknown

if TYPE_CHECKING:
    from engram.data.preprocess import Preprocess
    from engram.data.table import TableEncoder
    from engram.data.table_splits import TableOptions


class Split:
    """One split of a data set: columns of equal length, by name; `len(split)` is its number of samples."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self.columns = dict(columns)
        sizes = {name: len(column) for name, column in self.columns.items()}
        if len(set(sizes.values())) > 1:
            raise EngramError(f"The columns of a data set must be equally long, and these are not: {sizes}.")
        self.size = next(iter(sizes.values()), 0)

    def __getitem__(self, name: str) -> Any:
        if name not in self.columns:
            raise unknown("column", name, self.columns)
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return self.size

    def select(self, index: Tensor) -> "Split":
        """Return the samples at `index` as a split."""
        return Split({name: take_rows(column, index) for name, column in self.columns.items()})


def take_rows(column: Any, index: Tensor) -> Any:
    """Return the rows of a column at `index`.

    For a tensor `index_select` is five times as fast as `[index]`.
    """
    if isinstance(column, Tensor):
        return column.index_select(0, index)
    return [column[i] for i in index.tolist()] if isinstance(column, (list, tuple)) else column[index]


@dataclass(frozen=True, kw_only=True)
class Info:
    """Description of a data set: one row of `engram data list`."""

    name: str
    title: str
    """one line: content and size"""
    kind: str
    """images, points, text, pairs, captions, sequences, patterns, words or spikes"""
    license: str
    source: str
    """`generated`, or the sources in the order in which they are tried"""
    columns: Mapping[str, str]
    """type and shape of one sample of each column, as uint8 1×28×28"""
    sizes: Mapping[str, int]
    """samples in each split"""
    sha256: str = ""
    """checksum of the first source's archive or member; empty for generated data"""
    notes: tuple[str, ...] = ()
    """what was done to the data, in sentences: imputed values, columns left out"""


@dataclass(frozen=True)
class Parts:
    """Splits and class names of a data set, as a reader returns them and the cache keeps them."""

    splits: Mapping[str, Split]
    classes: tuple[str, ...] = ()
    """names of the classes, by the value of `label`"""
    encoder: "TableEncoder | None" = None
    """encoding of the rows of a table as `point`"""
    table: "TableOptions | None" = None
    """target and other options of a table"""


@dataclass(frozen=True)
class Data:
    """A loaded data set: description, splits, and class names if it has labels."""

    info: Info
    splits: Mapping[str, Split] = field(repr=False)
    classes: tuple[str, ...] = ()
    encoder: "TableEncoder | None" = None
    """encoding of the rows of a table as `point`"""
    target: str = ""
    """column of a table that is predicted"""
    preprocess: "Preprocess | None" = None
    """preprocessing of image files, of a checkpoint that has its own"""
    folder: Path | None = None
    """the run folder, if the data was reloaded for an existing run"""

    def __getitem__(self, split: str) -> Split:
        if not self.splits:
            raise EngramError(f"{self.info.name} comes without data: give it an --image.")
        if split not in self.splits:
            raise unknown(f"split of {self.info.name}", split, self.splits)
        return self.splits[split]

    @property
    def train(self) -> Split:
        return self["train"]

    @property
    def valid(self) -> Split:
        return self["valid"]

    @property
    def test(self) -> Split:
        return self["test"]


def sample_column(data: Data) -> str:
    """Name of the column that holds the samples: "image" or "point"."""
    return "image" if "image" in data.train else "point"
