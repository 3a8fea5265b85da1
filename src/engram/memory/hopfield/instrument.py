"""Instrument of the Hopfield networks: store patterns, draw a cue, and watch the recall flip by flip."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor

from engram.core.config import Settings
from engram.core.errors import EngramError, unknown
from engram.core.seeding import generator
from engram.core.tap import watch
from engram.data.patterns import icons, letters
from engram.memory.hopfield.model import Hopfield, Rule, sign
from engram.memory.hopfield.recipe import HopfieldRecipe
from engram.memory.modern_hopfield.model import ModernHopfield
from engram.plots.arrays import pack_array
from engram.plots.equations import equations
from engram.plots.instrument import Models, Response, endpoint, register_instrument

register_instrument(
    "hopfield",
    title="Hopfield memory",
    about="Store patterns, draw over one, and watch it come back while its energy falls.",
    recipes=("hopfield", "modern-hopfield"),
    folder=Path(__file__).parent,
    needs_run=False,
)

SIDE = 10
UNITS = SIDE * SIDE
DRAWING = re.compile(rf"[0-9a-f]{{{UNITS // 4}}}")
EMPTY = "0" * (UNITS // 4)
SWEEPS = 30
MAX_OWN = 20
Seed = Annotated[int, Ge(0), Lt(2**31)]
MIXED = 0.3
"""overlap from which on a pattern counts as a part of a mixture"""


@dataclass(frozen=True, kw_only=True)
class PatternArgs(Settings):
    """Stored patterns and a cue; drawings are 25 hexadecimal digits, one bit per pixel."""

    stored: tuple[str, ...] = ("smile", "moon", "star", "cup", "key")
    drawings: tuple[str, ...] = ()
    """drawings of the user that are stored too"""
    drawing: str = EMPTY
    """cue"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.stored:
            if name not in gallery():
                raise unknown("pattern", name, gallery())
        if len(self.drawings) > MAX_OWN:
            raise EngramError(f"drawings may have {MAX_OWN} drawings at most, not {len(self.drawings)}.")
        for number, one in enumerate(self.drawings, start=1):
            check_drawing(one, f"drawing {number} of drawings")
        check_drawing(self.drawing, "drawing")
        if not self.stored and not self.drawings:
            raise EngramError("Nothing is stored: choose a pattern.")
        if len(set(self.stored)) < len(self.stored):
            raise EngramError("stored names a pattern twice.")

    @property
    def names(self) -> list[str]:
        return [*self.stored, *(f"own {number}" for number in range(1, len(self.drawings) + 1))]

    @property
    def patterns(self) -> Tensor:
        """M × N"""
        return torch.stack([*(gallery()[name] for name in self.stored), *map(state, self.drawings)])


def check_drawing(text: Any, name: str) -> None:
    """Refuse what is not a drawing."""
    if not isinstance(text, str) or not DRAWING.fullmatch(text):
        raise EngramError(f"{name} must be {UNITS // 4} hexadecimal digits.")


@cache
def gallery() -> dict[str, Tensor]:
    return {name: drawing.flatten().float() for name, drawing in {**icons(), **letters()}.items()}


def state(drawing: str) -> Tensor:
    """Return a drawing as units of +1 (ink) and -1."""
    return torch.tensor([1.0 if bit == "1" else -1.0 for bit in f"{int(drawing, 16):0{UNITS}b}"])


def digits(x_N: Tensor) -> str:
    """Return the drawing of a state as hexadecimal digits."""
    bits = "".join("1" if unit > 0 else "0" for unit in x_N.tolist())
    return f"{int(bits, 2):0{UNITS // 4}x}"


@dataclass(frozen=True, kw_only=True)
class GalleryArgs(Settings):
    """No arguments."""


@endpoint("hopfield.gallery")
def get_gallery(args: GalleryArgs, models: Models) -> Response:
    """Return all patterns, and the equations of both networks."""
    classic, modern = equations("engram.memory.hopfield.model"), equations("engram.memory.modern_hopfield.model")
    chosen = {"energy": classic[0], "update": classic[1], "modern": modern[1], "attention": modern[2]}
    return {
        "side": SIDE,
        "patterns": {name: digits(x_N) for name, x_N in gallery().items()},
        "equations": {name: {"text": one.text, "mathml": one.mathml} for name, one in chosen.items()},
    }


# ---------------------------------------------------------------------- corrupting


@dataclass(frozen=True, kw_only=True)
class CorruptArgs(Settings):
    """How to corrupt a drawing: flip pixels, or cover a half."""

    drawing: str = EMPTY
    how: Literal["flip", "upper", "lower", "left", "right"] = "flip"
    fraction: Annotated[float, Ge(0), Le(1)] = 0.2
    """fraction of the pixels that is flipped"""
    seed: Seed = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_drawing(self.drawing, "drawing")


@endpoint("hopfield.corrupt")
def corrupt(args: CorruptArgs, models: Models) -> Response:
    """Return the corrupted drawing."""
    x_N = state(args.drawing)
    if args.how == "flip":
        return {"drawing": digits(HopfieldRecipe().flip(x_N, args.fraction, generator(args.seed, "cue")))}
    half, grid = SIDE // 2, x_N.view(SIDE, SIDE)
    covered = {"upper": grid[:half], "lower": grid[half:], "left": grid[:, :half], "right": grid[:, half:]}
    covered[args.how].fill_(-1)
    return {"drawing": digits(x_N)}


