"""Base recipe of associative memories (Hopfield networks): store, corrupt, recall."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge, Le
from torch import Tensor

from engram import data as datasets
from engram.core.errors import EngramError
from engram.core.learner import Learner, M
from engram.core.recipe import Recipe, Sample, SampleArgs, SampleRequest
from engram.core.seeding import generator
from engram.data.dataset import Data
from engram.memory.hopfield import plots
from engram.memory.hopfield.bits import BitHopfield
from engram.memory.hopfield.model import Recall, sign
from engram.plots.figure import Figure
from engram.plots.images import grid

EVALUATED = 500
"""stored patterns that metrics are computed on"""
SHOWN = 10
CORRUPTIONS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
"""fractions of flipped units in the figure of basins of attraction"""
LOADS = (0.05, 0.08, 0.1, 0.11, 0.12, 0.125, 0.13, 0.135, 0.14, 0.145, 0.15, 0.16, 0.17, 0.18)
"""patterns per unit in the capacity experiment"""
MIN_OVERLAP = 0.95
"""overlap from which on a pattern counts as recalled"""
MIN_RECALLED = 0.9
"""fraction of the patterns recalled at capacity"""


class PatternLoader:
    """Batches of patterns in their order, in a cycle."""

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
class RecallSampleArgs(SampleArgs):
    """Flags of `engram sample` for an associative memory."""

    corruption: Annotated[float, Ge(-1), Le(1)] = -1.0
    """fraction of the units flipped before recall; negative means that of the recipe"""


@dataclass(frozen=True, kw_only=True)
class AssociativeMemory(Recipe[M, Data]):
    """Store patterns and recall them from corrupted cues."""

    best: ClassVar[tuple[str, str]] = ("valid_recall", "max")
    unit: ClassVar[str] = "patterns"
    SampleArgs: ClassVar[type] = RecallSampleArgs
    samples: ClassVar[int] = SHOWN

    data: str = "patterns"
    """patterns (icons and letters), an image data set (`engram data list`), or a path: folder of images, .npz, .npy"""
    steps: int = 10
    """number of training steps; each stores one batch of patterns"""
    eval_every: int = 1
    batch: Annotated[int, Ge(1)] = 1
    """patterns stored per step"""
    corruption: Annotated[float, Ge(0), Le(1)] = 0.1
    """fraction of the units flipped before recall"""

    @property
    def items_per_step(self) -> float:
        return self.batch

    def load(self) -> Data:
        loaded = datasets.load(self.data)
        if not {"pattern", "image"} & set(loaded.train):
            raise EngramError(f"{self.name} stores patterns or images, and {self.data} has neither.")
        return loaded

    def pattern_indices(self, data: Data) -> Tensor:
        """Return the indices of the training samples to store, in random order."""
        return torch.randperm(len(data.train), generator=generator(self.seed, "patterns"))[: self.steps * self.batch]

    def patterns(self, data: Data) -> Tensor:
        """Return all patterns to store, as rows of +1 and -1."""
        column = "pattern" if "pattern" in data.train else "image"
        x = data.train[column][self.pattern_indices(data)].flatten(1)
        return x.float() if column == "pattern" else sign(x.float() - 127.5)

    def batches(self, data: Data) -> PatternLoader:
        return PatternLoader(self.patterns(data), self.batch)

    def flip(self, x_BN: Tensor, fraction: float, random: torch.Generator) -> Tensor:
        """Flip each unit with probability `fraction`."""
        return torch.where(torch.rand(x_BN.shape, generator=random) < fraction, -x_BN, x_BN)

    @abstractmethod
    def recall(self, model: M, cue_BN: Tensor) -> Recall:
        """Iterate the network from cues until convergence."""

    def stored_patterns(self, model: Any, data: Data) -> Tensor:
        """Return the patterns that the model has stored, at most EVALUATED."""
        return self.patterns(data)[: max(1, min(EVALUATED, int(model.stored)))]

    def evaluate(self, learner: Learner[M], data: Data, split: str) -> dict[str, float]:
        """Return the fraction of stored patterns recalled without error, and the accuracy of their units."""
        x_MN = self.stored_patterns(learner.model, data)
        cue_MN = self.flip(x_MN, self.corruption, generator(self.seed, "cue"))
        correct = sign(self.recall(learner.model, cue_MN).x) == x_MN
        return {"recall": correct.all(1).float().mean().item(), "unit_accuracy": correct.float().mean().item()}

    def image_shape(self, data: Data) -> tuple[int, ...]:
        """Return the shape of a pattern as an image, C × H × W."""
        one = data.train["pattern" if "pattern" in data.train else "image"][0]
        return tuple(one.shape) if one.ndim == 3 else (1, *one.shape)

    def figures(self, learner: Learner[M], data: Data) -> Iterator[Figure]:
        model, x_MN = learner.model, self.stored_patterns(learner.model, data)
        shown = x_MN[:SHOWN]
        found = self.recall(model, cue := self.flip(shown, self.corruption, generator(self.seed, "cue")))
        rows = torch.stack([shown, cue, found.x]).view(3, -1, *self.image_shape(data))
        index = self.pattern_indices(data)[: len(shown)]
        names = [data.classes[i] for i in data.train["label"][index]] if "label" in data.train else ()
        yield plots.recall_images(rows, names)
        yield plots.energy_curves(found.energy)
        yield self.basins(model, x_MN)
        yield from self.model_figures(model, data)

    def basins(self, model: M, x_MN: Tensor) -> Figure:
        """Recall by the corruption of the cue: the size of the basins of attraction."""
        random, fractions = generator(self.seed, "basins"), []
        for corruption in CORRUPTIONS:
            x = x_MN[torch.randint(len(x_MN), (200,), generator=random)]
            found = sign(self.recall(model, self.flip(x, corruption, random)).x)
            fractions.append((found == x).all(1).float().mean().item())
        caption = "Fraction of patterns recalled without error, by the fraction of units flipped in the cue."
        return plots.fraction_curves(
            "Basins of attraction", caption, CORRUPTIONS, {"recalled": fractions}, "fraction of units flipped"
        )

    @abstractmethod
    def model_figures(self, model: M, data: Data) -> Iterator[Figure]:
        """Yield figures of this kind of memory alone."""

    def trace(self, model: M, data: Data, item: int) -> str:
        x_MN = self.patterns(data)
        if not 0 <= item < len(x_MN):
            raise EngramError(f"item must be from 0 to {len(x_MN) - 1}, the patterns that were stored, not {item}.")
        model(self.flip(x_MN[item : item + 1], self.corruption, generator(self.seed, "cue")))
        return f"pattern {item} with {self.corruption:.0%} of its units flipped"

    def sample(self, learner: Learner[M], data: Data, request: SampleRequest) -> Sample:
        """Recall random stored patterns from corrupted cues."""
        corruption = self.corruption if request.args is None or request.args.corruption < 0 else request.args.corruption
        x = self.stored_patterns(learner.model, data)
        x = x[torch.randint(len(x), (request.count,), generator=request.generator)]
        cue = self.flip(x, corruption, request.generator)
        found = self.recall(learner.model, cue)
        correct = (sign(found.x) == x).all(1)
        image = 0.5 + 0.4 * torch.cat([x, cue, found.x]).view(-1, *self.image_shape(data))
        text = (
            f"{int(correct.sum())} of {request.count} recalled without error with {corruption:.0%} of the units flipped"
        )
        arrays = {"pattern": x, "cue": cue, "recalled": found.x, "energy": found.energy}
        ends = zip(correct.tolist(), found.energy[:, -1].tolist(), strict=True)
        rows = [{"recalled": right, "energy": energy} for right, energy in ends]
        return Sample(arrays, text, grid(image, request.count), rows=rows)


def recalled_by_load(units: int, random: torch.Generator, networks: int = 1) -> list[float]:
    """Return the fraction of random patterns that the Hebbian rule recalls at each of LOADS."""
    fractions = []
    for load in LOADS:
        recalled = []
        for _ in range(networks):
            x_MN = sign(torch.randn(max(1, round(load * units)), units, generator=random))
            found = BitHopfield(x_MN).recall(x_MN, random)
            recalled.append((found.x * x_MN).mean(1) >= MIN_OVERLAP)
        fractions.append(torch.cat(recalled).float().mean().item())
    return fractions


def capacity(fractions: list[float]) -> float:
    """Interpolate the load up to which MIN_RECALLED of the patterns are recalled."""
    for a, b, above, below in zip(LOADS, LOADS[1:], fractions, fractions[1:], strict=False):
        if above >= MIN_RECALLED > below:
            return a + (b - a) * (above - MIN_RECALLED) / (above - below)
    return LOADS[-1] if fractions[-1] >= MIN_RECALLED else LOADS[0]
