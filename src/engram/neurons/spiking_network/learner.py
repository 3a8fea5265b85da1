"""Simulation of a spiking network as a learner."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from engram.core.learner import Batch, Metrics
from engram.neurons.spikes import Spikes
from engram.neurons.spiking_network.model import BrunelNetwork
from engram.neurons.spiking_network.network import State


class SpikingSimulation:
    """Simulates a network window by window and keeps all spikes."""

    def __init__(self, model: BrunelNetwork, generator: torch.Generator, recorded: int) -> None:
        self.model, self.recorded = model, recorded
        self.state = model.init_state(generator)
        self.time_ms, self.neuron = torch.zeros(0, dtype=torch.float64), torch.zeros(0, dtype=torch.int64)
        self.v_TR = torch.zeros(0, recorded, dtype=torch.float64)

    def step(self, batch: Batch) -> Metrics:
        start_ms = self.state.elapsed_steps * self.model.step_ms
        self.state, recording = self.model.step(self.state, batch["steps"], record=range(self.recorded))
        self.model.state.copy_(torch.from_numpy(np.stack([self.state.v_N, self.state.s_N])))
        self.time_ms = torch.cat([self.time_ms, torch.from_numpy(recording.spikes.time_ms) + start_ms])
        self.neuron = torch.cat([self.neuron, torch.from_numpy(recording.spikes.neuron)])
        self.v_TR = torch.cat([self.v_TR, recording.v_TR])
        groups = {"excitatory_rate_hz": self.model.excitatory, "inhibitory_rate_hz": self.model.inhibitory}
        return {name: torch.tensor(recording.firing_rate_hz(group)) for name, group in groups.items()}

    @property
    def elapsed_ms(self) -> float:
        """Simulated time."""
        return self.state.elapsed_steps * self.model.step_ms

    def spikes(self) -> Spikes:
        """All spikes so far, sorted by neuron."""
        return Spikes.from_unsorted(self.time_ms.numpy(), self.neuron.numpy())

    def state_dict(self) -> dict[str, Any]:
        names = ("v_N", "s_N", "refractory_N", "hh_4H", "recent", "recent_count")
        arrays = {name: torch.from_numpy(getattr(self.state, name)) for name in names}
        kept = {"time_ms": self.time_ms, "neuron": self.neuron, "v_TR": self.v_TR}
        random = torch.from_numpy(self.state.random.view(np.int64))
        return {"elapsed_steps": self.state.elapsed_steps, "random": random, **arrays, **kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        array = {name: value.numpy().copy() for name, value in state.items() if isinstance(value, Tensor)}
        self.state = State(
            array["v_N"], array["s_N"], array["refractory_N"], array["hh_4H"], state["elapsed_steps"], array["recent"],
            array["recent_count"], array["random"].view(np.uint64),
        )  # fmt: skip
        self.time_ms, self.neuron, self.v_TR = state["time_ms"], state["neuron"], state["v_TR"]
