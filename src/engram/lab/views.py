"""Endpoints of every run: figures, inspection, samples; and the description of uploaded data."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge

from engram.core.config import Settings, from_json
from engram.core.errors import EngramError
from engram.core.seeding import isolated_eval
from engram.data.user_data import load_user_data
from engram.lab.inference_worker import Models
from engram.lab.scheduler import LAB_FOLDER
from engram.plots.arrays import data_url, plotly_json
from engram.plots.figure import Figure
from engram.plots.images import png
from engram.plots.instrument import Response, endpoint
from engram.plots.report import inspect_run, sample_run

MAX_SAMPLES = 1000
"""samples of one request"""


@dataclass(frozen=True, kw_only=True)
class FiguresArgs(Settings):
    run: str = ""
    step: int = -1


@endpoint("views.figures")
def figures(args: FiguresArgs, models: Models) -> Iterator[Response]:
    """The figures of the report at a checkpoint, one by one."""
    run = models.open(args.run, args.step)
    yield from map(figure_json, isolated(run, run.recipe.figures(run.learner, run.data)))


@dataclass(frozen=True, kw_only=True)
class InspectionArgs(Settings):
    run: str = ""
    step: int = -1
    args: dict[str, Any] = field(default_factory=dict)
    """flags of `engram inspect`"""


@endpoint("views.inspect")
def inspect(args: InspectionArgs, models: Models) -> Iterator[Response]:
    """The figures of `engram inspect`."""
    run = models.open(args.run, args.step)
    description, views = inspect_run(run, from_json(run.recipe.InspectArgs(), args.args))
    yield {"description": description}
    yield from map(figure_json, views)


def isolated(run: Any, views: Iterator[Figure]) -> Iterator[Figure]:
    """Compute each figure in evaluation mode with its own random numbers, restored between two figures."""
    while True:
        with isolated_eval(run.learner.model, run.recipe.seed):
            figure = next(views, None)
        if figure is None:
            return
        yield figure


def figure_json(figure: Figure) -> Response:
    """Title, caption and plot of a figure, as JSON."""
    return {"title": figure.title, "caption": figure.caption, "plot": plotly_json(figure.plot)}


@dataclass(frozen=True, kw_only=True)
class SamplingArgs(Settings):
    run: str = ""
    step: int = -1
    count: Annotated[int, Ge(0)] = 0
    """number of samples; 0 uses the recipe's default"""
    seed: int = 0
    args: dict[str, Any] = field(default_factory=dict)
    """flags of `engram sample`"""


@endpoint("views.sample")
def sample(args: SamplingArgs, models: Models) -> Response:
    """Text and image of `engram sample`."""
    if args.count > MAX_SAMPLES:
        raise EngramError(f"The lab draws at most {MAX_SAMPLES} samples at once: `engram sample` draws more.")
    run = models.open(args.run, args.step)
    result = sample_run(run, args.count or None, args.seed, from_json(run.recipe.SampleArgs(), args.args))
    image = data_url(png(result.image, scale=3)) if result.image is not None else None
    return {"text": result.text, "image": image}


@dataclass(frozen=True, kw_only=True)
class DataArgs(Settings):
    name: str = ""


@endpoint("views.data")
def data(args: DataArgs, models: Models) -> Response:
    """Kind, sizes and columns of an uploaded data set."""
    info = load_user_data(models.root / LAB_FOLDER / "data" / Path(args.name).name).info
    return {"kind": info.kind, "sizes": dict(info.sizes), "columns": dict(info.columns)}
