"""Instrument of diffusion: the sampling trajectory from fixed noise to images or points, step by step."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, Le
from torch import Tensor

from engram.core.config import Settings
from engram.core.errors import EngramError
from engram.core.seeding import generator, isolated_eval
from engram.generative.diffusion.model import Diffusion
from engram.generative.diffusion.samplers import SamplerName, TrajectoryStep
from engram.plots.arrays import data_url, pack_array
from engram.plots.images import grid, png
from engram.plots.instrument import Models, Response, endpoint, register_instrument

register_instrument(
    "diffusion",
    title="Diffusion sampling",
    about="Scrub the sampling trajectory from noise to images; compare samplers and guidance from the same noise.",
    recipes=("diffusion",),
    folder=Path(__file__).parent,
)

MAX_IMAGES, MAX_POINTS, MAX_STEPS, MAX_GUIDANCE = 16, 1000, 100, 20.0
MAX_VALUES = 16 * 3 * 96 * 96
"""pixels times channels of all images of one request"""
REAL_POINTS = 800
"""test points shown behind the samples"""
EXTENT = 3.2
"""half the side of the plot of points, in standard deviations of the data"""
ARROWS = 21
"""arrows of the score per row"""


@dataclass(frozen=True, kw_only=True)
class RunArgs(Settings):
    """A run of a diffusion model."""

    run: str = ""
    step: int = -1


@dataclass(frozen=True, kw_only=True)
class TrajectoryArgs(RunArgs):
    """Initial noise and sampler of a trajectory."""

    seed: Annotated[int, Ge(0), Le(2**31)] = 0
    """seed of the initial noise"""
    count: Annotated[int, Ge(1), Le(MAX_POINTS)] = 8
    """number of images or points"""
    sampler: SamplerName = "dpm-solver-2"
    steps: Annotated[int, Ge(1), Le(MAX_STEPS)] = 20
    """steps of the sampler"""
    condition: Literal["none", "each", "one"] = "none"
    """unconditional, each class in turn, or the class `label`"""
    label: Annotated[int, Ge(0), Le(10_000)] = 0
    guidance: Annotated[float, Ge(0), Le(MAX_GUIDANCE)] = 0.0
    """classifier-free guidance scale"""


@endpoint("diffusion.about")
def about(args: RunArgs, models: Models) -> Response:
    """Return the sample space, the classes and the default sampler of a run; for points also test points."""
    run = open_run(args, models)
    config, default = run.learner.model.config, run.recipe.sampling
    response = {
        "is_image": config.is_image, "shape": list(config.shape), "timesteps": config.timesteps, "step": run.step,
        "classes": list(run.data.classes[: config.classes]), "sampler": default.sampler,
        "steps": min(default.sampler_steps, MAX_STEPS), "guidance": min(default.guidance, MAX_GUIDANCE),
    }  # fmt: skip
    if config.is_image:
        return response
    real = run.recipe.real_samples(run.data, "test", REAL_POINTS)
    low, high = (config.center + side * EXTENT * config.scale for side in (-1, 1))
    return response | {"real": pack_array(first_two(real)), "range": [low, high], "arrows": ARROWS}


@endpoint("diffusion")
def trajectory(args: TrajectoryArgs, models: Models) -> Iterator[Response]:
    """Yield each step of a trajectory: noisy samples, predicted clean samples, and for points the score."""
    run = open_run(args, models)
    model: Diffusion = run.learner.model
    check_count(model, args)
    x_T = model.noise(args.count, generator(args.seed, "noise"))
    steps = model.trajectory(
        x_T, generator(args.seed, "way"), sampler=args.sampler, steps=args.steps,
        label_B=class_labels(model, args), guidance=args.guidance,
    )  # fmt: skip
    number = 0
    while True:
        with isolated_eval(model, args.seed):  # for each step: other requests are served in between
            step = next(steps, None)
            if step is None:
                return
            part = step_json(model, step)
        yield {"number": number, **part}
        number += 1


def open_run(args: RunArgs, models: Models) -> Any:
    """Open a run, and refuse models other than diffusion."""
    run = models.open(args.run, args.step)
    if not isinstance(run.learner.model, Diffusion):
        kind = type(run.learner.model).__name__
        raise EngramError(f"{args.run} is a run of {kind}; this instrument opens those of diffusion.")
    return run


def check_count(model: Diffusion, args: TrajectoryArgs) -> None:
    """Refuse more images than one request may have."""
    config = model.config
    if config.is_image and args.count > MAX_IMAGES:
        raise EngramError(f"count must be at most {MAX_IMAGES} for images, not {args.count}.")
    if config.is_image and args.count * config.numel > MAX_VALUES:
        most = MAX_VALUES // config.numel
        raise EngramError(f"count must be at most {most} for images of this size, not {args.count}.")


def class_labels(model: Diffusion, args: TrajectoryArgs) -> Tensor | None:
    """Class of each sample, B; None for unconditional samples."""
    if args.condition == "none":
        return None
    if args.condition == "one":
        return torch.full((args.count,), args.label)
    return torch.arange(args.count) % max(1, model.config.classes)


def step_json(model: Diffusion, step: TrajectoryStep) -> Response:
    """One step of a trajectory as JSON: images as PNG, points as arrays."""
    a, s = model.schedule.at(step.t)
    response: Response = {"t": step.t, "signal": a, "noise": s}
    x, x_0 = (model.config.denormalize(u) for u in (step.x, step.x_0))
    if model.config.is_image:
        columns = min(4, len(x))
        return response | {name: data_url(png(grid(one, columns))) for name, one in (("x", x), ("x_0", x_0))}
    if model.config.shape == (2,):
        response["score"] = pack_array(score_field(model, step.t))
    return response | {"x": pack_array(first_two(x)), "x_0": pack_array(first_two(x_0))}


def first_two(x_ND: Tensor) -> Tensor:
    """The first two coordinates of points, N × 2."""
    return x_ND[:, [0, min(1, x_ND.shape[1] - 1)]]


def score_field(model: Diffusion, t: int) -> Tensor:
    """Score on a grid, row by row from the bottom.

    Lengths are square roots, so that small ones can be seen.
    """
    line = model.config.center + model.config.scale * torch.linspace(-EXTENT, EXTENT, ARROWS)
    rows, columns = torch.meshgrid(line, line, indexing="ij")
    score_N2 = model.score(torch.stack([columns.flatten(), rows.flatten()], 1), max(1, t))
    size_N1 = score_N2.norm(dim=1, keepdim=True).clamp(min=1e-12)
    return score_N2 / (size_N1 * size_N1.quantile(0.95)).sqrt()
