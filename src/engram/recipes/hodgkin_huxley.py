"""Neurons under any current, and Hodgkin and Huxley's: nothing is learnt, time passes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.learner import Batch, Learner
from engram.core.registry import Request, Sample, recipe
from engram.core.seeding import generator
from engram.data.series import read_series
from engram.figures.figure import Figure
from engram.figures.neuron import frequency_current, neuron
from engram.neurons.hodgkin_huxley import HodgkinHuxley
from engram.neurons.simulation import Simulation, Stretches
from engram.neurons.stimulus import Stimulus
from engram.recipes.timed import Timed

MOST_GIGABYTES = 16


@dataclass(frozen=True, kw_only=True)
class Neurons(Timed):
    """Neurons without connections under any current; nothing is learnt, time passes."""

    best: ClassVar[tuple[str, str]] = ("valid_rate_hz", "max")

    data: str = "stimulus"
    """«stimulus», the current that the settings below describe, or a file with one's own (CSV or .npy, T × N)"""
    steps: int = 250
    """how many stretches of current to let pass"""
    every: int = 50
    """stretches between two evaluations, each followed by a checkpoint"""
    stretch_ms: float = 1.0
    """length of a stretch"""
    record_ms: float = 0.05
    """time between two recorded values"""
    model: Any
    """the neurons"""
    current: Stimulus = field(default_factory=Stimulus)
    """the injected current"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.must_last("record_ms")
        gigabytes = 8e-9 * self.steps * self.stretch * self.model.neurons
        if gigabytes > MOST_GIGABYTES:
            raise EngramError(f"The current of {self.steps} steps would take {gigabytes:,.0f} GB: take fewer --steps.")

    def load(self) -> Tensor:
        if self.data == "stimulus":
            return self.sampled(self.current, generator(self.seed, "current"))
        current_TN = read_series(self.data).double()
        if current_TN.shape[1] not in (1, self.model.neurons):
            found = current_TN.shape[1]
            raise EngramError(f"{self.data} has {found} columns: 1 for all neurons or {self.model.neurons} are needed.")
        return current_TN.expand(-1, self.model.neurons)

    def sampled(self, current: Stimulus, random: torch.Generator) -> Tensor:
        """A current as long as the whole run, T × N."""
        return current.sample(self.steps * self.stretch, self.model.step_ms, self.model.neurons, random)

    def learner(self, data: Tensor) -> Simulation:
        return Simulation(self.Model(self.model), stride=round(self.record_ms / self.model.step_ms))

    def batches(self, data: Tensor) -> Stretches:
        return Stretches(data, self.stretch)

    def evaluate(self, learner: Learner, data: Tensor, split: str) -> dict[str, float]:
        """Rate and regularity so far: there is nothing to generalise, so every split is the recording."""
        assert isinstance(learner, Simulation)
        spikes = len(learner.all_spikes()[0])
        return {"rate_hz": learner.rates_hz().mean().item(), "spikes_in_all": float(spikes)}

    def probe(self, model: nn.Module, data: Tensor, item: int) -> str:
        said, passed = self.moment(data, item)
        model(passed["current"])
        return said

    def moment(self, data: Tensor, item: int) -> tuple[str, Batch]:
        return self.input_from(data, item, most_ms=50)

    def at_rest(self, model: Any, item: int) -> Simulation:
        model.state.copy_(model.rest())
        return Simulation(model, stride=1)

    def sample(self, learner: Learner, data: Tensor, request: Request) -> Sample:
        """The same neuron under the same current with other noise, as often as asked: how alike are the answers?"""
        model: Any = self.Model(self.model)
        own = None if self.data == "stimulus" else Stretches(data, self.steps * self.stretch)
        noise = replace(self.current, stimulus="noise", amplitude=0.0)
        lines, recordings, currents = [], [], []
        for i in range(request.count):
            J_TN = self.sampled(noise if own else self.current, request.generator)
            if own:
                own.position = 0
                J_TN = J_TN + next(own)["current"]
            again = Simulation(model, stride=round(self.record_ms / self.model.step_ms))
            model.state.copy_(model.rest())
            again.step({"current": J_TN})
            lines.append(f"trial {i + 1}: {len(again.spikes_ms(0))} spikes, {again.rates_hz()[0]:.1f} Hz")
            recordings.append(again.recording_TKN[:, 0])
            currents.append(again.current_TN)
        arrays = {"voltage": torch.stack(recordings), "current": torch.stack(currents)}
        return Sample(arrays, "\n".join(lines))


@recipe
@dataclass(frozen=True, kw_only=True)
class HodgkinHuxleyRecipe(Neurons):
    """Sodium and potassium channels make spikes out of an injected current; nothing is learnt, time passes."""

    name: ClassVar[str] = "hodgkin-huxley"
    title: ClassVar[str] = "Hodgkin–Huxley neuron"
    notes: ClassVar[str] = "003 §2.1"
    Model: ClassVar[type[nn.Module]] = HodgkinHuxley
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"tiny": {"steps": 40, "every": 10}}

    model: HodgkinHuxley.Config = field(default_factory=HodgkinHuxley.Config)
    """the neuron"""
    current: Stimulus = field(default_factory=lambda: Stimulus(noise=0.5))
    """the injected current"""

    def figures(self, learner: Learner, data: Tensor) -> Iterator[Figure]:
        assert isinstance(learner, Simulation)
        yield from self.views(learner, {})
        yield frequency_current(self.model)

    def views(self, learner: Simulation, passed: Batch) -> Iterator[Figure]:
        return neuron(learner)
