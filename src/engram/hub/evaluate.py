"""Evaluation of a run on other data, with bootstrap confidence intervals of scores by sample.

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
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.seeding import generator, isolated_eval
from engram.data.dataset import Data, Split
from engram.hub.classify import class_scores
from engram.hub.evaluation_data import match_data
from engram.hub.load import find_recipe, load
from engram.hub.predict import INPUTS, predict_split
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
    dropped: int = 0
    """rows left out because they have no target"""


def evaluate(source: str | Path, data: Any, resamples: int = RESAMPLES) -> Evaluation:
    """Evaluate a run on other data: a data set by name, a path, or arrays and data frames.

    Without data (None) a model that has benchmarks of its own, such as word vectors, is evaluated on these.
    """
    if data is None:
        return evaluate_benchmarks(str(source))
    run = Run.open(Path(source))
    given = match_data(run, data)
    score = getattr(run.recipe, "score", None) if getattr(run.recipe, "predicts", True) else None
    with isolated_eval(run.learner.model, run.recipe.seed):
        if score is None:
            value, samples = run.recipe.evaluate(run.learner, given.data, "test"), []
            if (run.folder.path / INPUTS).exists() and isinstance(given.data, Data) and given.data.classes:
                samples = resampled_accuracy(run.learner.model, given.data["test"], resamples)
        else:
            split = given.data["test"]
            outputs = outputs_of(run.learner.model, split)
            value = score(outputs, split)
            samples = [score(outputs[index], split.select(index)) for index in resampled(len(split), resamples)]
    defined = [name for name, one in value.items() if math.isfinite(one)]  # R² is not, if all targets are the same
    if not defined:
        raise EngramError(f"{given.size:,} {given.unit} are too few for the metrics of {run.recipe.name}: give more.")
    metrics = {name: interval(value[name], [one[name] for one in samples if name in one]) for name in defined}
    return Evaluation(metrics, given.size, given.unit, given.dropped)


def outputs_of(model: Any, split: Split) -> Tensor:
    """Return what the model says of each sample."""
    return classify_rows(model, split["ids"][:]) if "ids" in split else predict_split(model, split)


def evaluate_benchmarks(source: str) -> Evaluation:
    """Evaluate a run or checkpoint on the benchmarks of its recipe."""
    benchmark = getattr(find_recipe(source), "benchmark", None)
    if benchmark is None:
        raise EngramError("engram evaluate needs data: engram evaluate RUN --data NAME or PATH.")
    model = load(source)
    with isolated_eval(model, 0):
        found, size = benchmark(model)
    return Evaluation({name: Interval(value) for name, value in found.items()}, size, "questions")


def resampled(size: int, count: int) -> list[Tensor]:
    """Return bootstrap samples: indices drawn with replacement."""
    random = generator(0, "bootstrap")
    return [torch.randint(size, (size,), generator=random) for _ in range(count)]


def resampled_accuracy(model: nn.Module, split: Split, count: int) -> list[dict[str, float]]:
    """Return the accuracy of a classifier on bootstrap samples."""
    right_N = (predict_split(class_scores(model), split).argmax(1) == split["label"]).double()
    return [{"accuracy": right_N[index].mean().item()} for index in resampled(len(split), count)]


def interval(value: float, samples: list[float]) -> Interval:
    """Return a metric with its percentile interval."""
    if not samples:
        return Interval(value)
    ends = torch.tensor(samples, dtype=torch.float64).quantile(
        torch.tensor([(1 - LEVEL) / 2, (1 + LEVEL) / 2]).double()
    )
    return Interval(value, *ends.tolist())
