"""Spike trains through synapses: nothing is learnt, time passes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.learner import Batch, Learner, Metrics
from engram.core.registry import Request, Sample, recipe
from engram.core.seeding import generator
from engram.data.series import read_series
from engram.figures import synapse
from engram.figures.figure import Figure
from engram.neurons.lif import Spikes
from engram.neurons.synapse import Synapse, convolved
from engram.recipes.timed import Timed

MOMENT_MS = 200.0
"""that `engram look` shows"""


class Filtering:
    """Lets stretches of spike trains pass through synapses."""

    def __init__(self, model: Synapse) -> None:
        self.model, self.passed = model, 0
        self.s_TN = torch.zeros(0, model.config.synapses, dtype=torch.float64)

    def step(self, batch: Batch) -> Metrics:
        state, s_TN = self.model.step(self.model.state, batch["spikes"], batch["steps"])
        self.model.state.copy_(state)
        self.s_TN = torch.cat([self.s_TN, s_TN])
        self.passed += batch["steps"]
        return {"input": s_TN.mean(), "spikes": torch.tensor(float(len(batch["spikes"].neuron)))}

    def state_dict(self) -> dict[str, Any]:
        return {"passed": self.passed, "s": self.s_TN}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.passed, self.s_TN = state["passed"], state["s"]


class Trains:
    """Consecutive stretches of spike trains; after their end, silence."""

    def __init__(self, spikes: Spikes, steps: int, step_ms: float) -> None:
        self.spikes, self.steps, self.step_ms, self.position = spikes, steps, step_ms, 0

    def __next__(self) -> dict[str, Any]:
        begin_ms, length_ms = self.position * self.step_ms, self.steps * self.step_ms
        now = (self.spikes.time_ms > begin_ms) & (self.spikes.time_ms <= begin_ms + length_ms)
        self.position += self.steps
        time_ms = np.minimum(self.spikes.time_ms[now] - begin_ms, length_ms)
        return {"spikes": Spikes(time_ms, self.spikes.neuron[now]), "steps": self.steps}

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


@recipe
@dataclass(frozen=True, kw_only=True)
class SynapseRecipe(Timed):
    """Random spikes become a smooth current, by a state that needs to remember no spike."""

    name: ClassVar[str] = "synapse"
    title: ClassVar[str] = "Synapse"
    notes: ClassVar[str] = "003 §2.4"
    Model: ClassVar[type[nn.Module]] = Synapse
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"tiny": {"steps": 10, "every": 5, "stretch_ms": 10.0}}
    best: ClassVar[tuple[str, str]] = ("valid_apart", "min")
    samples: ClassVar[int] = 3

    data: str = "chance"
    """«chance», spikes that come at random, or a file with one's own: a column of times in ms for each synapse"""
    stretch_ms: float = 50.0
    rate_hz: float = 40.0
    """how often spikes come, where they come at random"""
    model: Synapse.Config = field(default_factory=lambda: Synapse.Config(order=1, tau_ms=10.0))
    """the synapses"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rate_hz >= 0:
            raise EngramError(f"rate_hz must be at least 0, not {self.rate_hz}.")

    @property
    def duration_ms(self) -> float:
        return self.steps * self.stretch * self.model.step_ms

    def load(self) -> Spikes:
        if self.data == "chance":
            return self.drawn(generator(self.seed, "spikes"))
        times_TN = read_series(self.data).double()
        if times_TN.shape[1] != self.model.synapses:
            raise EngramError(f"{self.data} has {times_TN.shape[1]} columns: {self.model.synapses} are needed.")
        neuron = torch.arange(times_TN.shape[1]).expand_as(times_TN)
        within = (times_TN > 0) & (times_TN <= self.duration_ms)
        return Spikes.sorted(times_TN[within].numpy(), neuron[within].numpy())

    def drawn(self, random: torch.Generator) -> Spikes:
        """Spikes at random, as many as a Poisson process has."""
        mean_N = torch.full((self.model.synapses,), self.rate_hz * self.duration_ms / 1000)
        count_N = torch.poisson(mean_N, generator=random).long()
        neuron = torch.repeat_interleave(torch.arange(self.model.synapses), count_N)
        time_ms = (1 - torch.rand(len(neuron), generator=random, dtype=torch.float64)) * self.duration_ms
        return Spikes.sorted(time_ms.numpy(), neuron.numpy())

    def learner(self, data: Spikes) -> Filtering:
        return Filtering(Synapse(self.model))

    def batches(self, data: Spikes) -> Trains:
        return Trains(data, self.stretch, self.model.step_ms)

    def evaluate(self, learner: Learner, data: Spikes, split: str) -> dict[str, float]:
        """How far the state is from the convolution."""
        assert isinstance(learner, Filtering)
        time_ms = np.arange(1, learner.passed + 1) * self.model.step_ms
        whole_TN = convolved(data, time_ms, self.model.synapses, self.model.tau_ms, self.model.order)
        apart = np.abs(whole_TN - learner.s_TN.numpy()).max(initial=0.0)
        return {"apart": float(apart), "input": learner.s_TN.mean().item()}

    def figures(self, learner: Learner, data: Spikes) -> Iterator[Figure]:
        assert isinstance(learner, Filtering)
        yield from self.views(learner, {"spikes": data})

    def views(self, learner: Filtering, passed: Batch) -> Iterator[Figure]:
        yield synapse.responses(self.model.tau_ms, self.model.order)
        yield synapse.filtered(passed["spikes"].of(0), learner.s_TN[:, 0], self.model.step_ms)

    def probe(self, model: nn.Module, data: Spikes, item: int) -> str:
        said, passed = self.moment(data, item)
        model(passed["spikes"], passed["steps"])
        return said

    def at_rest(self, model: Synapse, item: int) -> Filtering:
        model.state.copy_(model.rest())
        return Filtering(model)

    def moment(self, data: Spikes, item: int) -> tuple[str, Batch]:
        """The spikes from time step `item` on."""
        if not 0 <= item < self.steps * self.stretch:
            raise EngramError(f"item must be a time step from 0 to {self.steps * self.stretch - 1}, not {item}.")
        step_ms = self.model.step_ms
        trains = Trains(data, min(round(MOMENT_MS / step_ms), self.steps * self.stretch - item), step_ms)
        trains.position = item
        said = f"{trains.steps * step_ms:g} ms of spikes from {item * step_ms:g} ms on, beginning at rest"
        return said, next(trains)

    def sample(self, learner: Learner, data: Spikes, request: Request) -> Sample:
        """Other trains of the same rate."""
        lines, shown = [], []
        for i in range(request.count):
            spikes, model = self.drawn(request.generator), Synapse(self.model)
            s_TN: Tensor = model(spikes, self.steps * self.stretch)
            lines.append(f"train {i + 1}: {len(spikes.of(0))} spikes, mean input {s_TN[:, 0].mean():.4f} per ms")
            shown.append(s_TN)
        return Sample({"s": torch.stack(shown)}, "\n".join(lines))
