"""Tables as data sets: choose the target, encode every split as learned from the training rows."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from engram.core.config import Settings
from engram.core.errors import EngramError, unknown
from engram.data.dataset import Data, Parts, Split
from engram.data.table import Array, Table, TableEncoder, as_words, is_words

Task = Literal["auto", "classification", "regression"]
MAX_CLASSES = 20
"""a target of more different integers is a regression target, unless the task says otherwise"""


@dataclass(frozen=True, kw_only=True)
class TableOptions(Settings):
    """Which column of a table is predicted, and which are not used."""

    target: str = ""
    """tables: column to predict, never an input; by default target, label, class or y, or the last if it has classes"""
    ignore: tuple[str, ...] = ()
    """tables: columns that are not used"""
    task: Task = "auto"
    """tables: predict a class or a number; auto: words and up to 20 different integers are classes"""

    def options(self) -> dict[str, Any]:
        """Return the options that are not left at their defaults, as `engram.data.load` takes them."""
        options = {"target": self.target, "ignore": self.ignore, "task": self.task}
        return {name: value for name, value in options.items() if value != getattr(TableOptions(), name)}


def encode_splits(source: str, splits: Mapping[str, Split], options: TableOptions) -> Parts:
    """Encode splits of one column `table` as columns `point`, and `label` or `target`."""
    tables = {name: split["table"] for name, split in splits.items()}
    first = next(iter(tables.values()))
    for name in (*options.ignore, *([options.target] if options.target else [])):
        if name not in first.columns:
            raise unknown(f"column of {source}", name, first.columns)
    if options.target in options.ignore:
        raise EngramError(f'The column "{options.target}" cannot be both the target and ignored.')
    notes: list[str] = []
    tables = {name: table.drop(*options.ignore) for name, table in tables.items()}
    if options.target:
        tables, notes = drop_missing_targets(tables, options.target)
    try:
        encoder = TableEncoder.fit(tables.get("train", next(iter(tables.values()))).drop(options.target))
        columns = {name: {"point": torch.from_numpy(encoder.encode(table))} for name, table in tables.items()}
    except EngramError as error:
        raise EngramError(f"{source}: {str(error)[0].lower()}{str(error)[1:]}") from error
    encoder = replace(encoder, notes=(*notes, *encoder.notes))
    classes: tuple[str, ...] = ()
    if options.target:
        targets = {name: table[options.target] for name, table in tables.items()}
        kind, encoded, classes = encode_target(options.target, targets, options.task)
        columns = {name: {**column, kind: encoded[name]} for name, column in columns.items()}
    return Parts({name: Split(column) for name, column in columns.items()}, classes, encoder, options)


def drop_missing_targets(tables: Mapping[str, Table], target: str) -> tuple[dict[str, Table], list[str]]:
    """Return the rows that have a target, and a note of how many have none."""
    known = {}
    for name, table in tables.items():
        column = table[target]
        present = [cell is not None for cell in column] if is_words(column) else ~np.isnan(column)
        known[name] = table[torch.from_numpy(np.flatnonzero(present))]
        if not len(known[name]):
            raise EngramError(f'The target "{target}" has no value in any row of the {name} split.')
    lost = sum(map(len, tables.values())) - sum(map(len, known.values()))
    return known, [f'{lost} rows have no value in the target "{target}" and are left out'] if lost else []


def encode_target(
    name: str, targets: Mapping[str, Array], task: Task
) -> tuple[str, dict[str, Tensor], tuple[str, ...]]:
    """Encode a target as ("label", class indices, class names) or as ("target", numbers, ())."""
    joined = np.concatenate(list(targets.values()))
    if resolve_task(name, joined, task) == "regression":
        return "target", {part: torch.from_numpy(y.astype(np.float32)) for part, y in targets.items()}, ()
    if is_words(joined):
        classes = sorted(set(map(str, joined.tolist())))
        words = {part: list(map(str, y.tolist())) for part, y in targets.items()}
    else:
        classes = [word or "" for word in as_words(np.unique(joined))]
        words = {part: [word or "" for word in as_words(y)] for part, y in targets.items()}
    if len(classes) < 2:
        raise EngramError(f'The target "{name}" has the value {classes[0]} in every row: there is nothing to classify.')
    place = {word: k for k, word in enumerate(classes)}
    encoded = {part: torch.tensor([place[word] for word in column]) for part, column in words.items()}
    return "label", encoded, tuple(classes)


def resolve_task(name: str, y: Array, task: Task) -> Task:
    """Return the task: words are classes, and so are a few different integers."""
    if task == "regression" and is_words(y):
        raise EngramError(f'The target "{name}" has words, which are classes: regression needs numbers.')
    if task != "auto":
        return task
    few = not is_words(y) and bool((y == np.rint(y)).all()) and len(np.unique(y)) <= MAX_CLASSES
    return "classification" if is_words(y) or few else "regression"


def standardize_rows(data: Data) -> Data:
    """Standardize the rows of a table by its training rows; other data stay as they are."""
    return data if data.encoder is None else rescale_rows(data, data.encoder.standardized(data.train["point"].numpy()))


def normalize_rows(data: Data) -> Data:
    """Map each column of a table to values from 0 to 1 by its training rows; other data stay as they are."""
    return data if data.encoder is None else rescale_rows(data, data.encoder.normalized(data.train["point"].numpy()))


def rescale_rows(data: Data, encoder: TableEncoder) -> Data:
    """Rescale the rows of every split by an encoder."""
    rows = {
        name: Split({**split.columns, "point": torch.from_numpy(encoder.rescale(split["point"].numpy()))})
        for name, split in data.splits.items()
    }
    return replace(data, splits=rows, encoder=encoder)
