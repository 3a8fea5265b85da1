"""The learner of what does not learn: a batch is a stretch of current, a step lets it pass through the neurons.

Any model with `step(state, current_TN) -> state, recording` and a buffer `state` can be simulated. What is kept of the
recording (one value in `stride`) and all spikes are the learner's state, so a run stops and goes on like any other.
"""

from typing import Any

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.core.learner import Batch, Metrics
from engram.neurons.hodgkin_huxley import HodgkinHuxley, spike_times_ms


class Simulation:
    """Lets time pass."""

    def __init__(self, model: HodgkinHuxley, stride: int) -> None:
        self.model, self.stride = model, stride
        neurons = model.config.neurons
        self.passed = 0  # time steps
        self.recording_T4N = torch.empty(0, 4, neurons, dtype=torch.float64)
        self.current_TN = torch.empty(0, neurons, dtype=torch.float64)
        self.spikes_ms = [torch.empty(0, dtype=torch.float64) for _ in range(neurons)]

    def step(self, batch: Batch) -> Metrics:
        J_TN = batch["current"]
        before_N = self.model.state[0].clone()
        state, recording_T4N = self.model.step(self.model.state, J_TN)
        self.model.state.copy_(state)
        fired = self._note_spikes(torch.cat([before_N[None], recording_T4N[:, 0]]))
        kept = slice(self.stride - 1 - self.passed % self.stride, None, self.stride)
        self.recording_T4N = torch.cat([self.recording_T4N, recording_T4N[kept]])
        self.current_TN = torch.cat([self.current_TN, J_TN[kept]])
        self.passed += len(J_TN)
        return {"V_mV": recording_T4N[:, 0].mean(), "spikes": torch.tensor(float(fired))}

    def _note_spikes(self, V_TN: Tensor) -> int:
        """Add the spikes of a stretch, whose first sample is the last of the stretch before; how many there were."""
        step_ms, fired = self.model.config.step_ms, 0
        for i, V_T in enumerate(V_TN.T):
            times = torch.from_numpy(spike_times_ms(V_T.numpy(), step_ms)) + (self.passed - 1) * step_ms
            self.spikes_ms[i] = torch.cat([self.spikes_ms[i], times])
            fired += len(times)
        return fired

    @property
    def time_ms(self) -> Tensor:
        """When the values that were kept belong to."""
        return torch.arange(1, len(self.recording_T4N) + 1) * (self.stride * self.model.config.step_ms)

    def rates_hz(self) -> Tensor:
        """Steady rate of each neuron, from its first spike to its last; 0 for fewer than two spikes."""
        return torch.tensor(
            [1000 * (len(t) - 1) / (t[-1] - t[0]).item() if len(t) > 1 else 0.0 for t in self.spikes_ms]
        )

    def state_dict(self) -> dict[str, Any]:
        names = ("passed", "recording_T4N", "current_TN", "spikes_ms")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)


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
