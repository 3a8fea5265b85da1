"""Leaky integrate-and-fire neurons under any input: nothing is learnt, time passes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from engram.core.learner import Batch, Learner
from engram.core.registry import recipe
from engram.core.seeding import generator
from engram.figures import neuron
from engram.figures.figure import Figure
from engram.neurons.lif import LIF
from engram.neurons.simulation import Simulation
from engram.neurons.stimulus import Stimulus
from engram.recipes.hodgkin_huxley import Neurons


@recipe
@dataclass(frozen=True, kw_only=True)
class LIFRecipe(Neurons):
    """Neurons that integrate and fire, each driven more strongly than the one before: their tuning curve."""

    name: ClassVar[str] = "lif"
    title: ClassVar[str] = "Leaky integrate-and-fire neurons"
    notes: ClassVar[str] = "003 §2.2"
    Model: ClassVar[type[nn.Module]] = LIF
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"tiny": {"steps": 40, "every": 10, "neurons": 5}}

    record_ms: float = 0.1
    model: LIF.Config = field(default_factory=lambda: LIF.Config(neurons=40))
    """the neurons"""
    current: Stimulus = field(default_factory=lambda: Stimulus(stimulus="constant", amplitude=4.0))
    """the input of the last neuron, of which the others get their share: 1 is the threshold"""

    def sampled(self, current: Stimulus, random: torch.Generator) -> Tensor:
        """The input as long as the whole run, T × N: neuron i of N gets (i + 1) / N of it."""
        share_N = torch.arange(1, self.model.neurons + 1, dtype=torch.float64) / self.model.neurons
        return super().sampled(current, random) * share_N

    def learner(self, data: Tensor) -> Simulation:
        """Neurons that are not all equally far from their first spike."""
        made = super().learner(data)
        made.model.state[0].uniform_(generator=generator(self.seed, "rest"))
        return made

    def figures(self, learner: Learner, data: Tensor) -> Iterator[Figure]:
        assert isinstance(learner, Simulation)
        yield from self.views(learner, {})
        yield neuron.tuning_curve(learner)
        yield neuron.intervals(learner)

    def views(self, learner: Simulation, passed: Batch) -> Iterator[Figure]:
        yield neuron.dimensionless(learner, self.model.neurons - 1)
        yield neuron.raster(*learner.all_spikes(), self.model.neurons)
