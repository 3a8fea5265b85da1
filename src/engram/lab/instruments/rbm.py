"""Boltzmann machine: a picture that is drawn, corrupted and dreamt on, one round of Gibbs sampling after the other."""

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.core.registry import must_be_item
from engram.core.seeding import generator
from engram.lab.arrays import packed
from engram.lab.desk import Answer, Models, ask
from engram.lab.equations import equations
from engram.layers.bernoulli import draw
from engram.models.rbm import RBM
from engram.recipes.rbm import drawn

LARGEST = 64 * 64 * 3
MOST_ROUNDS, MOST_PARTS = 2000, 200
MOST_FILTERS = 64
COMPARED = 200
"""test pictures that a drawing is compared with"""
LARGEST_SEED = 2**31

Half = Literal["nothing", "upper", "lower", "left", "right"]


class Machine(NamedTuple):
    """A machine with its pictures."""

    rbm: RBM
    data: Any
    shape: tuple[int, int, int]
    """C × H × W"""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A run of an RBM."""

    run: str = ""
    step: int = -1
    temperature: float = 0.0
    """how freely units flip; 0 is the machine's own"""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 10:
            raise EngramError(f"temperature must be between 0 and 10, not {self.temperature}.")

    def machine(self, models: Models) -> Machine:
        """The run's machine, at another temperature if one is asked for."""
        run = models.open(self.run, self.step)
        if not isinstance(run.learner.model, RBM):
            raise EngramError(f"{self.run} is a run of {run.recipe.name}; this instrument opens those of rbm.")
        shape = tuple(run.data.test["image"].shape[1:])
        if shape[0] not in (1, 3) or math.prod(shape) > LARGEST:
            raise EngramError(f"Pictures of {' × '.join(map(str, shape))} are too large, or have no colours to show.")
        rbm = copy.copy(run.learner.model)
        rbm.config = replace(rbm.config, temperature=self.temperature or rbm.config.temperature)
        return Machine(rbm, run.data, shape)


@dataclass(frozen=True, kw_only=True)
class Drawn(Opened):
    """A picture that is given: brightnesses from 0 to 1, C × H × W of them in a row."""

    picture: tuple[float, ...] = (0.0,)
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.picture) > LARGEST:
            raise EngramError(f"picture may have {LARGEST} numbers at most, not {len(self.picture)}.")
        if not all(0 <= value <= 1 for value in self.picture):
            raise EngramError("picture must have numbers from 0 to 1.")
        if not 0 <= self.seed < LARGEST_SEED:
            raise EngramError(f"seed must be between 0 and {LARGEST_SEED - 1}, not {self.seed}.")

    def given(self, shape: tuple[int, ...]) -> Tensor:
        """1 × V"""
        if len(self.picture) != math.prod(shape):
            raise EngramError(f"picture must have {' × '.join(map(str, shape))} numbers, not {len(self.picture)}.")
        return torch.tensor([self.picture], dtype=torch.float32)  # a page writes 1.0 as 1


def half_of(shape: tuple[int, int, int], half: Half) -> Tensor:
    """V: true in that half of a picture."""
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


# ---------------------------------------------------------------------- what there is


@ask("rbm")
def opened(asked: Opened, models: Models) -> Answer:
    """What the machine is like."""
    rbm, data, shape = asked.machine(models)
    energy, gibbs, free = equations("engram.models.rbm")[:3]
    return {
        "shape": list(shape),
        "hidden": rbm.config.hidden,
        "temperature": rbm.config.temperature,
        "test": len(data.test),
        "equations": [{"text": one.text, "mathml": one.mathml} for one in (energy, gibbs, free)],
    }


@dataclass(frozen=True, kw_only=True)
class Taken(Opened):
    """A test picture, by its number."""

    item: int = 0


@ask("rbm.picture")
def picture(asked: Taken, models: Models) -> Answer:
    """Its brightnesses, and what it is called."""
    test, classes = (data := asked.machine(models).data).test, data.classes
    must_be_item(asked.item, len(test))
    label = str(classes[int(test["label"][asked.item])]) if "label" in test and classes else ""
    return {"picture": packed(test["image"][asked.item].flatten().float() / 255), "label": label}


