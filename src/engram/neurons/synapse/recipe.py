"""Recipe of synapses: spike trains filtered into postsynaptic currents."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from annotated_types import Ge
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.learner import Batch, Learner, Metrics
from engram.core.recipe import Recipe, Sample, SampleRequest
from engram.core.registry import register
from engram.core.seeding import generator
from engram.data.series import read_series
from engram.neurons.base import SimulationMixin
from engram.neurons.spikes import Spikes
from engram.neurons.synapse import plots
from engram.neurons.synapse.model import Synapse, convolve
from engram.plots.figure import Figure

INSPECTED_MS = 200.0
"""time that `engram inspect` simulates, ms"""


class SynapseSimulation:
    """Filters windows of spike trains and keeps the postsynaptic currents."""

    def __init__(self, model: Synapse) -> None:
        self.model, self.elapsed_steps = model, 0
        self.s_TN = torch.zeros(0, model.config.synapses, dtype=torch.float64)

    def step(self, batch: Batch) -> Metrics:
        state, s_TN = self.model.step(self.model.state, batch["spikes"], batch["steps"])
        self.model.state.copy_(state)
        self.s_TN = torch.cat([self.s_TN, s_TN])
        self.elapsed_steps += batch["steps"]
        return {"postsynaptic_current": s_TN.mean(), "spikes": torch.tensor(float(len(batch["spikes"].neuron)))}

    def state_dict(self) -> dict[str, Any]:
        return {"elapsed_steps": self.elapsed_steps, "s": self.s_TN}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.elapsed_steps, self.s_TN = state["elapsed_steps"], state["s"]


class SpikeWindows:
    """Consecutive windows of spike trains; no spikes after their end."""

    def __init__(self, spikes: Spikes, steps: int, step_ms: float) -> None:
        self.spikes, self.steps, self.step_ms, self.position = spikes, steps, step_ms, 0

    def __next__(self) -> dict[str, Any]:
        start_ms, length_ms = self.position * self.step_ms, self.steps * self.step_ms
        now = (self.spikes.time_ms > start_ms) & (self.spikes.time_ms <= start_ms + length_ms)
        self.position += self.steps
        time_ms = np.minimum(self.spikes.time_ms[now] - start_ms, length_ms)
        return {"spikes": Spikes(time_ms, self.spikes.neuron[now]), "steps": self.steps}

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]


@register
@dataclass(frozen=True, kw_only=True)
class SynapseRecipe(SimulationMixin, Recipe[Synapse, Spikes]):
    """Filters Poisson spike trains into postsynaptic currents and compares them with the convolution."""

    name: ClassVar[str] = "synapse"
    title: ClassVar[str] = "Synapse"
    Model: ClassVar[type[nn.Module]] = Synapse
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"tiny": {"steps": 10, "eval_every": 5, "window_ms": 10.0}}
    best: ClassVar[tuple[str, str]] = ("valid_max_error", "min")
    samples: ClassVar[int] = 3

    data: str = "poisson"
    """"poisson", random spike trains, or a file of your own: a column of spike times in ms for each synapse"""
    window_ms: float = 50.0
    """simulated time per step of the run, ms; at least one time step"""
    rate_hz: Annotated[float, Ge(0)] = 40.0
    """presynaptic firing rate of Poisson spike trains, Hz"""
    model: Synapse.Config = field(default_factory=lambda: Synapse.Config(order=1, tau_ms=10.0))
    """synapse model"""

    @property
    def duration_ms(self) -> float:
        return self.total_steps * self.model.step_ms

    def load(self) -> Spikes:
        if self.data == "poisson":
            return self.sample_spikes(generator(self.seed, "spikes"))
        times_TN = read_series(self.data).double()
        if times_TN.shape[1] != self.model.synapses:
            raise EngramError(f"{self.data} has {times_TN.shape[1]} columns: {self.model.synapses} are needed.")
        neuron = torch.arange(times_TN.shape[1]).expand_as(times_TN)
        within = (times_TN > 0) & (times_TN <= self.duration_ms)
        return Spikes.from_unsorted(times_TN[within].numpy(), neuron[within].numpy())

    def sample_spikes(self, generator: torch.Generator) -> Spikes:
        """Poisson spike trains for the whole run."""
        mean_N = torch.full((self.model.synapses,), self.rate_hz * self.duration_ms / 1000)
        count_N = torch.poisson(mean_N, generator=generator).long()
        neuron = torch.repeat_interleave(torch.arange(self.model.synapses), count_N)
        time_ms = (1 - torch.rand(len(neuron), generator=generator, dtype=torch.float64)) * self.duration_ms
        return Spikes.from_unsorted(time_ms.numpy(), neuron.numpy())

    def learner(self, data: Spikes) -> SynapseSimulation:
        return SynapseSimulation(Synapse(self.model))

    def batches(self, data: Spikes) -> SpikeWindows:
        return SpikeWindows(data, self.window_steps, self.model.step_ms)

    def evaluate(self, learner: Learner[Synapse], data: Spikes, split: str) -> dict[str, float]:
        """Largest difference between the filtered spike train and the convolution, and the mean current."""
        assert isinstance(learner, SynapseSimulation)
        time_ms = np.arange(1, learner.elapsed_steps + 1) * self.model.step_ms
        exact_TN = convolve(data, time_ms, self.model.synapses, self.model.tau_ms, self.model.order)
        error = np.abs(exact_TN - learner.s_TN.numpy()).max(initial=0.0)
        return {"max_error": float(error), "postsynaptic_current": learner.s_TN.mean().item()}

    def figures(self, learner: Learner[Synapse], data: Spikes) -> Iterator[Figure]:
        assert isinstance(learner, SynapseSimulation)
        yield from self.plot_simulation(learner, {"spikes": data})

    def plot_simulation(self, learner: SynapseSimulation, batch: Batch) -> Iterator[Figure]:
        yield plots.plot_impulse_responses(self.model.tau_ms, self.model.order)
        yield plots.plot_filtered_train(batch["spikes"].train(0), learner.s_TN[:, 0], self.model.step_ms)

    def trace(self, model: Synapse, data: Spikes, item: int) -> str:
        description, batch = self.select_batch(data, item)
        model(batch["spikes"], batch["steps"])
        return description

    def init_learner(self, model: Synapse, item: int) -> SynapseSimulation:
        model.state.copy_(model.init_state())
        return SynapseSimulation(model)

    def select_batch(self, data: Spikes, item: int) -> tuple[str, Batch]:
        """The spikes from time step `item` on."""
        if not 0 <= item < self.total_steps:
            raise EngramError(f"item must be a time step from 0 to {self.total_steps - 1}, not {item}.")
        step_ms = self.model.step_ms
        windows = SpikeWindows(data, min(round(INSPECTED_MS / step_ms), self.total_steps - item), step_ms)
        windows.position = item
        description = f"{windows.steps * step_ms:g} ms of spikes from {item * step_ms:g} ms on, from rest"
        return description, next(windows)

    def sample(self, learner: Learner[Synapse], data: Spikes, request: SampleRequest) -> Sample:
        """Other Poisson spike trains of the same rate."""
        lines, currents, rows = [], [], []
        for i in range(request.count):
            spikes, model = self.sample_spikes(request.generator), Synapse(self.model)
            s_TN: Tensor = model(spikes, self.total_steps)
            rows.append({"train": i + 1, "spikes": len(spikes.train(0)), "mean_current": s_TN[:, 0].mean().item()})
            lines.append(
                f"train {i + 1}: {rows[i]['spikes']} spikes, mean current {rows[i]['mean_current']:.4f} per ms"
            )
            currents.append(s_TN)
        return Sample({"s": torch.stack(currents)}, "\n".join(lines), rows=rows)
