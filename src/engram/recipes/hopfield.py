"""Hopfield networks, classic and modern: pictures that are stored, corrupted, and come back."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from engram import data as datasets
from engram.core.errors import EngramError
from engram.core.learner import Learner
from engram.core.registry import Recipe, Request, Sample, recipe
from engram.core.seeding import generator
from engram.data.dataset import Data
from engram.figures import recall as views
from engram.figures.figure import Figure
from engram.figures.pictures import grid
from engram.models.hopfield import Hopfield, Recall, Rule, Storage, sign
from engram.models.hopfield_bits import HebbBits
from engram.models.modern_hopfield import Filling, ModernHopfield

MEASURED = 500
SHOWN = 10
CUES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
"""parts of the units that are flipped, from nothing to no trace left"""
ALPHAS = (0.05, 0.08, 0.1, 0.11, 0.12, 0.125, 0.13, 0.135, 0.14, 0.145, 0.15, 0.16, 0.17, 0.18)
"""patterns for each unit, in the experiment of capacity"""
OVERLAP = 0.95
"""overlap with a pattern from which on it counts as recalled"""
MOST = 0.9
"""part of the patterns that a network must recall to be said to hold them"""


class Presented:
    """Patterns one batch after the other, in their order, from the beginning again when they are used up."""

    def __init__(self, patterns_MN: Tensor, batch: int) -> None:
        self.patterns_MN, self.batch, self.position = patterns_MN, batch, 0

    def __next__(self) -> dict[str, Tensor]:
        index = (self.position + torch.arange(self.batch)) % len(self.patterns_MN)
        self.position = (self.position + self.batch) % len(self.patterns_MN)
        return {"pattern": self.patterns_MN[index]}

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


@dataclass(frozen=True, kw_only=True)
class Cue:
    """What a memory may be asked."""

    corruption: float = -1.0
    """part of the units that is flipped before recall; as in training if not given"""

    def __post_init__(self) -> None:
        if not (self.corruption == -1 or 0 <= self.corruption <= 1):
            raise EngramError(f"corruption is a part, from 0 to 1, not {self.corruption}.")


@dataclass(frozen=True, kw_only=True)
class Memory(Recipe):
    """Patterns are stored, and recalled from what is left of them."""

    kind: ClassVar[str] = "memory"
    best: ClassVar[tuple[str, str]] = ("valid_recalled", "max")
    unit: ClassVar[str] = "patterns"
    Ask: ClassVar[type] = Cue
    samples: ClassVar[int] = SHOWN

    data: str = "patterns"
    """«patterns», icons and letters; or pictures (`engram data list`), or a path: folder of pictures, .npz, .npy"""
    steps: int = 10
    """how many to store, one step after the other"""
    every: int = 1
    batch: int = 1
    """patterns that are stored in a step"""
    corruption: float = 0.1
    """part of the units that is flipped before recall"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch < 1:
            raise EngramError(f"batch must be at least 1, not {self.batch}.")
        if not 0 <= self.corruption <= 1:
            raise EngramError(f"corruption is a part, from 0 to 1, not {self.corruption}.")

    @property
    def per_step(self) -> float:
        return self.batch

    def load(self) -> Data:
        loaded = datasets.load(self.data)
        if not {"pattern", "image"} & set(loaded.train):
            raise EngramError(f"{self.name} remembers patterns or pictures, and {self.data} has neither.")
        return loaded

    def chosen(self, data: Data) -> Tensor:
        """Which are stored, in their order, by the seed."""
        return torch.randperm(len(data.train), generator=generator(self.seed, "patterns"))[: self.steps * self.batch]

    def patterns(self, data: Data) -> Tensor:
        """All that are to be stored, as rows of +1 and -1."""
        column = "pattern" if "pattern" in data.train else "image"
        some = data.train[column][self.chosen(data)].flatten(1)
        return some.float() if column == "pattern" else sign(some.float() - 127.5)

    def batches(self, data: Data) -> Presented:
        return Presented(self.patterns(data), self.batch)

    def flipped(self, x_BN: Tensor, part: float, random: torch.Generator) -> Tensor:
        return torch.where(torch.rand(x_BN.shape, generator=random) < part, -x_BN, x_BN)

    @abstractmethod
    def recall(self, model: Any, cue_BN: Tensor) -> Recall:
        """Where cues lead."""

    def stored(self, model: Any, data: Data) -> Tensor:
        """What the model has been given so far, or some of it."""
        return self.patterns(data)[: max(1, min(MEASURED, int(model.stored)))]

    def evaluate(self, learner: Learner, data: Data, split: str) -> dict[str, float]:
        """Of what is stored, how much comes back: each pattern whole, and each unit of it."""
        x_MN = self.stored(learner.model, data)
        cue_MN = self.flipped(x_MN, self.corruption, generator(self.seed, "cue"))
        right = sign(self.recall(learner.model, cue_MN).x) == x_MN
        return {"recalled": right.all(1).float().mean().item(), "units_right": right.float().mean().item()}

    def shape(self, data: Data) -> tuple[int, ...]:
        one = data.train["pattern" if "pattern" in data.train else "image"][0]
        return tuple(one.shape) if one.ndim == 3 else (1, *one.shape)

    def figures(self, learner: Learner, data: Data) -> Iterator[Figure]:
        model, x_MN = learner.model, self.stored(learner.model, data)
        shown = x_MN[:SHOWN]
        found = self.recall(model, cue := self.flipped(shown, self.corruption, generator(self.seed, "cue")))
        rows = torch.stack([shown, cue, found.x]).view(3, -1, *self.shape(data))
        some = self.chosen(data)[: len(shown)]
        names = [data.classes[i] for i in data.train["label"][some]] if "label" in data.train else ()
        yield views.recalled(rows, names)
        yield views.energies(found.energy)
        yield self.basins(model, x_MN)
        yield from self.own_figures(model, data)

    def basins(self, model: Any, x_MN: Tensor) -> Figure:
        """How far away a state may begin and still find its pattern."""
        random, parts = generator(self.seed, "basins"), []
        for part in CUES:
            x = x_MN[torch.randint(len(x_MN), (200,), generator=random)]
            found = sign(self.recall(model, self.flipped(x, part, random)).x)
            parts.append((found == x).all(1).float().mean().item())
        caption = "Patterns that come back whole, by the part of their units that was flipped: how wide basins are."
        return views.shares("Basins", caption, CUES, {"recalled": parts}, "part of the units flipped")

    @abstractmethod
    def own_figures(self, model: Any, data: Data) -> Iterator[Figure]:
        """Views that only this kind of memory has."""

    def probe(self, model: nn.Module, data: Data, item: int) -> str:
        x_MN = self.patterns(data)
        if not 0 <= item < len(x_MN):
            raise EngramError(f"item must be from 0 to {len(x_MN) - 1}, the patterns that were stored, not {item}.")
        model(self.flipped(x_MN[item : item + 1], self.corruption, generator(self.seed, "cue")))
        return f"pattern {item}, of which {self.corruption:.0%} was flipped"

    def sample(self, learner: Learner, data: Data, request: Request) -> Sample:
        """Patterns, what is left of them, and what comes back."""
        part = self.corruption if request.ask is None or request.ask.corruption < 0 else request.ask.corruption
        x = self.stored(learner.model, data)
        x = x[torch.randint(len(x), (request.count,), generator=request.generator)]
        cue = self.flipped(x, part, request.generator)
        found = self.recall(learner.model, cue)
        right = (sign(found.x) == x).all(1)
        image = 0.5 + 0.4 * torch.cat([x, cue, found.x]).view(-1, *self.shape(data))
        text = f"{int(right.sum())} of {request.count} came back whole with {part:.0%} of the units flipped"
        arrays = {"pattern": x, "cue": cue, "recalled": found.x, "energy": found.energy}
        return Sample(arrays, text, grid(image, request.count))


