"""Out of the noise: the whole way from one fixed noise to pictures or points, moment by moment."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.core.seeding import aside, generator
from engram.figures.pictures import grid, png
from engram.lab.arrays import packed, picture
from engram.lab.desk import Answer, Models, ask
from engram.models.diffusion import Diffusion
from engram.models.samplers import Moment, SamplerName

MOST_PICTURES, MOST_POINTS, MOST_STEPS, MOST_GUIDANCE = 16, 1000, 100, 20.0
MOST_NUMBERS = 16 * 3 * 96 * 96
"""pixels of all pictures at once"""
REAL = 800
"""test points behind those that are made"""
FRAME = 3.2
"""how far from the middle points are drawn, in standard deviations"""
ARROWS = 21
"""arrows of the score in a row"""
LARGEST_SEED = 2**31


@dataclass(frozen=True, kw_only=True)
class Opened:
    run: str = ""
    step: int = -1


@dataclass(frozen=True, kw_only=True)
class Way:
    """A noise, and how to come out of it."""

    run: str = ""
    step: int = -1
    seed: int = 0
    """number that the noise starts from"""
    count: int = 8
    """pictures or points"""
    sampler: SamplerName = "second-order"
    steps: int = 20
    asking: Literal["open", "each", "one"] = "open"
    """for no class, for each class in turn, or for the class `label`"""
    label: int = 0
    guidance: float = 0.0

    def __post_init__(self) -> None:
        for name, low, high in (
            ("seed", 0, LARGEST_SEED), ("count", 1, MOST_POINTS), ("steps", 1, MOST_STEPS),
            ("guidance", 0, MOST_GUIDANCE), ("label", 0, 10_000),
        ):  # fmt: skip
            if not low <= getattr(self, name) <= high:
                raise EngramError(f"{name} must be from {low:g} to {high:g}, not {getattr(self, name)}.")


@ask("diffusion.about")
def about(asked: Opened, models: Models) -> Answer:
    """What kind of things the model makes, which classes it knows, and how it usually samples."""
    run = opened(asked.run, asked.step, models)
    config, usual = run.learner.model.config, run.recipe.sampling
    found = {
        "pictures": config.pictures, "shape": list(config.shape), "levels": config.levels, "step": run.step,
        "classes": list(run.data.classes[: config.classes]), "sampler": usual.sampler,
        "steps": min(usual.sampler_steps, MOST_STEPS), "guidance": min(usual.guidance, MOST_GUIDANCE),
    }  # fmt: skip
    if config.pictures:
        return found
    real = run.recipe.seen(run.data, "test", REAL)
    low, high = (config.centre + side * FRAME * config.scale for side in (-1, 1))
    return found | {"real": packed(seen(real)), "frame": [low, high], "arrows": ARROWS}


@ask("diffusion")
def way(asked: Way, models: Models) -> Iterator[Answer]:
    """Moment by moment what there is and what the model takes it for; for points also the score."""
    run = opened(asked.run, asked.step, models)
    model: Diffusion = run.learner.model
    must_fit(model, asked)
    x_T = model.noise(asked.count, generator(asked.seed, "noise"))
    moments = model.way(
        x_T, generator(asked.seed, "way"), sampler=asked.sampler, steps=asked.steps,
        label_B=labels(model, asked), guidance=asked.guidance,
    )  # fmt: skip
    number = 0
    while True:
        with aside(model, asked.seed):  # for each moment anew: between two of them others are answered
            moment = next(moments, None)
            if moment is None:
                return
            part = drawn(model, moment)
        yield {"number": number, **part}
        number += 1


def opened(run: str, step: int, models: Models) -> Any:
    found = models.open(run, step)
    if not isinstance(found.learner.model, Diffusion):
        kind = type(found.learner.model).__name__
        raise EngramError(f"{run} holds a {kind}, and only a diffusion model leads out of the noise.")
    return found


def must_fit(model: Diffusion, asked: Way) -> None:
    config = model.config
    if config.pictures and asked.count > MOST_PICTURES:
        raise EngramError(f"count must be at most {MOST_PICTURES} for pictures, not {asked.count}.")
    if config.pictures and asked.count * config.numbers > MOST_NUMBERS:
        most = MOST_NUMBERS // config.numbers
        raise EngramError(f"count must be at most {most} for pictures as large as these, not {asked.count}.")


def labels(model: Diffusion, asked: Way) -> Tensor | None:
    if asked.asking == "open":
        return None
    if asked.asking == "one":
        return torch.full((asked.count,), asked.label)
    return torch.arange(asked.count) % max(1, model.config.classes)


def drawn(model: Diffusion, moment: Moment) -> Answer:
    """One moment, ready for the page."""
    a, s = model.levels.at(moment.t)
    found: Answer = {"t": moment.t, "signal": a, "noise": s}
    x, x_0 = (model.config.outside(u) for u in (moment.x, moment.x_0))
    if model.config.pictures:
        columns = min(4, len(x))
        return found | {name: picture(png(grid(one, columns))) for name, one in (("x", x), ("x_0", x_0))}
    if model.config.shape == (2,):
        found["score"] = packed(arrows(model, moment.t))
    return found | {"x": packed(seen(x)), "x_0": packed(seen(x_0))}


def seen(x_ND: Tensor) -> Tensor:
    """The first two coordinates of points."""
    return x_ND[:, [0, min(1, x_ND.shape[1] - 1)]]


def arrows(model: Diffusion, t: int) -> Tensor:
    """The score over the frame, row by row from below; as long as the root of its size, so that small ones are seen."""
    line = model.config.centre + model.config.scale * torch.linspace(-FRAME, FRAME, ARROWS)
    rows, columns = torch.meshgrid(line, line, indexing="ij")
    score_N2 = model.score(torch.stack([columns.flatten(), rows.flatten()], 1), max(1, t))
    size_N1 = score_N2.norm(dim=1, keepdim=True).clamp(min=1e-12)
    return score_N2 / (size_N1 * size_N1.quantile(0.95)).sqrt()
