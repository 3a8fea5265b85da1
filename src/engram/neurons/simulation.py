"""Simulation of neurons as a learner.

A batch is a window of the input current, a step integrates over it.

Any model with `simulate(state, current_TN) -> state, recording, spikes`, the number `recorded` of state variables that
it records per neuron, and a buffer `state` can be simulated; spike times are relative to the start of the window. The
recording (every `stride`-th time step) and all spikes are part of the learner's state, so a run can be resumed.

T time steps, K recorded state variables (the membrane potential first), N neurons
"""

from typing import Any

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.core.learner import Batch, Metrics


class Simulation:
    """Integrates a model over time and keeps its recording and its spikes."""

    def __init__(self, model: Any, stride: int) -> None:
        self.model, self.stride = model, stride
        self.elapsed_steps = 0
        new, N = model.state.new_empty, model.config.neurons
        self._recorded = [(new(0, model.recorded, N), new(0, N))]
        self._spikes = [(model.state.new_empty(0), torch.empty(0, dtype=torch.int64))]  # time and neuron

    def step(self, batch: Batch) -> Metrics:
        J_TN = batch["input"]
        state, recording_TKN, spikes = self.model.simulate(self.model.state.clone(), J_TN)
        self.model.state.copy_(state)
        start_ms = self.elapsed_steps * self.model.config.step_ms
        self._spikes.append((torch.from_numpy(spikes.time_ms + start_ms), torch.from_numpy(spikes.neuron)))
        recorded = slice(self.stride - 1 - self.elapsed_steps % self.stride, None, self.stride)
        self._recorded.append((recording_TKN[recorded], J_TN[recorded]))
        self.elapsed_steps += len(J_TN)
        return {"voltage": recording_TKN[:, 0].mean(), "spikes": torch.tensor(float(len(spikes.neuron)))}

    @property
    def recording_TKN(self) -> Tensor:
        """Recorded state variables at the recorded times."""
        return torch.cat([recording for recording, _ in self._recorded])

    @property
    def current_TN(self) -> Tensor:
        """Injected current at the recorded times."""
        return torch.cat([current for _, current in self._recorded])

    @property
    def time_ms(self) -> Tensor:
        """Recorded times."""
        return torch.arange(1, self.elapsed_steps // self.stride + 1) * (self.stride * self.model.config.step_ms)

    def spikes_ms(self, neuron: int) -> Tensor:
        """Spike times of one neuron."""
        return torch.cat([times[which == neuron] for times, which in self._spikes])

    def all_spikes(self) -> tuple[Tensor, Tensor]:
        """Time and neuron of every spike."""
        return torch.cat([times for times, _ in self._spikes]), torch.cat([which for _, which in self._spikes])

    def intervals_ms(self, neuron: int) -> Tensor:
        """Interspike intervals of one neuron."""
        return self.spikes_ms(neuron).diff()

    def rates_hz(self) -> Tensor:
        """Firing rate of each neuron from its first to its last spike; 0 for fewer than two spikes."""
        trains = [self.spikes_ms(i) for i in range(self.model.config.neurons)]
        return torch.tensor([1000 * (len(t) - 1) / (t[-1] - t[0]).item() if len(t) > 1 else 0.0 for t in trains])

    def state_dict(self) -> dict[str, Any]:
        times, neuron = self.all_spikes()
        recorded = {"recording": self.recording_TKN, "current": self.current_TN}
        return {"elapsed_steps": self.elapsed_steps, **recorded, "spike_ms": times, "spike_neuron": neuron}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.elapsed_steps = state["elapsed_steps"]
        self._recorded = [(state["recording"], state["current"])]
        self._spikes = [(state["spike_ms"], state["spike_neuron"])]


class InputWindows:
    """Consecutive windows of an input signal T × N; zeros after its end."""

    def __init__(self, signal_TN: Tensor, length: int) -> None:
        if len(signal_TN) == 0:
            raise EngramError("The current has no values.")
        self.signal_TN, self.length, self.position = signal_TN, length, 0

    def __next__(self) -> dict[str, Any]:
        window_TN = self.signal_TN[self.position : self.position + self.length]
        self.position += self.length
        zeros = window_TN.new_zeros(self.length - len(window_TN), self.signal_TN.shape[1])
        return {"input": torch.cat([window_TN, zeros])}

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]
