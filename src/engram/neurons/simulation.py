"""The learner of what does not learn: a batch is a stretch of current, a step lets it pass through the neurons.

Any model with `advance(state, current_TN) -> state, recording, spikes`, the number `recorded` of what it records of a
neuron, and a buffer `state` can be simulated; spikes have time 0 at the first step of a stretch. What is
kept of the recording (one value in `stride`) and all spikes are the learner's state, so a run stops and goes on like
any other.   T time steps, K what is recorded of a neuron, its voltage first, N neurons
"""

from typing import Any

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.core.learner import Batch, Metrics


class Simulation:
    """Lets time pass."""

    def __init__(self, model: Any, stride: int) -> None:
        self.model, self.stride = model, stride
        self.passed = 0  # time steps
        new, N = model.state.new_empty, model.config.neurons
        self._kept = [(new(0, model.recorded, N), new(0, N))]
        self._spikes = [(model.state.new_empty(0), torch.empty(0, dtype=torch.int64))]  # time and neuron

    def step(self, batch: Batch) -> Metrics:
        J_TN = batch["current"]
        state, recording_TKN, spikes = self.model.advance(self.model.state.clone(), J_TN)
        self.model.state.copy_(state)
        began_ms = self.passed * self.model.config.step_ms
        self._spikes.append((torch.from_numpy(spikes.time_ms + began_ms), torch.from_numpy(spikes.neuron)))
        kept = slice(self.stride - 1 - self.passed % self.stride, None, self.stride)
        self._kept.append((recording_TKN[kept], J_TN[kept]))
        self.passed += len(J_TN)
        return {"voltage": recording_TKN[:, 0].mean(), "spikes": torch.tensor(float(len(spikes.neuron)))}

    @property
    def recording_TKN(self) -> Tensor:
        """What was recorded at the times that were kept."""
        return torch.cat([recording for recording, _ in self._kept])

    @property
    def current_TN(self) -> Tensor:
        """The injected current at the times that were kept."""
        return torch.cat([current for _, current in self._kept])

    @property
    def time_ms(self) -> Tensor:
        """The times that were kept."""
        return torch.arange(1, self.passed // self.stride + 1) * (self.stride * self.model.config.step_ms)

    def spikes_ms(self, neuron: int) -> Tensor:
        """When one neuron fired."""
        return torch.cat([times[which == neuron] for times, which in self._spikes])

    def all_spikes(self) -> tuple[Tensor, Tensor]:
        """Time and neuron of every spike."""
        return torch.cat([times for times, _ in self._spikes]), torch.cat([which for _, which in self._spikes])

    def intervals_ms(self, neuron: int) -> Tensor:
        """From each spike of a neuron to its next."""
        return self.spikes_ms(neuron).diff()

    def rates_hz(self) -> Tensor:
        """Steady rate of each neuron, from its first spike to its last; 0 for fewer than two spikes."""
        trains = [self.spikes_ms(i) for i in range(self.model.config.neurons)]
        return torch.tensor([1000 * (len(t) - 1) / (t[-1] - t[0]).item() if len(t) > 1 else 0.0 for t in trains])

    def state_dict(self) -> dict[str, Any]:
        times, neuron = self.all_spikes()
        kept = {"recording": self.recording_TKN, "current": self.current_TN, "spike_ms": times, "spike_of": neuron}
        return {"passed": self.passed, **kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.passed = state["passed"]
        self._kept = [(state["recording"], state["current"])]
        self._spikes = [(state["spike_ms"], state["spike_of"])]


class Stretches:
    """Consecutive stretches of a current T × N; after its end, silence."""

    def __init__(self, current_TN: Tensor, length: int) -> None:
        if len(current_TN) == 0:
            raise EngramError("The current has no values.")
        self.current_TN, self.length, self.position = current_TN, length, 0

    def __next__(self) -> dict[str, Any]:
        J_TN = self.current_TN[self.position : self.position + self.length]
        self.position += self.length
        silence = J_TN.new_zeros(self.length - len(J_TN), self.current_TN.shape[1])
        return {"current": torch.cat([J_TN, silence])}

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.position = state["position"]