# ---------------------------------------------------------------------- the classic network


@dataclass(frozen=True, kw_only=True)
class RecallArgs(PatternArgs):
    """How the classic network recalls."""

    rule: Rule = "hebb"
    """learning rule"""
    synchronous: bool = False
    """update all units at once instead of one at a time"""
    seed: Seed = 0
    """seed of the order of updates"""


@endpoint("hopfield")
def recall(args: RecallArgs, models: Models) -> Response:
    """Return every flip of the recall, with energy and overlaps before and after each."""
    X_MN, x_N = args.patterns, state(args.drawing)
    model = Hopfield(Hopfield.Config(units=UNITS)).store(X_MN, args.rule)
    changes, sweeps = recall_synchronous(model, x_N) if args.synchronous else recall_asynchronous(model, x_N, args.seed)
    states_TN = x_N.repeat(len(changes) + 1, 1)
    for step, units in enumerate(changes, start=1):
        states_TN[step:, units] *= -1
    overlap_TM = states_TN @ X_MN.T / UNITS
    return {
        "names": args.names,
        "changes": changes,
        "sweeps": sweeps,
        "energy": pack_array(model.energy(states_TN)),
        "overlap": pack_array(overlap_TM),
        "load": len(X_MN) / UNITS,
        "stable": [name for name, kept in zip(args.names, model(X_MN).eq(X_MN).all(1), strict=True) if kept],
        **describe_attractor(args.names, overlap_TM[-1], bool(torch.equal(model(states_TN[-1:])[0], states_TN[-1]))),
    }


def recall_asynchronous(model: Hopfield, x_N: Tensor, seed: int) -> tuple[list[list[int]], list[int]]:
    """Return the units that flip in each step, and the sweep of the step."""
    flips = list(model.flips(x_N, generator(seed, "order"), sweeps=SWEEPS))
    return [[unit] for _, unit in flips], [sweep + 1 for sweep, _ in flips]


def recall_synchronous(model: Hopfield, x_N: Tensor) -> tuple[list[list[int]], list[int]]:
    """Return the units that flip in each synchronous step, until convergence or two rounds of a cycle."""
    changes: list[list[int]] = []
    for _ in range(SWEEPS):
        after = model(x_N[None])[0]
        units = (after != x_N).nonzero()[:, 0].tolist()
        if not units or changes[-4:] == [units] * 4:
            break
        changes.append(units)
        x_N = after
    return changes, list(range(1, len(changes) + 1))


def describe_attractor(names: list[str], overlap_M: Tensor, converged: bool) -> Response:
    """Return the kind of the attractor and a sentence about it."""
    best, most, least = int(overlap_M.argmax()), float(overlap_M.max()), float(overlap_M.min())
    near = f'nearest to "{names[best]}", with an overlap of {most:.2f}'
    if not converged:
        return {"kind": "cycle", "text": f"A cycle of two states, {near}."}
    if most == 1:
        return {"kind": "stored", "text": f'Converged to "{names[best]}", without error.'}
    if least == -1:
        opposite = names[int(overlap_M.argmin())]
        text = f'Converged to the negative of "{opposite}", which has the same energy: a spurious state.'
        return {"kind": "negative", "text": text}
    if parts := [name for name, overlap in zip(names, overlap_M, strict=True) if abs(overlap) > MIXED][2:]:
        text = f"Converged to a mixture of {len(parts) + 2} patterns, {near}: a spurious state."
        return {"kind": "mixture", "text": text}
    return {"kind": "other", "text": f"Converged to a spurious state, {near}."}


# ---------------------------------------------------------------------- the modern network


@dataclass(frozen=True, kw_only=True)
class AttentionArgs(PatternArgs):
    """How the modern network recalls."""

    beta: Annotated[float, Gt(0), Le(10)] = 0.1
    """inverse temperature of the softmax"""
    steps: Annotated[int, Ge(1), Le(20)] = 1
    """updates of the state"""


@endpoint("hopfield.modern")
def attend(args: AttentionArgs, models: Models) -> Response:
    """Return the states of the modern network, their energies and the attention weights of each step."""
    X_MN, s_N = args.patterns, state(args.drawing)
    model = ModernHopfield.from_patterns(X_MN, args.beta)
    states = [s_N[None]]
    with watch(model, "weights") as seen:
        for _ in range(args.steps):
            states.append(model(states[-1]))
    weights_TM = torch.stack([weights[0, 0, 0] for weights in seen.all("weights")])
    first, found = int(weights_TM[-1].argmax()), sign(states[-1][0])
    whole = [name for name, x_N in zip(args.names, X_MN, strict=True) if torch.equal(x_N, found)]
    share = f'"{args.names[first]}" has {weights_TM[-1, first]:.1%} of the attention'
    rounded = f'"{whole[0]}", without error' if whole else "none of the patterns"
    return {
        "names": args.names,
        "states": pack_array(torch.cat(states)),
        "weights": pack_array(weights_TM),
        "energy": pack_array(model.energy(torch.cat(states))),
        "text": f"{share}; binarized, the state is {rounded}.",
    }