# ---------------------------------------------------------------------- classic


@recipe
@dataclass(frozen=True, kw_only=True)
class HopfieldRecipe(Memory):
    """Units that pull each other to where patterns lie; a corrupted one rolls downhill to the nearest."""

    name: ClassVar[str] = "hopfield"
    title: ClassVar[str] = "Hopfield network"
    notes: ClassVar[str] = "003 §16"
    Model: ClassVar[type[nn.Module]] = Hopfield
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"steps": 20, "every": 10, "capacity_units": 50},
        "digits": {"data": "mnist", "steps": 50, "every": 10},
    }

    model: Hopfield.Config = field(default_factory=Hopfield.Config)
    rule: Rule = "pseudo-inverse"
    """how patterns are stored: hebb or gradient as in the notes, pseudo-inverse or storkey for those that are alike"""
    rate: float = 0.1
    """how far a step goes, for --rule gradient"""
    together: bool = False
    """update all units at once instead of one after the other"""
    capacity_units: int = 1000
    """units of the network of the largest network for which the report measures how many patterns Hebb's rule holds"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rate > 0:
            raise EngramError(f"rate must be above 0, not {self.rate}.")
        if self.capacity_units < 10:
            raise EngramError(f"capacity_units must be at least 10, not {self.capacity_units}.")

    def learner(self, data: Data) -> Storage:
        model = Hopfield(replace(self.model, units=self.patterns(data).shape[1]))
        return Storage(model, self.rule, self.rate)

    def recall(self, model: Any, cue_BN: Tensor) -> Recall:
        found: Recall = model.recall(cue_BN, generator(self.seed, "order"), together=self.together)
        return found

    def own_figures(self, model: Any, data: Data) -> Iterator[Figure]:
        yield self.rules(data)
        yield self.capacity()
        yield self.spurious(model, data)
        yield views.weights(model.W)

    def rules(self, data: Data) -> Figure:
        """Each rule with more and more of the patterns."""
        x_MN, curves = self.patterns(data)[:40], {}
        numbers = sorted({round(m) for m in torch.linspace(1, len(x_MN), min(10, len(x_MN))).tolist()})
        for rule in ("hebb", "storkey", "pseudo-inverse"):
            curves[rule] = [self.kept(x_MN[:m], rule) for m in numbers]
        caption = "Of so many stored patterns of this data, the part that comes back whole, rule by rule."
        return views.shares("Rules", caption, numbers, curves, "patterns stored")

    def kept(self, x_MN: Tensor, rule: Rule) -> float:
        model = Hopfield(Hopfield.Config(units=x_MN.shape[1])).store(x_MN, rule)
        found = model.recall(self.flipped(x_MN, self.corruption, generator(0, "cue")), generator(0, "order"))
        return (found.x == x_MN).all(1).float().mean().item()

    def capacity(self) -> Figure:
        sizes = self.capacity_units // 4, self.capacity_units // 2, self.capacity_units
        curves = {units: held(units, generator(self.seed, "capacity"), 4 * sizes[-1] // units) for units in sizes}
        caption = (
            f"Hebb's rule and random patterns: the part that is still there, with an overlap of {OVERLAP:.0%}, when a "
            f"network begins at the pattern itself. {MOST:.0%} are there up to {capacity(curves[sizes[-1]]):.3f} "
            f"patterns for each of {sizes[-1]} units. The larger the network, the steeper the fall, at 0.138 (Amit, "
            "Gutfreund & Sompolinsky 1985)."
        )
        named = {f"{units} units": parts for units, parts in curves.items()}
        return views.shares("Capacity", caption, ALPHAS, named, "patterns for each unit")

    def spurious(self, model: Any, data: Data) -> Figure:
        x_MN = self.stored(model, data)
        begin = sign(torch.randn(500, x_MN.shape[1], generator=generator(self.seed, "spurious")))
        overlap_BM = self.recall(model, begin).x @ x_MN.T / x_MN.shape[1]
        best, opposite = overlap_BM.amax(1), overlap_BM.amin(1)
        stored, negative = best == 1, (opposite == -1) & (best < 1)
        mixed = ~stored & ~negative & ((overlap_BM.abs() > 0.3).sum(1) >= 3)
        counts = {"stored": stored, "opposite": negative, "mixture": mixed, "elsewhere": ~(stored | negative | mixed)}
        return views.ends({name: int(which.sum()) for name, which in counts.items()})


def held(units: int, random: torch.Generator, networks: int = 1) -> list[float]:
    """For each of ALPHAS, the part of so many random patterns that Hebb's rule holds, over several networks."""
    parts = []
    for alpha in ALPHAS:
        there = []
        for _ in range(networks):
            x_MN = sign(torch.randn(max(1, round(alpha * units)), units, generator=random))
            found = HebbBits(x_MN).recall(x_MN, random)
            there.append((found.x * x_MN).mean(1) >= OVERLAP)
        parts.append(torch.cat(there).float().mean().item())
    return parts


