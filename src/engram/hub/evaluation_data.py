"""Other data as the model of a run takes them: in the run's own encoding, shape and classes.

given = match_data(Run.open(Path("runs/vae-1")), "new.csv")
run.recipe.evaluate(run.learner, given.data, "test")

Nothing is fitted to the other data: encoder, scales, classes, tokenizer and training split are those of the run.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engram import data as datasets
from engram.core.config import override
from engram.core.errors import EngramError
from engram.data import python_data
from engram.data.arrays import LABELS, TARGET, read_npz
from engram.data.checks import check_finite
from engram.data.columns import Strings
from engram.data.corpus import Corpus
from engram.data.csv_files import read_table
from engram.data.dataset import Data, Split
from engram.data.frames import frame_to_table, is_frame
from engram.data.labeled_texts import LabeledTexts, encode_split, load_labeled
from engram.data.table import Table, as_words, is_words
from engram.data.table_splits import drop_missing_targets
from engram.hub.predict import INPUTS
from engram.training.run import Run

FILES = (".csv", ".parquet", ".npy", ".npz")
"""files that hold rows of a table"""


@dataclass(frozen=True)
class GivenData:
    """Data of a run whose test split is that of other data."""

    data: Any
    size: int
    """samples of the test split"""
    unit: str
    """what a sample is"""
    dropped: int = 0
    """rows left out because they have no target"""


def match_data(run: Run, data: Any) -> GivenData:
    """Return the data of a run with the samples of other data as its test split."""
    known = run.data
    if isinstance(known, Data) and known.encoder is not None:
        return match_rows(run, known, data)
    if isinstance(known, Data) and "image" in known.train and not hasattr(run.recipe, "stored_patterns"):
        return match_images(run, known, data)
    if isinstance(known, LabeledTexts):
        return match_texts(run, known, data)
    return reload_data(run, data)


def predicts(run: Run) -> bool:
    """Whether the metrics of a run need labels or targets."""
    return hasattr(run.recipe, "score") or (run.folder.path / INPUTS).exists()


def name_of(data: Any) -> Any:
    """Return the name or path of data; those given from Python are stored first."""
    return data if isinstance(data, (str, Path)) and not python_data.is_text(str(data)) else python_data.store(data)


# ---------------------------------------------------------------------- rows of a table


def match_rows(run: Run, known: Data, data: Any) -> GivenData:
    """Encode rows by the run's encoder and classes; rows without a target are left out."""
    assert known.encoder is not None
    table, dropped = read_rows(data), 0
    if not predicts(run):
        split = Split({"point": torch.from_numpy(known.encoder.encode(table))})
    else:
        name = known.target or next((name for name in LABELS if name in table.columns), TARGET)
        present = drop_missing_targets({"test": table}, name)[0]["test"]
        dropped = len(table) - len(present)
        split = encode_rows(known, present, name)
    return GivenData(replace(known, splits={**known.splits, "test": split}), len(split), "rows", dropped)


def encode_rows(known: Data, table: Table, name: str) -> Split:
    """Encode rows by the run's encoder, and the target of this name by its classes."""
    assert known.encoder is not None
    column, point = table[name], torch.from_numpy(known.encoder.encode(table))
    if not known.classes:
        if is_words(column):
            raise EngramError(f'The target "{name}" must be numbers, as in training.')
        target = torch.from_numpy(column).float()
        check_finite("the table", name, target)
        return Split({"point": point, "target": target})
    words = [str(cell) for cell in (column if is_words(column) else as_words(column))]
    names = tuple(dict.fromkeys(words))
    codes = torch.tensor([names.index(word) for word in words])
    return Split({"point": point, "label": map_labels(names, known.classes, codes)})


def read_rows(data: Any) -> Table:
    """Return a table from a path, the name of a table data set, a data frame or arrays."""
    if is_frame(data):
        return frame_to_table(data)
    if not isinstance(data, (str, Path)):
        splits = python_data.to_parts(data).splits
    elif isinstance(data, str) and python_data.is_stored(data):
        splits = python_data.read_stored(data).splits
    elif Path(data).suffix.lower() in FILES:
        return read_table_file(Path(data))
    else:
        loaded = datasets.load(data)
        if loaded.encoder is None:
            raise EngramError(f"A run on a table is evaluated on a table: give a CSV or Parquet file, not {data}.")
        return rows_of_dataset(loaded)
    return join_tables(splits, "what was given")


def read_table_file(path: Path) -> Table:
    """Read all rows of a CSV, Parquet, .npy or .npz file."""
    if not path.is_file():
        raise EngramError(f"There is no file {path}.")
    if path.suffix.lower() in (".csv", ".parquet"):
        return read_table(path)
    return join_tables(read_npz(path).splits, str(path))


def join_tables(splits: Any, source: str) -> Table:
    """Return the rows of all splits as one table."""
    tables = [split["table"] for split in splits.values() if "table" in split]
    if not tables:
        raise EngramError(f"A run on a table is evaluated on a table, and {source} holds none.")
    return Table({name: np.concatenate([table[name] for table in tables]) for name in tables[0].columns})


def rows_of_dataset(loaded: Data) -> Table:
    """Return the test split of a data set of numbers as a table whose last column is the target."""
    assert loaded.encoder is not None
    split = loaded.test
    columns = dict(zip(loaded.encoder.names, split["point"].double().numpy().T, strict=True))
    if "label" in split:
        columns[TARGET] = np.array([loaded.classes[k] for k in split["label"].tolist()], dtype=object)
    elif "target" in split:
        columns[TARGET] = split["target"].double().numpy()
    return Table(columns)


