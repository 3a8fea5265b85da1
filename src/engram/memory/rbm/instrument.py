"""Instrument of the restricted Boltzmann machine (RBM): a Gibbs chain from an image of the user."""

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import torch
from annotated_types import Ge, Le, Lt
from torch import Tensor

from engram.core.config import Settings
from engram.core.errors import EngramError
from engram.core.recipe import check_item
from engram.core.seeding import generator
from engram.memory.rbm.base import binarize
from engram.memory.rbm.model import RBM
from engram.nn.bernoulli import sample_bernoulli
from engram.plots.arrays import pack_array
from engram.plots.equations import equations
from engram.plots.instrument import Models, Response, endpoint, register_instrument

register_instrument(
    "rbm",
    title="Restricted Boltzmann machine",
    about="Draw an image, corrupt it, and watch Gibbs sampling and its energy.",
    recipes=("rbm",),
    folder=Path(__file__).parent,
)

MAX_PIXELS = 64 * 64 * 3
MAX_STEPS, MAX_FRAMES = 2000, 200
MAX_FILTERS = 64
COMPARED = 200
"""test images that a drawing is compared with"""
Seed = Annotated[int, Ge(0), Lt(2**31)]

Half = Literal["nothing", "upper", "lower", "left", "right"]


class OpenRun(NamedTuple):
    """An RBM with its data."""

    rbm: RBM
    data: Any
    shape: tuple[int, int, int]
    """C × H × W"""


@dataclass(frozen=True, kw_only=True)
class RunArgs(Settings):
    """A run of an RBM."""

    run: str = ""
    step: int = -1
    temperature: Annotated[float, Ge(0), Le(10)] = 0.0
    """temperature of the Boltzmann distribution; 0 is that of the run"""

    def open(self, models: Models) -> OpenRun:
        """Open the run and set the temperature of its model."""
        run = models.open(self.run, self.step)
        if not isinstance(run.learner.model, RBM):
            raise EngramError(f"{self.run} is a run of {run.recipe.name}; this instrument opens those of rbm.")
        if "image" not in run.data.test:
            raise EngramError(f"{self.run} has learned rows of a table; this instrument shows images.")
        shape = tuple(run.data.test["image"].shape[1:])
        if shape[0] not in (1, 3) or math.prod(shape) > MAX_PIXELS:
            raise EngramError(
                f"Images of {' × '.join(map(str, shape))} are too large, or have neither 1 nor 3 channels."
            )
        rbm = copy.copy(run.learner.model)
        rbm.config = replace(rbm.config, temperature=self.temperature or rbm.config.temperature)
        return OpenRun(rbm, run.data, shape)


@dataclass(frozen=True, kw_only=True)
class ImageArgs(RunArgs):
    """An input image: brightness from 0 to 1, C × H × W numbers in a row."""

    image: tuple[float, ...] = (0.0,)
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.image) > MAX_PIXELS:
            raise EngramError(f"image may have {MAX_PIXELS} numbers at most, not {len(self.image)}.")
        if not all(0 <= value <= 1 for value in self.image):
            raise EngramError("image must have numbers from 0 to 1.")

    def tensor(self, shape: tuple[int, ...]) -> Tensor:
        """Return the image as a row of pixels, 1 × V."""
        if len(self.image) != math.prod(shape):
            raise EngramError(f"image must have {' × '.join(map(str, shape))} numbers, not {len(self.image)}.")
        return torch.tensor([self.image], dtype=torch.float32)  # JSON writes 1.0 as 1