def capacity(parts: list[float]) -> float:
    """Patterns for each unit up to which MOST of them are held, between the ALPHAS where that ends."""
    for a, b, there, gone in zip(ALPHAS, ALPHAS[1:], parts, parts[1:], strict=False):
        if there >= MOST > gone:
            return a + (b - a) * (there - MOST) / (there - gone)
    return ALPHAS[-1] if parts[-1] >= MOST else ALPHAS[0]


# ---------------------------------------------------------------------- modern


@recipe
@dataclass(frozen=True, kw_only=True)
class ModernHopfieldRecipe(Memory):
    """Patterns are asked by what is like them: one step of recall is a Transformer's attention."""

    name: ClassVar[str] = "modern-hopfield"
    title: ClassVar[str] = "Modern Hopfield network"
    notes: ClassVar[str] = "003 §16, 31"
    Model: ClassVar[type[nn.Module]] = ModernHopfield
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"data": "patterns", "steps": 20, "every": 10, "batch": 1},
        "full": {"steps": 550, "every": 110, "batch": 100},
    }

    data: str = "mnist"
    steps: int = 100
    every: int = 20
    batch: int = 100
    corruption: float = 0.2
    model: ModernHopfield.Config = field(default_factory=ModernHopfield.Config)
    rounds: int = 3
    """steps of recall"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds < 1:
            raise EngramError(f"rounds must be at least 1, not {self.rounds}.")

    def learner(self, data: Data) -> Filling:
        M, N = self.patterns(data).shape
        return Filling(ModernHopfield(replace(self.model, units=N, patterns=M)))

    def recall(self, model: Any, cue_BN: Tensor) -> Recall:
        found: Recall = model.recall(cue_BN, self.rounds)
        return found

    def own_figures(self, model: Any, data: Data) -> Iterator[Figure]:
        yield self.sharpness(model, data)

    def sharpness(self, model: Any, data: Data) -> Figure:
        """What beta does: mixtures below, single patterns above."""
        x_MN, betas = self.stored(model, data)[:200], [2.0**k for k in range(-10, 3)]
        cue = self.flipped(x_MN, self.corruption, generator(self.seed, "beta"))
        parts = []
        for beta in betas:
            other = ModernHopfield.of(model.memory[:10_000], beta)
            found = sign(other.recall(cue, self.rounds).x)
            parts.append((found == x_MN).all(1).float().mean().item())
        caption = "Patterns that come back whole, by beta: where it is small, several patterns are mixed into one."
        figure = views.shares("Sharpness", caption, betas, {"recalled": parts}, "beta")
        figure.plot.update_xaxes(type="log")
        return figure
