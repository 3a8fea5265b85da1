"""Recipe of the Hodgkin–Huxley neuron under an injected current."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor, nn

from engram.core.learner import Batch, Learner
from engram.core.registry import register
from engram.neurons.base import NeuronRecipe
from engram.neurons.hodgkin_huxley.model import HodgkinHuxley
from engram.neurons.plots import plot_fi_curve, plot_hodgkin_huxley
from engram.neurons.simulation import Simulation
from engram.neurons.stimulus import Stimulus
from engram.plots.figure import Figure


@register
@dataclass(frozen=True, kw_only=True)
class HodgkinHuxleyRecipe(NeuronRecipe[HodgkinHuxley]):
    """Simulates the membrane potential, the gates and the ionic currents of Hodgkin–Huxley neurons."""

    name: ClassVar[str] = "hodgkin-huxley"
    title: ClassVar[str] = "Hodgkin–Huxley neuron"
    Model: ClassVar[type[nn.Module]] = HodgkinHuxley
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"tiny": {"steps": 40, "eval_every": 10}}

    model: HodgkinHuxley.Config = field(default_factory=HodgkinHuxley.Config)
    """neuron model"""
    current: Stimulus = field(default_factory=lambda: Stimulus(noise=0.5))
    """injected current"""

    def figures(self, learner: Learner[HodgkinHuxley], data: Tensor) -> Iterator[Figure]:
        assert isinstance(learner, Simulation)
        yield from self.plot_simulation(learner, {})
        yield plot_fi_curve(self.model)

    def plot_simulation(self, learner: Simulation, batch: Batch) -> Iterator[Figure]:
        return plot_hodgkin_huxley(learner)
