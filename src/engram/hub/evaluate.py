"""Evaluation of a run on other data, with bootstrap confidence intervals where samples are scored one by one.

found = evaluate("runs/mlp-1", "new.csv")
found.metrics["accuracy"]                 # Interval(value=0.93, low=0.90, high=0.96)

Intervals are percentile bootstrap intervals of 95 % (Efron & Tibshirani 1993): the metric on resampled samples.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engram import data as datasets
from engram.core.config import override
from engram.core.errors import EngramError
from engram.core.seeding import generator, isolated_eval
from engram.data import python_data
from engram.data.arrays import LABELS
from engram.data.columns import Strings
from engram.data.csv_files import read_table
from engram.data.dataset import Data, Split
from engram.data.frames import frame_to_table, is_frame
from engram.data.labeled_texts import LabeledTexts, encode_split, load_labeled
from engram.data.table import Table, as_words, is_words
from engram.hub.load import find_recipe, load
from engram.hub.predict import predict_split
from engram.hub.text_classes import classify_rows
from engram.training.run import Run

RESAMPLES = 1000
LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A metric with the ends of its confidence interval, NaN if there is none."""

    value: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class Evaluation:
    """Metrics of a run on some data."""

    metrics: Mapping[str, Interval]
    size: int
    """samples that were used"""
    unit: str
    """what a sample is"""


def evaluate(source: str | Path, data: Any, resamples: int = RESAMPLES) -> Evaluation:
    """Evaluate a run on other data: a data set by name, a path, or arrays and data frames.

    Without data (None) a model that has benchmarks of its own, such as word vectors, is evaluated on these.
    """
    if data is None:
        return evaluate_benchmarks(str(source))
    run = Run.open(Path(source))
    score = getattr(run.recipe, "score", None)
    with isolated_eval(run.learner.model, run.recipe.seed):
        if score is None:
            return evaluate_whole(run, data)
        if isinstance(run.data, LabeledTexts):
            split = matching_texts(run, data)
            outputs = classify_rows(run.learner.model, split["ids"][:])
        else:
            split = matching_split(run, data)
            outputs = predict_split(run.learner.model, split)
        value = score(outputs, split)
        samples = [score(outputs[index], split.take(index)) for index in resampled(len(split), resamples)]
    unit = "images" if "image" in split else "texts" if "text" in split else "rows"
    return Evaluation({name: interval(value[name], [one[name] for one in samples]) for name in value}, len(split), unit)


def evaluate_benchmarks(source: str) -> Evaluation:
    """Evaluate a run or checkpoint on the benchmarks of its recipe."""
    benchmark = getattr(find_recipe(source), "benchmark", None)
    if benchmark is None:
        raise EngramError("engram evaluate needs data: engram evaluate RUN --data NAME or PATH.")
    model = load(source)
    with isolated_eval(model, 0):
        found, size = benchmark(model)
    return Evaluation({name: Interval(value) for name, value in found.items()}, size, "questions")


def evaluate_whole(run: Run, data: Any) -> Evaluation:
    """Evaluate on the test split of other data with the recipe's own metrics."""
    name = data if isinstance(data, (str, Path)) and not python_data.is_text(str(data)) else python_data.store(data)
    recipe = override(run.recipe, data=datasets.absolute(str(name)))
    loaded = recipe.reload(run.folder.path)
    found = recipe.evaluate(run.learner, loaded, "test")
    sizes = getattr(getattr(loaded, "info", None), "sizes", {})
    return Evaluation({name: Interval(value) for name, value in found.items()}, sizes.get("test", 0), recipe.unit)