@dataclass(frozen=True, kw_only=True)
class Corrupted(Drawn):
    """A picture of which pixels are drawn anew, evenly, or a half is covered."""

    how: Literal["noise", "upper", "lower", "left", "right"] = "noise"
    part: float = 0.2
    """of the pixels, that are lost"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.part <= 1:
            raise EngramError(f"part must be between 0 and 1, not {self.part}.")


@ask("rbm.corrupt")
def corrupt(asked: Corrupted, models: Models) -> Answer:
    """What is left of a picture."""
    shape, random = asked.machine(models).shape, generator(asked.seed, "corrupt")
    v_BV = asked.given(shape)
    if asked.how == "noise":
        lost, noise = torch.rand(v_BV.shape, generator=random) < asked.part, torch.rand(v_BV.shape, generator=random)
        return {"picture": packed(torch.where(lost, noise.round(), v_BV)[0])}
    return {"picture": packed(torch.where(half_of(shape, asked.how), 0.0, v_BV)[0])}


# ---------------------------------------------------------------------- what the machine sees in it


@ask("rbm.look")
def look(asked: Drawn, models: Models) -> Answer:
    """Hidden units, what they make of the picture, its free energy, and which units it turns on more than others do."""
    rbm, data, shape = asked.machine(models)
    v_BV = asked.given(shape)
    h_H = rbm.hidden(v_BV)[0]
    some_NV = drawn(data.test["image"][:COMPARED], generator(0, "compared"))
    more_H = h_H - rbm.hidden(some_NV).mean(0)
    return {
        "hidden": packed(h_H),
        "reconstruction": packed(rbm(v_BV)[0]),
        "free_energy": rbm.free_energy(v_BV).item(),
        "usual": rbm.free_energy(some_NV).quantile(torch.tensor([0.05, 0.5, 0.95])).tolist(),
        "most": more_H.topk(min(12, len(more_H))).indices.tolist(),
    }


@dataclass(frozen=True, kw_only=True)
class Wanted(Opened):
    """Hidden units whose weights are to be seen."""

    units: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.units) > MOST_FILTERS:
            raise EngramError(f"units may name {MOST_FILTERS} at most, not {len(self.units)}.")


@ask("rbm.filters")
def filters(asked: Wanted, models: Models) -> Answer:
    """The weights of hidden units as pictures, and their biases."""
    rbm = asked.machine(models).rbm
    if not all(0 <= unit < rbm.config.hidden for unit in asked.units):
        raise EngramError(f"units must be between 0 and {rbm.config.hidden - 1}.")
    chosen = list(asked.units)
    return {"units": chosen, "filters": packed(rbm.W[:, chosen].T), "bias": packed(rbm.c[chosen])}


# ---------------------------------------------------------------------- dreams


@dataclass(frozen=True, kw_only=True)
class Dreamt(Drawn):
    """Rounds of Gibbs sampling from a picture."""

    rounds: int = 1
    hold: Half = "nothing"
    """the half that is held while the rest is filled in"""
    begun: int = 0
    """rounds that the picture has behind it; what is not held begins as noise at the first"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.rounds <= MOST_ROUNDS:
            raise EngramError(f"rounds must be between 1 and {MOST_ROUNDS}, not {self.rounds}.")
        if not 0 <= self.begun < LARGEST_SEED:
            raise EngramError(f"begun must be between 0 and {LARGEST_SEED - 1}, not {self.begun}.")


@ask("rbm.dream")
def dream(asked: Dreamt, models: Models) -> Iterator[Answer]:
    """Rounds as they come, some to a part: the last one's picture, and the energies of all."""
    rbm, _, shape = asked.machine(models)
    random = generator(asked.seed, f"dream from {asked.begun}")
    v_BV, known_V = begin(asked, rbm, shape, random), half_of(shape, asked.hold)
    together, energies, free = math.ceil(asked.rounds / MOST_PARTS), [], []
    for number in range(1, asked.rounds + 1):
        h_BH = draw(rbm.hidden(v_BV), random)
        p_BV = rbm.visible(h_BH)
        v_BV = torch.where(known_V, v_BV, draw(p_BV, random))
        energies.append(rbm.energy(v_BV, h_BH).item())
        free.append(rbm.free_energy(v_BV).item())
        if number % together == 0 or number == asked.rounds:
            yield {
                "round": asked.begun + number, "probability": packed(torch.where(known_V, v_BV, p_BV)[0]),
                "visible": packed(v_BV[0]), "hidden": packed(h_BH[0]), "energy": energies, "free": free,
            }  # fmt: skip
            energies, free = [], []


def begin(asked: Dreamt, rbm: RBM, shape: tuple[int, int, int], random: torch.Generator) -> Tensor:
    """Zeros and ones to begin with: a pixel is on with the probability that its brightness says."""
    v_BV = asked.given(shape)
    if asked.begun:
        return v_BV.round()
    v_BV = draw(v_BV, generator(asked.seed, "pixels"))
    if asked.hold == "nothing":
        return v_BV
    return torch.where(half_of(shape, asked.hold), v_BV, draw(torch.sigmoid(rbm.b).expand_as(v_BV), random))