def half_mask(shape: tuple[int, int, int], half: Half) -> Tensor:
    """Return a mask of the pixels of one half of an image, V."""
    _, height, width = shape
    inside = torch.zeros(shape, dtype=torch.bool)
    parts = {
        "nothing": inside[:, :0],
        "upper": inside[:, : height // 2],
        "lower": inside[:, height // 2 :],
        "left": inside[:, :, : width // 2],
        "right": inside[:, :, width // 2 :],
    }
    parts[half].fill_(True)
    return inside.flatten()


# ---------------------------------------------------------------------- model and data


@endpoint("rbm")
def describe(args: RunArgs, models: Models) -> Response:
    """Return the sizes, the temperature and the equations of a model."""
    rbm, data, shape = args.open(models)
    return {
        "shape": list(shape),
        "hidden": rbm.config.hidden,
        "temperature": rbm.config.temperature,
        "test": len(data.test),
        "equations": [{"text": one.text, "mathml": one.mathml} for one in equations("engram.memory.rbm.model")],
    }


@dataclass(frozen=True, kw_only=True)
class ItemArgs(RunArgs):
    """A test image by its index."""

    item: int = 0


@endpoint("rbm.image")
def get_image(args: ItemArgs, models: Models) -> Response:
    """Return the pixels of a test image and its label."""
    test, classes = (data := args.open(models).data).test, data.classes
    check_item(args.item, len(test))
    label = str(classes[int(test["label"][args.item])]) if "label" in test and classes else ""
    return {"image": pack_array(test["image"][args.item].flatten().float() / 255), "label": label}


@dataclass(frozen=True, kw_only=True)
class CorruptArgs(ImageArgs):
    """How to corrupt an image: replace pixels by noise, or cover a half."""

    how: Literal["noise", "upper", "lower", "left", "right"] = "noise"
    fraction: Annotated[float, Ge(0), Le(1)] = 0.2
    """fraction of the pixels replaced by noise"""


@endpoint("rbm.corrupt")
def corrupt(args: CorruptArgs, models: Models) -> Response:
    """Return the corrupted image."""
    shape, random = args.open(models).shape, generator(args.seed, "corrupt")
    v_BV = args.tensor(shape)
    if args.how == "noise":
        lost, noise = torch.rand(v_BV.shape, generator=random) < args.fraction, torch.rand(v_BV.shape, generator=random)
        return {"image": pack_array(torch.where(lost, noise.round(), v_BV)[0])}
    return {"image": pack_array(torch.where(half_mask(shape, args.how), 0.0, v_BV)[0])}


# ---------------------------------------------------------------------- hidden units and free energy


@endpoint("rbm.infer")
def infer(args: ImageArgs, models: Models) -> Response:
    """Return hidden probabilities, reconstruction, free energy, and units more active than on test images."""
    rbm, data, shape = args.open(models)
    v_BV = args.tensor(shape)
    h_H = rbm.prob_hidden(v_BV)[0]
    test_NV = binarize(data.test["image"][:COMPARED], generator(0, "compared"))
    more_H = h_H - rbm.prob_hidden(test_NV).mean(0)
    return {
        "hidden": pack_array(h_H),
        "reconstruction": pack_array(rbm(v_BV)[0]),
        "free_energy": rbm.free_energy(v_BV).item(),
        "free_energy_quantiles": rbm.free_energy(test_NV).quantile(torch.tensor([0.05, 0.5, 0.95])).tolist(),
        "most_active": more_H.topk(min(12, len(more_H))).indices.tolist(),
    }


@dataclass(frozen=True, kw_only=True)
class FilterArgs(RunArgs):
    """Hidden units whose weights are shown."""

    units: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.units) > MAX_FILTERS:
            raise EngramError(f"units may name {MAX_FILTERS} at most, not {len(self.units)}.")


@endpoint("rbm.filters")
def get_filters(args: FilterArgs, models: Models) -> Response:
    """Return the weights of hidden units as images, and their biases."""
    rbm = args.open(models).rbm
    if not all(0 <= unit < rbm.config.hidden for unit in args.units):
        raise EngramError(f"units must be between 0 and {rbm.config.hidden - 1}.")
    chosen = list(args.units)
    return {"units": chosen, "filters": pack_array(rbm.W[:, chosen].T), "bias": pack_array(rbm.c[chosen])}


# ---------------------------------------------------------------------- Gibbs sampling


@dataclass(frozen=True, kw_only=True)
class GibbsArgs(ImageArgs):
    """A Gibbs chain from an image."""

    steps: Annotated[int, Ge(1), Le(MAX_STEPS)] = 1
    """Gibbs steps"""
    clamp: Half = "nothing"
    """half of the image that is clamped while the rest is sampled"""
    start_step: Seed = 0
    """steps that the chain has taken before; at 0 the pixels that are not clamped start as noise"""


@endpoint("rbm.gibbs")
def run_gibbs(args: GibbsArgs, models: Models) -> Iterator[Response]:
    """Yield frames of a Gibbs chain: the state after some steps, and the energies of each step."""
    rbm, _, shape = args.open(models)
    random = generator(args.seed, f"dream from {args.start_step}")
    v_BV, known_V = initial_state(args, rbm, shape, random), half_mask(shape, args.clamp)
    per_frame, energies, free = math.ceil(args.steps / MAX_FRAMES), [], []
    for number in range(1, args.steps + 1):
        h_BH = sample_bernoulli(rbm.prob_hidden(v_BV), random)
        p_BV = rbm.prob_visible(h_BH)
        v_BV = torch.where(known_V, v_BV, sample_bernoulli(p_BV, random))
        energies.append(rbm.energy(v_BV, h_BH).item())
        free.append(rbm.free_energy(v_BV).item())
        if number % per_frame == 0 or number == args.steps:
            yield {
                "step": args.start_step + number, "probability": pack_array(torch.where(known_V, v_BV, p_BV)[0]),
                "visible": pack_array(v_BV[0]), "hidden": pack_array(h_BH[0]), "energy": energies, "free_energy": free,
            }  # fmt: skip
            energies, free = [], []


def initial_state(args: GibbsArgs, rbm: RBM, shape: tuple[int, int, int], random: torch.Generator) -> Tensor:
    """Return the visible units a chain starts from: the binarized image, noise where it is not clamped."""
    v_BV = args.tensor(shape)
    if args.start_step:
        return v_BV.round()
    v_BV = sample_bernoulli(v_BV, generator(args.seed, "pixels"))
    if args.clamp == "nothing":
        return v_BV
    return torch.where(
        half_mask(shape, args.clamp), v_BV, sample_bernoulli(torch.sigmoid(rbm.b).expand_as(v_BV), random)
    )
