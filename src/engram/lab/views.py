"""What can be asked of every run alike: its figures, a look inside, samples; and of data that somebody brought."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engram.core.errors import EngramError
from engram.core.registry import from_json
from engram.core.seeding import aside
from engram.data.own import load_own
from engram.figures.figure import Figure
from engram.figures.pictures import png
from engram.figures.report import looked, sampled
from engram.lab.arrays import picture, plot
from engram.lab.desk import Answer, Models, ask
from engram.lab.workshop import OWN

MOST = 1000
"""things that are made for a page at once"""


@dataclass(frozen=True, kw_only=True)
class Figures:
    run: str = ""
    step: int = -1


@ask("views.figures")
def figures(asked: Figures, models: Models) -> Iterator[Answer]:
    """The figures of the report, one by one, as the checkpoint has them."""
    run = models.open(asked.run, asked.step)
    yield from map(drawn, one_by_one(run, run.recipe.figures(run.learner, run.data)))


@dataclass(frozen=True, kw_only=True)
class Look:
    run: str = ""
    step: int = -1
    subject: dict[str, Any] = field(default_factory=dict)


@ask("views.look")
def look(asked: Look, models: Models) -> Iterator[Answer]:
    """What `engram look` shows."""
    run = models.open(asked.run, asked.step)
    said, views = looked(run, from_json(run.recipe.Subject(), asked.subject))
    yield {"said": said}
    yield from map(drawn, views)


def one_by_one(run: Any, views: Iterator[Figure]) -> Iterator[Figure]:
    """Each drawn aside, and nothing left aside between two of them, when the desk turns to others."""
    while True:
        with aside(run.learner.model, run.recipe.seed):
            one = next(views, None)
        if one is None:
            return
        yield one


def drawn(figure: Figure) -> Answer:
    return {"title": figure.title, "caption": figure.caption, "plot": plot(figure.plot)}


@dataclass(frozen=True, kw_only=True)
class Make:
    run: str = ""
    step: int = -1
    count: int = 0
    seed: int = 0
    asked: dict[str, Any] = field(default_factory=dict)


@ask("views.sample")
def sample(asked: Make, models: Models) -> Answer:
    """What `engram sample` makes."""
    if asked.count > MOST:
        raise EngramError(f"The lab makes {MOST} things at once at most: `engram sample` makes more.")
    run = models.open(asked.run, asked.step)
    made = sampled(run, asked.count or None, asked.seed, from_json(run.recipe.Ask(), asked.asked))
    image = picture(png(made.image, scale=3)) if made.image is not None else None
    return {"text": made.text, "image": image}


@dataclass(frozen=True, kw_only=True)
class Brought:
    name: str = ""


@ask("views.data")
def brought(asked: Brought, models: Models) -> Answer:
    """What is in data that somebody brought."""
    info = load_own(models.root / OWN / "data" / Path(asked.name).name).info
    return {"kind": info.kind, "sizes": dict(info.sizes), "columns": dict(info.columns)}
