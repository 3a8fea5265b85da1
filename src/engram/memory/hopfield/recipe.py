"""Recipe of a Hopfield network."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge, Gt
from torch import Tensor, nn

from engram.core.registry import register
from engram.core.seeding import generator
from engram.data.dataset import Data
from engram.memory.base import LOADS, MIN_OVERLAP, MIN_RECALLED, AssociativeMemory, capacity, recalled_by_load
from engram.memory.hopfield import plots
from engram.memory.hopfield.model import Hopfield, HopfieldLearner, Recall, Rule, sign
from engram.plots.figure import Figure


@register
@dataclass(frozen=True, kw_only=True)
class HopfieldRecipe(AssociativeMemory[Hopfield]):
    """Associative memory that stores patterns as minima of an energy and recalls them from corrupted cues."""

    name: ClassVar[str] = "hopfield"
    title: ClassVar[str] = "Hopfield network"
    Model: ClassVar[type[nn.Module]] = Hopfield
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"steps": 20, "eval_every": 10, "capacity_units": 50},
        "digits": {"data": "mnist", "steps": 50, "eval_every": 10},
    }

    model: Hopfield.Config = field(default_factory=Hopfield.Config)
    rule: Rule = "pseudo-inverse"
    """learning rule: hebb, gradient (descent on the energy), pseudo-inverse or storkey (for correlated patterns)"""
    lr: Annotated[float, Gt(0)] = 0.1
    """learning rate of --rule gradient"""
    synchronous: bool = False
    """update all units at once instead of one at a time"""
    capacity_units: Annotated[int, Ge(10)] = 1000
    """units of the largest network in the capacity experiment of the report"""

    def learner(self, data: Data) -> HopfieldLearner:
        model = Hopfield(replace(self.model, units=self.patterns(data).shape[1]))
        return HopfieldLearner(model, self.rule, self.lr)

    def recall(self, model: Hopfield, cue_BN: Tensor) -> Recall:
        return model.recall(cue_BN, generator(self.seed, "order"), synchronous=self.synchronous)

    def model_figures(self, model: Hopfield, data: Data) -> Iterator[Figure]:
        yield self.rule_comparison(data)
        yield self.capacity_curves()
        yield self.attractors(model, data)
        yield plots.weight_matrix(model.W)

    def rule_comparison(self, data: Data) -> Figure:
        """Recall of each learning rule with more and more of the patterns."""
        x_MN, curves = self.patterns(data)[:40], {}
        numbers = sorted({round(m) for m in torch.linspace(1, len(x_MN), min(10, len(x_MN))).tolist()})
        for rule in ("hebb", "storkey", "pseudo-inverse"):
            curves[rule] = [self.recalled_fraction(x_MN[:m], rule) for m in numbers]
        caption = "Fraction of the stored patterns of this data that is recalled without error, by learning rule."
        return plots.fraction_curves("Learning rules", caption, numbers, curves, "patterns stored")

    def recalled_fraction(self, x_MN: Tensor, rule: Rule) -> float:
        """Store patterns by a rule and return the fraction recalled without error."""
        model = Hopfield(Hopfield.Config(units=x_MN.shape[1])).store(x_MN, rule)
        found = model.recall(self.flip(x_MN, self.corruption, generator(0, "cue")), generator(0, "order"))
        return (found.x == x_MN).all(1).float().mean().item()

    def capacity_curves(self) -> Figure:
        """Fraction of random patterns that the Hebbian rule recalls, by load, for networks of three sizes."""
        sizes = self.capacity_units // 4, self.capacity_units // 2, self.capacity_units
        curves = {
            units: recalled_by_load(units, generator(self.seed, "capacity"), 4 * sizes[-1] // units) for units in sizes
        }
        caption = (
            f"Hebbian rule, random patterns: fraction still recalled, with an overlap of at least {MIN_OVERLAP:.0%}, "
            f"starting from the pattern itself. {MIN_RECALLED:.0%} are recalled up to a load of "
            f"{capacity(curves[sizes[-1]]):.3f} patterns per unit, with {sizes[-1]} units. For infinitely many units "
            "the transition is at 0.138 (Amit, Gutfreund & Sompolinsky 1985)."
        )
        named = {f"{units} units": parts for units, parts in curves.items()}
        return plots.fraction_curves("Capacity", caption, LOADS, named, "load (patterns per unit)")

    def attractors(self, model: Hopfield, data: Data) -> Figure:
        """Classify the attractors that random states converge to."""
        x_MN = self.stored_patterns(model, data)
        start = sign(torch.randn(500, x_MN.shape[1], generator=generator(self.seed, "spurious")))
        overlap_BM = self.recall(model, start).x @ x_MN.T / x_MN.shape[1]
        best, opposite = overlap_BM.amax(1), overlap_BM.amin(1)
        stored, negative = best == 1, (opposite == -1) & (best < 1)
        mixed = ~stored & ~negative & ((overlap_BM.abs() > 0.3).sum(1) >= 3)
        counts = {"stored": stored, "negative": negative, "mixture": mixed, "other": ~(stored | negative | mixed)}
        return plots.attractors({name: int(which.sum()) for name, which in counts.items()})
