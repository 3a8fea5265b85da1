"""Recipe of leaky integrate-and-fire (LIF) neurons: the tuning curve under rising inputs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from engram.core.learner import Batch, Learner
from engram.core.registry import register
from engram.core.seeding import generator
from engram.neurons import plots
from engram.neurons.base import NeuronRecipe
from engram.neurons.lif.model import LIF
from engram.neurons.simulation import Simulation
from engram.neurons.stimulus import Stimulus
from engram.plots.figure import Figure


@register
@dataclass(frozen=True, kw_only=True)
class LIFRecipe(NeuronRecipe[LIF]):
    """Simulates LIF neurons whose input rises from neuron to neuron: their tuning curve."""

    name: ClassVar[str] = "lif"
    title: ClassVar[str] = "Leaky integrate-and-fire neurons"
    Model: ClassVar[type[nn.Module]] = LIF
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"tiny": {"steps": 40, "eval_every": 10, "neurons": 5}}

    record_ms: float = 0.1
    """sampling interval of the recording, ms; at least one time step"""
    model: LIF.Config = field(default_factory=lambda: LIF.Config(neurons=40))
    """neuron model"""
    current: Stimulus = field(default_factory=lambda: Stimulus(stimulus="constant", amplitude=4.0))
    """input of the last neuron, dimensionless: the threshold is 1; neuron i of N gets (i + 1) / N of it"""

    def sample_current(self, current: Stimulus, generator: torch.Generator) -> Tensor:
        """The input of the whole run, T × N: neuron i of N gets (i + 1) / N of it."""
        share_N = torch.arange(1, self.model.neurons + 1, dtype=torch.float64) / self.model.neurons
        return super().sample_current(current, generator) * share_N

    def learner(self, data: Tensor) -> Simulation:
        """A simulation with random initial membrane potentials, so that neurons are not synchronized."""
        simulation = super().learner(data)
        simulation.model.state[0].uniform_(generator=generator(self.seed, "rest"))
        return simulation

    def figures(self, learner: Learner[LIF], data: Tensor) -> Iterator[Figure]:
        assert isinstance(learner, Simulation)
        yield from self.plot_simulation(learner, {})
        yield plots.plot_tuning_curve(learner)
        yield plots.plot_intervals(learner)

    def plot_simulation(self, learner: Simulation, batch: Batch) -> Iterator[Figure]:
        yield plots.plot_voltage_and_input(learner, self.model.neurons - 1)
        yield plots.plot_raster(*learner.all_spikes(), self.model.neurons)