# ---------------------------------------------------------------------- images


def match_images(run: Run, known: Data, data: Any) -> GivenData:
    """Return images of the shape that the run's model takes, with labels as indices of its classes."""
    name = name_of(data)
    loaded = datasets.load(name)
    given = isinstance(name, Path) or loaded.info.source == str(Path(str(name)))
    target = "target" if "target" in known.train else "label"
    needed = ("image", target) if predicts(run) else ("image",)
    if not set(needed) <= set(next(iter(loaded.splits.values()))):
        kind = "labeled images" if len(needed) > 1 else "images"
        raise EngramError(f"{run.recipe.name} is evaluated on {kind}, and {name} has none.")
    splits = list(loaded.splits.values()) if given or python_data.is_stored(str(name)) else [loaded.test]
    check_shape(name, tuple(splits[0]["image"].shape[1:]), tuple(known.train["image"].shape[1:]))
    columns = {column: torch.cat([split[column][:] for split in splits]) for column in needed}
    if "label" in columns:
        columns["label"] = map_labels(loaded.classes, known.classes, columns["label"])
    split = Split(columns)
    return GivenData(replace(known, splits={**known.splits, "test": split}), len(split), "images")


def check_shape(name: Any, found: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """Refuse images or patterns of another shape than the model takes."""
    if found != wanted:
        shapes = ["×".join(map(str, shape)) for shape in (wanted, found)]
        raise EngramError(f"The model takes images of {shapes[0]}, and those of {name} have the shape {shapes[1]}.")


def map_labels(names: tuple[str, ...], known: tuple[str, ...], label_N: Tensor) -> Tensor:
    """Return labels as indices of the run's classes."""
    foreign = [name for name in names if name not in known]
    if foreign:
        raise EngramError(f'The data have the class "{foreign[0]}", and the model knows {", ".join(known[:20])}.')
    return torch.tensor([known.index(name) for name in names])[label_N]


# ---------------------------------------------------------------------- texts, sequences, patterns


def match_texts(run: Run, known: LabeledTexts, data: Any) -> GivenData:
    """Return labeled texts with the run's classes: of a data set by name, its test split."""
    recipe: Any = run.recipe
    name = str(name_of(data))
    loaded = load_labeled(name, recipe.columns)
    parts = [loaded.test] if name in datasets.list_names() else list(loaded.splits.values())
    label_N = torch.cat([part["label"] for part in parts])
    texts = Strings.from_texts(text for part in parts for text in part["text"])
    split = Split({"text": texts, "label": map_labels(loaded.classes, known.classes, label_N)})
    split = encode_split(split, known.tokenizer, recipe.model.context)
    return GivenData(replace(known, splits={**known.splits, "test": split}), len(split), "texts")


def reload_data(run: Run, data: Any) -> GivenData:
    """Load texts, pairs, sequences, time series or patterns as the run loads its own, with its tokenizer."""
    name, known = datasets.absolute(str(name_of(data))), run.data
    recipe = override(run.recipe, data=name)
    if isinstance(known, Data) and not hasattr(recipe, "task"):
        check_columns(name, datasets.load(name), known)
    same = type(getattr(recipe, "task", None)) is type(getattr(run.recipe, "task", None))
    loaded = recipe.reload(run.folder.path) if same else None
    if type(loaded) is not type(known):
        raise EngramError(
            f"{recipe.name} has learned {run.recipe.data}, and {name} holds data of another kind: give the same kind."
        )
    if isinstance(loaded, Data) and isinstance(known, Data):
        check_columns(name, loaded, known)
    size, unit = getattr(getattr(loaded, "info", None), "sizes", {}).get("test", 0), recipe.unit
    if isinstance(loaded, Corpus):
        size, unit = len(loaded["test"].ids), "words" if unit == "words" else "tokens"
    elif hasattr(recipe, "stored_patterns"):
        size = len(recipe.stored_patterns(run.learner.model, loaded))
    elif hasattr(loaded, "mean_I"):
        unit = "steps"
    return GivenData(loaded, size, unit)


def check_columns(name: str, loaded: Data, known: Data) -> None:
    """Refuse sequences, points or patterns that the model of a run cannot take."""
    first, own = loaded.train, known.train
    if lacking := [column for column in own if column not in first]:
        raise EngramError(f"The model was trained on a column {lacking[0]}, and {name} has none.")
    if loaded.encoder is not None:
        raise EngramError(f"The model was trained on {known.info.name}, which is no table, and {name} is one.")
    for column in {"image", "pattern"} & set(own):
        check_shape(name, tuple(first[column].shape[1:]), tuple(own[column].shape[1:]))
    kinds = [{column: (split[column].dtype, split[column].ndim) for column in ("source", "target") if column in split}
             for split in (first, own)]  # fmt: skip
    if kinds[0] != kinds[1]:
        raise EngramError(f"The model was trained on {known.info.name}, and {name} has other inputs or targets.")
    if "point" in own and first["point"].shape[-1] != own["point"].shape[-1]:
        widths = own["point"].shape[-1], first["point"].shape[-1]
        raise EngramError(f"The model takes points of {widths[0]} numbers, and those of {name} have {widths[1]}.")
    if "source" in own and not own["source"].is_floating_point() and first["source"].max() > own["source"].max():
        raise EngramError(f"The model knows the symbols 0 to {int(own['source'].max())}, and {name} has more.")
