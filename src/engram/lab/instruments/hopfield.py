"""Hopfield memory: patterns that are stored, a drawing that is given, and what a network makes of it, flip by flip."""

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

from engram.core.errors import EngramError, unknown
from engram.core.seeding import generator
from engram.core.tap import watch
from engram.data.patterns import icons, letters
from engram.lab.arrays import packed
from engram.lab.desk import Answer, Models, ask
from engram.lab.equations import equations
from engram.models.hopfield import Hopfield, Rule, sign
from engram.models.modern_hopfield import ModernHopfield
from engram.recipes.hopfield import HopfieldRecipe

SIDE = 10
UNITS = SIDE * SIDE
DRAWING = re.compile(rf"[0-9a-f]{{{UNITS // 4}}}")
EMPTY = "0" * (UNITS // 4)
SWEEPS = 30
MOST_OWN = 20
LARGEST_SEED = 2**31
MIXED = 0.3
"""overlap from which on a pattern counts as a part of a mixture, as in the report of the recipe"""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Which patterns are stored, and what is given; drawings as 25 hexadecimal digits, a bit for each pixel."""

    stored: tuple[str, ...] = ("smile", "moon", "star", "cup", "key")
    own: tuple[str, ...] = ()
    """drawings that are stored beside them"""
    drawing: str = EMPTY

    def __post_init__(self) -> None:
        for name in self.stored:
            if name not in gallery():
                raise unknown("pattern", name, gallery())
        if len(self.own) > MOST_OWN:
            raise EngramError(f"own may have {MOST_OWN} drawings at most, not {len(self.own)}.")
        for number, one in enumerate(self.own, start=1):
            must_be_drawing(one, f"drawing {number} of own")
        must_be_drawing(self.drawing, "drawing")
        if not self.stored and not self.own:
            raise EngramError("Nothing is stored: choose a pattern.")
        if len(set(self.stored)) < len(self.stored):
            raise EngramError("stored names a pattern twice.")

    @property
    def names(self) -> list[str]:
        return [*self.stored, *(f"own {number}" for number in range(1, len(self.own) + 1))]

    @property
    def patterns(self) -> Tensor:
        """M × N"""
        return torch.stack([*(gallery()[name] for name in self.stored), *map(state, self.own)])


def must_be_drawing(text: Any, name: str) -> None:
    if not isinstance(text, str) or not DRAWING.fullmatch(text):
        raise EngramError(f"{name} must be {UNITS // 4} hexadecimal digits.")


def must_be_seed(seed: int) -> None:
    if not 0 <= seed < LARGEST_SEED:
        raise EngramError(f"seed must be between 0 and {LARGEST_SEED - 1}, not {seed}.")


@cache
def gallery() -> dict[str, Tensor]:
    return {name: drawing.flatten().float() for name, drawing in {**icons(), **letters()}.items()}


def state(drawing: str) -> Tensor:
    """+1 where a drawing has ink, -1 where it has none."""
    return torch.tensor([1.0 if bit == "1" else -1.0 for bit in f"{int(drawing, 16):0{UNITS}b}"])


def digits(x_N: Tensor) -> str:
    """The drawing of a state."""
    bits = "".join("1" if unit > 0 else "0" for unit in x_N.tolist())
    return f"{int(bits, 2):0{UNITS // 4}x}"


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Asks for all patterns that can be stored."""


@ask("hopfield.gallery")
def patterns(asked: Gallery, models: Models) -> Answer:
    """All patterns, and the equations of both networks."""
    classic, modern = equations("engram.models.hopfield"), equations("engram.models.modern_hopfield")
    chosen = {"energy": classic[0], "update": classic[1], "modern": modern[1], "attention": modern[2]}
    return {
        "side": SIDE,
        "patterns": {name: digits(x_N) for name, x_N in gallery().items()},
        "equations": {name: {"text": one.text, "mathml": one.mathml} for name, one in chosen.items()},
    }


# ---------------------------------------------------------------------- corrupting


@dataclass(frozen=True, kw_only=True)
class Corrupted:
    """A drawing of which pixels are flipped, or a half is covered."""

    drawing: str = EMPTY
    how: Literal["flip", "upper", "lower", "left", "right"] = "flip"
    part: float = 0.2
    """of the pixels, to be flipped"""
    seed: int = 0

    def __post_init__(self) -> None:
        must_be_drawing(self.drawing, "drawing")
        must_be_seed(self.seed)
        if not 0 <= self.part <= 1:
            raise EngramError(f"part must be between 0 and 1, not {self.part}.")


@ask("hopfield.corrupt")
def corrupt(asked: Corrupted, models: Models) -> Answer:
    """What is left of a drawing."""
    x_N = state(asked.drawing)
    if asked.how == "flip":
        return {"drawing": digits(HopfieldRecipe().flipped(x_N, asked.part, generator(asked.seed, "cue")))}
    half, grid = SIDE // 2, x_N.view(SIDE, SIDE)
    covered = {"upper": grid[:half], "lower": grid[half:], "left": grid[:, :half], "right": grid[:, half:]}
    covered[asked.how].fill_(-1)
    return {"drawing": digits(x_N)}


# ---------------------------------------------------------------------- the classic network


@dataclass(frozen=True, kw_only=True)
class Recalled(Stored):
    """How the drawing is recalled."""

    rule: Rule = "hebb"
    together: bool = False
    """all units at once, instead of one after the other"""
    seed: int = 0
    """of the order in which units are asked"""

    def __post_init__(self) -> None:
        super().__post_init__()
        must_be_seed(self.seed)


@ask("hopfield")
def recall(asked: Recalled, models: Models) -> Answer:
    """Every change on the way from the drawing to where it ends, with energies and overlaps before and after each."""
    X_MN, x_N = asked.patterns, state(asked.drawing)
    model = Hopfield(Hopfield.Config(units=UNITS)).store(X_MN, asked.rule)
    changes, sweeps = together(model, x_N) if asked.together else one_by_one(model, x_N, asked.seed)
    states_TN = x_N.repeat(len(changes) + 1, 1)
    for step, units in enumerate(changes, start=1):
        states_TN[step:, units] *= -1
    overlap_TM = states_TN @ X_MN.T / UNITS
    return {
        "names": asked.names,
        "changes": changes,
        "sweeps": sweeps,
        "energy": packed(model.energy(states_TN)),
        "overlap": packed(overlap_TM),
        "load": len(X_MN) / UNITS,
        "stable": [name for name, kept in zip(asked.names, model(X_MN).eq(X_MN).all(1), strict=True) if kept],
        **ending(asked.names, overlap_TM[-1], bool(torch.equal(model(states_TN[-1:])[0], states_TN[-1]))),
    }


def one_by_one(model: Hopfield, x_N: Tensor, seed: int) -> tuple[list[list[int]], list[int]]:
    """The units that change in each step, and the sweep that it belongs to."""
    flips = list(model.flips(x_N, generator(seed, "order"), sweeps=SWEEPS))
    return [[unit] for _, unit in flips], [sweep + 1 for sweep, _ in flips]


def together(model: Hopfield, x_N: Tensor) -> tuple[list[list[int]], list[int]]:
    """The same where all units change at once: until none does, or twice to and fro."""
    changes: list[list[int]] = []
    for _ in range(SWEEPS):
        after = model(x_N[None])[0]
        units = (after != x_N).nonzero()[:, 0].tolist()
        if not units or changes[-4:] == [units] * 4:
            break
        changes.append(units)
        x_N = after
    return changes, list(range(1, len(changes) + 1))


def ending(names: list[str], overlap_M: Tensor, rests: bool) -> Answer:
    """Where it ended, as a kind and as a sentence."""
    best, most, least = int(overlap_M.argmax()), float(overlap_M.max()), float(overlap_M.min())
    near = f"nearest to «{names[best]}», with an overlap of {most:.2f}"
    if not rests:
        return {"kind": "cycle", "said": f"It goes to and fro between two states, {near}."}
    if most == 1:
        return {"kind": "stored", "said": f"It has ended in «{names[best]}», every pixel of it."}
    if least == -1:
        opposite = names[int(overlap_M.argmin())]
        said = f"It has ended in the opposite of «{opposite}», which has the same energy: a spurious state."
        return {"kind": "opposite", "said": said}
    if parts := [name for name, overlap in zip(names, overlap_M, strict=True) if abs(overlap) > MIXED][2:]:
        said = f"It has ended in a mixture of {len(parts) + 2} patterns, {near}: a spurious state, stored by nobody."
        return {"kind": "mixture", "said": said}
    return {"kind": "elsewhere", "said": f"It has ended in a spurious state, stored by nobody: {near}."}


# ---------------------------------------------------------------------- the modern network


@dataclass(frozen=True, kw_only=True)
class Attended(Stored):
    """How the drawing asks the stored patterns."""

    beta: float = 0.1
    steps: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.beta <= 10:
            raise EngramError(f"beta must be above 0 and at most 10, not {self.beta}.")
        if not 1 <= self.steps <= 20:
            raise EngramError(f"steps must be between 1 and 20, not {self.steps}.")


@ask("hopfield.modern")
def attend(asked: Attended, models: Models) -> Answer:
    """The state after some steps, with energies before and after each and the attention weights of each."""
    X_MN, s_N = asked.patterns, state(asked.drawing)
    model = ModernHopfield.of(X_MN, asked.beta)
    states = [s_N[None]]
    with watch(model, "weights") as seen:
        for _ in range(asked.steps):
            states.append(model(states[-1]))
    weights_TM = torch.stack([weights[0, 0, 0] for weights in seen.all("weights")])
    first, found = int(weights_TM[-1].argmax()), sign(states[-1][0])
    whole = [name for name, x_N in zip(asked.names, X_MN, strict=True) if torch.equal(x_N, found)]
    share = f"«{asked.names[first]}» has {weights_TM[-1, first]:.1%} of the attention"
    rounded = f"«{whole[0]}», every pixel of it" if whole else "none of them"
    return {
        "names": asked.names,
        "states": packed(torch.cat(states)),
        "weights": packed(weights_TM),
        "energy": packed(model.energy(torch.cat(states))),
        "said": f"{share}; rounded to black and white it is {rounded}.",
    }
