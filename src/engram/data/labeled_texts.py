"""Labeled texts, tokenized: of a table with a column of texts, of class folders, or of a data set.

reviews.csv                  one text per row, with its class: the columns are found, or named
reviews/good/1.txt …         a folder for each class; perhaps within folders train and test
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from engram import data as datasets
from engram.core.config import Settings
from engram.core.errors import EngramError, unknown
from engram.data.arrays import LABELS
from engram.data.columns import Strings
from engram.data.csv_files import detect_layout, explain_csv_errors, read_parquet, unique_names
from engram.data.dataset import Data, Info, Parts, Split
from engram.data.python_data import SOURCE, is_stored, read_stored
from engram.data.table import Table, as_words, is_number, is_words
from engram.data.text_files import read_text_file
from engram.data.tokenizer import Tokenizer
from engram.data.user_data import complete, exists

TEXTS = ("text", "texts", "sentence", "review", "content", "message", "comment", "body", "document", "question")
"""names of a column of texts"""
CLASSES = (*LABELS, "category", "sentiment", "rating", "stars", "topic", "genre", "intent")
"""names of a column of classes"""
TABLES = (".csv", ".tsv", ".parquet")
SPLITS = {"train": "train", "valid": "valid", "val": "valid", "validation": "valid", "test": "test"}
"""folders that hold class folders → splits"""
MAX_CLASSES = 1000
Columns = Mapping[str, Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class TextColumns(Settings):
    """Which columns of a table are texts and their classes."""

    text_column: str = ""
    """tables: column of texts; by default text, sentence, review or the like, or the one with the longest cells"""
    target: str = ""
    """tables: column of classes; by default label, class, category, sentiment or the like, or the last one"""


@dataclass(frozen=True)
class LabeledTexts:
    """Tokenized texts with their classes, by split."""

    info: Info
    tokenizer: Tokenizer
    splits: Mapping[str, Split]
    """columns text, ids (its tokens), length (in bytes) and label"""
    classes: tuple[str, ...]
    folder: Path | None = None
    """the run folder, if the texts were reloaded for an existing run"""

    def __getitem__(self, split: str) -> Split:
        if not self.splits:
            raise EngramError(f"{self.info.name} comes without data: give it a --text.")
        return self.splits[split if split in self.splits else "valid"]


# ---------------------------------------------------------------------- reading


def is_labeled_table(name: str) -> bool:
    """Whether a name is that of a table with a column of texts and one of classes."""
    if Path(name).suffix.lower() not in TABLES or not exists(Path(name)):
        return False
    try:
        texts = load_labeled(name, TextColumns()).train["text"]
    except EngramError:
        return False
    return 2 * sum(" " in text for text in texts) > len(texts)


def load_labeled(name: str, columns: TextColumns) -> Data:
    """Load texts and their classes, as columns text and label, in splits."""
    path = Path(name).expanduser()
    if is_stored(name) and (parts := read_stored(name)).table is not None:
        target = columns.target or parts.table.target
        return label_rows(name, SOURCE, table_cells(parts.splits[""]["table"]), replace(columns, target=target))
    if not is_stored(name) and name not in datasets.list_names():
        if path.suffix.lower() in TABLES and path.is_file():
            return label_rows(path.name, str(path), read_columns(path, columns), columns)
        if path.is_dir() and any(path.glob("*/**/*.txt")):
            return complete(path.name, str(path), "text", read_folders(path))
    loaded = datasets.load(name)
    if not {"text", "label"} <= set(loaded.train):
        raise EngramError(
            f"{name} has no labeled texts: give a CSV, TSV or Parquet file with a column of texts and one of classes, "
            "a folder with a folder of .txt files for each class, or a data set of labeled texts such as genres."
        )
    return loaded


def read_columns(path: Path, columns: TextColumns) -> Columns:
    """Read the cells of a table as they are, by column."""
    if path.suffix.lower() == ".parquet":
        return table_cells(read_parquet(path).splits[""]["table"])
    with explain_csv_errors(path):
        layout = replace(detect_layout(path), header=False)
        if path.suffix.lower() == ".tsv":
            with path.open(encoding="utf-8-sig") as stream:
                layout = replace(layout, delimiter="\t", names=stream.readline().split("\t"))
        cells = layout.columns()
    first_row = [column[0] for column in cells]
    if has_header(cells, columns):
        return dict(zip(unique_names(first_row), (column[1:] for column in cells), strict=True))
    return {str(i): column for i, column in enumerate(cells)}


def has_header(cells: list[list[str]], columns: TextColumns) -> bool:
    """Whether the first row names the columns: by a usual or given name, or a class of no other row."""
    known = {*TEXTS, *CLASSES, columns.text_column.lower(), columns.target.lower()} - {""}
    if any(column[0].lower() in known for column in cells):
        return True
    unnamed = {str(i): column[1:] for i, column in enumerate(cells)}
    text = find_text(unnamed, "")
    label = int(find_target(unnamed, "", text)) if len(cells) > 1 else 0
    return cells[label][0] not in cells[label][1:]


def table_cells(table: Table) -> Columns:
    """Return the cells of a table as texts; "" where one is missing."""
    return {
        name: ["" if cell is None else str(cell) for cell in (column if is_words(column) else as_words(column))]
        for name, column in table.columns.items()
    }


def find_text(cells: Columns, name: str) -> str:
    """Return the column of texts: the named one, one of a usual name, or the one with the longest cells."""
    if name and name not in cells:
        raise unknown("column", name, cells)
    usual = next((known for wanted in TEXTS for known in cells if known.lower() == wanted), "")
    return name or usual or max(cells, key=lambda one: sum(map(len, cells[one])))


def find_target(cells: Columns, name: str, text: str) -> str:
    """Return the column of classes: the named one, one of a usual name, or the last other than the texts."""
    if name and name not in cells:
        raise unknown("column", name, cells)
    others = [one for one in cells if one != text]
    usual = next((one for wanted in CLASSES for one in others if one.lower() == wanted), "")
    return name or usual or (others[-1] if others else "")


def label_rows(name: str, source: str, cells: Columns, columns: TextColumns) -> Data:
    """Return texts with their classes, without the rows that lack either."""
    text = find_text(cells, columns.text_column)
    target = find_target(cells, columns.target, text)
    if not target or target == text:
        raise EngramError(f"{source} needs a column of texts and another one of classes, and has {', '.join(cells)}.")
    rows = [(one, label) for one, label in zip(cells[text], cells[target], strict=True) if one.strip() and label]
    if all(is_number(one) for one, _ in rows):
        raise EngramError(f'The column "{text}" of {source} has no texts: name the column of texts with --text-column.')
    classes = sort_classes({label for _, label in rows})
    if len(classes) > min(MAX_CLASSES, max(2, len(rows) // 2)):
        raise EngramError(
            f'The column "{target}" of {source} has {len(classes)} classes for {len(rows)} texts: name the column of '
            "classes with --target."
        )
    place = {label: k for k, label in enumerate(classes)}
    split = Split({
        "text": Strings.from_texts(one for one, _ in rows), "label": torch.tensor([place[label] for _, label in rows]),
    })  # fmt: skip
    found = complete(name, source, "text", Parts({"": split}, classes))
    notes = [f'texts are in the column "{text}", their classes in "{target}"']
    if left_out := len(cells[text]) - len(rows):
        notes.append(f"{left_out} rows have no text or no class, and are left out")
    return replace(found, info=replace(found.info, notes=tuple(notes)), target=target)


def sort_classes(labels: set[str]) -> tuple[str, ...]:
    """Return the names of classes in order; numbers by their value."""
    if all(map(is_number, labels)):
        return tuple(sorted(labels, key=lambda label: (float(label), label)))
    return tuple(sorted(labels))


def read_folders(path: Path) -> Parts:
    """Read a folder with a folder of .txt files for each class, or those in train, valid and test."""
    inside = subfolders(path)
    parts = {part: folder for folder in inside if (part := SPLITS.get(folder.name.lower()))}
    whole = len(parts) != len(inside) or "train" not in parts
    places = {"": path} if whole else parts
    classes = tuple(sorted({folder.name for place in places.values() for folder in subfolders(place)}))
    splits = {part: read_classes(place, classes) for part, place in places.items()}
    if not whole and "valid" not in splits and "test" not in splits:
        splits = {"": splits["train"]}
    return Parts(splits, classes)


def subfolders(path: Path) -> list[Path]:
    """Return the folders in a folder that hold .txt files, in order."""
    return sorted(one for one in path.iterdir() if one.is_dir() and any(one.rglob("*.txt")))


def read_classes(path: Path, classes: Sequence[str]) -> Split:
    """Read the texts of class folders."""
    rows = [
        (read_text_file(file).strip(), classes.index(folder.name))
        for folder in subfolders(path)
        for file in sorted(folder.rglob("*.txt"))
    ]
    rows = [(text, label) for text, label in rows if text]
    return Split({
        "text": Strings.from_texts(text for text, _ in rows), "label": torch.tensor([label for _, label in rows]),
    })  # fmt: skip


# ---------------------------------------------------------------------- tokenizing


def encode_texts(tokenizer: Tokenizer, texts: Sequence[str], context: int) -> list[list[int]]:
    """Return the tokens of texts; one that is longer than the context is cut before its last token."""
    rows = tokenizer.encode_batch(texts)
    return [row[: context - 1] + row[-1:] if len(row) > context else row for row in rows]


class EncodedTexts:
    """Texts as tokens, tokenized on access."""

    def __init__(self, texts: Strings, tokenizer: Tokenizer, context: int) -> None:
        self.texts, self.tokenizer, self.context = texts, tokenizer, context

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: slice | Tensor) -> list[list[int]]:
        return encode_texts(self.tokenizer, list(self.texts[index]), self.context)


def encode_split(split: Split, tokenizer: Tokenizer, context: int) -> Split:
    """Return the texts of a split with their tokens, and the length of each in bytes."""
    text: Strings = split["text"]
    columns = {"ids": EncodedTexts(text, tokenizer, context), "length": text.ends - text.starts}
    return Split({"text": text, **columns, "label": split["label"]})


def tokenize(data: Data, tokenizer: Tokenizer, context: int, folder: Path | None = None) -> LabeledTexts:
    """Tokenize all splits."""
    splits = {part: encode_split(split, tokenizer, context) for part, split in data.splits.items()}
    return LabeledTexts(data.info, tokenizer, splits, data.classes, folder)