def matching_split(run: Run, data: Any) -> Split:
    """Return the samples of other data as the run's model takes them, with its classes."""
    known: Data = run.data
    if known.encoder is not None:
        return encode_rows(known, to_table(data))
    name = data if isinstance(data, (str, Path)) else python_data.store(data)
    loaded = datasets.load(name)
    given = isinstance(name, Path) or loaded.info.source == str(Path(str(name)))
    split = merge(loaded) if given or python_data.is_stored(str(name)) else loaded.test
    if not {"image", "label"} <= set(split):
        raise EngramError(f"{run.recipe.name} is evaluated on labeled images, and {name} has none.")
    shape, wanted = tuple(split["image"].shape[1:]), tuple(known.train["image"].shape[1:])
    if shape != wanted:
        raise EngramError(f"The model takes images of {wanted}, and those of {name} have the shape {shape}.")
    return Split({"image": split["image"][:], "label": map_labels(loaded.classes, known.classes, split["label"])})


def matching_texts(run: Run, data: Any) -> Split:
    """Return labeled texts as the run's model takes them, with its classes: the test split of a data set by name."""
    known: LabeledTexts = run.data
    recipe: Any = run.recipe
    name = str(data if isinstance(data, (str, Path)) else python_data.store(data))
    loaded = load_labeled(name, recipe.columns)
    parts = [loaded.test] if name in datasets.list_names() else list(loaded.splits.values())
    label_N = torch.cat([part["label"] for part in parts])
    texts = Strings.from_texts(text for part in parts for text in part["text"])
    split = Split({"text": texts, "label": map_labels(loaded.classes, known.classes, label_N)})
    return encode_split(split, known.tokenizer, recipe.model.context)


def to_table(data: Any) -> Table:
    """Return a table from a path, a data frame or arrays."""
    if is_frame(data):
        return frame_to_table(data)
    if isinstance(data, (str, Path)) and Path(data).suffix.lower() in (".csv", ".parquet"):
        if not Path(data).is_file():
            raise EngramError(f"There is no file {data}.")
        return read_table(Path(data))
    parts = python_data.to_parts(data) if not isinstance(data, (str, Path)) else None
    if parts is None or parts.table is None:
        raise EngramError(f"A run on a table is evaluated on a table: give a CSV or Parquet file, not {data}.")
    table: Table = parts.splits[""]["table"]
    return table


def encode_rows(known: Data, table: Table) -> Split:
    """Encode rows by the run's encoder, and their target by its classes."""
    assert known.encoder is not None
    name = known.target or next((name for name in LABELS if name in table.columns), "target")
    column, point = table[name], torch.from_numpy(known.encoder.encode(table))
    if not known.classes:
        if is_words(column):
            raise EngramError(f'The target "{name}" must be numbers, as in training.')
        return Split({"point": point, "target": torch.from_numpy(column).float()})
    words = [str(cell) for cell in (column if is_words(column) else as_words(column))]
    names = tuple(dict.fromkeys(words))
    codes = torch.tensor([names.index(word) for word in words])
    return Split({"point": point, "label": map_labels(names, known.classes, codes)})


def map_labels(names: tuple[str, ...], known: tuple[str, ...], label_N: Tensor) -> Tensor:
    """Return labels as indices of the run's classes."""
    foreign = [name for name in names if name not in known]
    if foreign:
        raise EngramError(f'The data have the class "{foreign[0]}", and the model knows {", ".join(known[:20])}.')
    return torch.tensor([known.index(name) for name in names])[label_N]


def merge(loaded: Data) -> Split:
    """Join all splits."""
    first, *others = loaded.splits.values()
    return Split({name: torch.cat([first[name][:], *(other[name][:] for other in others)]) for name in first})


def resampled(size: int, count: int) -> list[Tensor]:
    """Return bootstrap samples: indices drawn with replacement."""
    random = generator(0, "bootstrap")
    return [torch.randint(size, (size,), generator=random) for _ in range(count)]


def interval(value: float, samples: list[float]) -> Interval:
    """Return a metric with its percentile interval."""
    if not samples:
        return Interval(value)
    ends = torch.tensor(samples, dtype=torch.float64).quantile(
        torch.tensor([(1 - LEVEL) / 2, (1 + LEVEL) / 2]).double()
    )
    return Interval(value, *ends.tolist())
