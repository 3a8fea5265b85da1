r"""Synapse: linear filter of spike trains, exponential (n = 0), alpha function (n = 1) and higher.

    h(t) = t^n \exp(-t / \tau) / (n! \tau^{n+1})                                 impulse response, t >= 0           (1)
    s(t) = \sum_p h(t - t_p)                                                     filtered spike train               (2)
    \tau dx_0/dt = -x_0 + u, \tau dx_k/dt = -x_k + x_{k-1}                       cascade of n + 1 stages, s = x_n   (3)
    x_k(t + D) = \sum_{j \leq k} q_{k-j}(D) x_j(t)                               exact step of (3)                  (4)
    x_k(t) \leftarrow x_k(t) + q_k(t - t_p) / \tau                               spike at t_p within the step       (5)
    x_k(t + D) \leftarrow x_k(t + D) + (1 - \sum_{i \leq k} q_i(D)) u            input constant during the step     (6)
    q_i(D) = (D / \tau)^i \exp(-D / \tau) / i!                                   coefficients                       (7)

(4) and (5) compute (2) without a sum over all spikes so far.

Symbols:
    \tau, n       time constant, order
    t_p           spike times
    x_k, s        stages, postsynaptic current
    u             input
    D             time step
    N, T, K       synapses, time steps, stages
"""

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge, Gt, Le
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.tap import tap
from engram.neurons.finite import FiniteSettings
from engram.neurons.kernels import compiled
from engram.neurons.spikes import Spikes

Array = NDArray[np.float64]
MAX_ORDER = 20


class Synapse(nn.Module):
    """N synapses with the same impulse response; `state` holds their stages (K×N)."""

    state: Tensor

    @dataclass(frozen=True, kw_only=True)
    class Config(FiniteSettings):
        synapses: Annotated[int, Ge(1)] = 1
        """number of synapses (N)"""
        tau_ms: Annotated[float, Gt(0)] = 5.0
        """synaptic time constant, ms"""
        order: Annotated[int, Ge(0), Le(MAX_ORDER)] = 0
        """order of the impulse response (n): 0 exponential decay, 1 alpha function, more rises more slowly"""
        step_ms: Annotated[float, Gt(0)] = 0.1
        """time step, ms"""

    def __init__(self, config: Config | None = None) -> None:
        super().__init__()
        self.config = config or self.Config()
        self.register_buffer("state", self.init_state())

    def init_state(self) -> Tensor:
        """The state before any spike: zeros, K×N."""
        return torch.zeros(self.config.order + 1, self.config.synapses, dtype=torch.float64)

    def impulse_response(self, t_ms: ArrayLike | Tensor) -> Tensor:
        """Impulse response at the times t_ms, per ms."""
        return impulse_response(torch.as_tensor(t_ms, dtype=torch.float64), self.config.tau_ms, self.config.order)

    def step(self, state_KN: Tensor, spikes: Spikes, steps: int) -> tuple[Tensor, Tensor]:
        """Filter spikes within `steps` time steps; the new state, and s after each step, T×N."""
        ordered = spikes.sort_by_time()
        new_KN, s_TN = state_KN.clone(), np.empty((steps, self.config.synapses))
        if len(ordered.time_ms) and not 0 <= ordered.time_ms[0] <= ordered.time_ms[-1] <= steps * self.config.step_ms:
            raise EngramError(f"Spikes must fall within the {steps * self.config.step_ms:g} ms that are simulated.")
        if len(ordered.neuron) and not 0 <= ordered.neuron.min() <= ordered.neuron.max() < self.config.synapses:
            raise EngramError(f"Spikes must be those of {self.config.synapses} synapses, from 0 on.")
        _filter(new_KN.numpy(), self.config.tau_ms, self.config.step_ms, ordered.time_ms, ordered.neuron, s_TN)
        return new_KN, torch.from_numpy(s_TN)

    def filter_input(self, state_KN: Tensor, input_TN: Tensor) -> tuple[Tensor, Tensor]:
        """Filter a continuous input, constant during each time step; the new state and s, T×N."""
        q_K = coefficients(self.config.step_ms / self.config.tau_ms, self.config.order)
        gain_K1 = torch.from_numpy(1 - np.cumsum(q_K))[:, None]
        mix_KK = torch.from_numpy(np.array([[q_K[k - j] if j <= k else 0.0 for j in range(len(q_K))]
                                            for k in range(len(q_K))]))  # fmt: skip
        s_TN = torch.empty(input_TN.shape, dtype=torch.float64)
        for t, input_N in enumerate(input_TN.double()):
            state_KN = mix_KK @ state_KN + gain_K1 * input_N  # (4), (6)
            s_TN[t] = state_KN[-1]
        return state_KN, s_TN

    def forward(self, spikes: Spikes, steps: int) -> Tensor:
        """s after each time step without earlier spikes, T×N."""
        return tap("s", self.step(self.init_state(), spikes, steps)[1])


def impulse_response(t_ms: Tensor, tau_ms: float, order: int) -> Tensor:
    """Impulse response h, per ms."""
    x = (t_ms / tau_ms).clamp(min=0)
    return torch.where(t_ms >= 0, x**order * torch.exp(-x) / (math.factorial(order) * tau_ms), 0.0)  # (1)


def convolve(spikes: Spikes, t_ms: ArrayLike, synapses: int, tau_ms: float, order: int = 0) -> Array:
    """s at any times by the sum over all spikes (2), T×N: the reference of `Synapse.step`."""
    t = np.asarray(t_ms, np.float64)
    s_TN = np.zeros((len(t), synapses))
    for time_ms, neuron in zip(spikes.time_ms, spikes.neuron, strict=True):
        s_TN[:, neuron] += impulse_response(torch.from_numpy(t - time_ms), tau_ms, order).numpy()  # (2)
    return s_TN


def coefficients(x: float, order: int) -> Array:
    """q_0 … q_n for D / tau = x (7)."""
    return np.array([x**i * math.exp(-x) / math.factorial(i) for i in range(order + 1)])  # (7)


@compiled
def _filter(x_KN: Array, tau_ms: float, step_ms: float, time_ms: Array, neuron: NDArray[np.int64], s_TN: Array) -> None:
    K, N = x_KN.shape
    q_K, next_spike = np.empty(K), 0
    for t in range(len(s_TN)):
        end = (t + 1) * step_ms
        _coefficients(step_ms / tau_ms, q_K)
        for i in range(N):
            for k in range(K - 1, -1, -1):
                total = 0.0
                for j in range(k + 1):
                    total += q_K[k - j] * x_KN[j, i]
                x_KN[k, i] = total  # (4)
        while next_spike < len(time_ms) and (time_ms[next_spike] <= end or t == len(s_TN) - 1):
            _coefficients(max(0.0, end - time_ms[next_spike]) / tau_ms, q_K)
            for k in range(K):
                x_KN[k, neuron[next_spike]] += q_K[k] / tau_ms  # (5)
            next_spike += 1
        for i in range(N):
            s_TN[t, i] = x_KN[K - 1, i]


@compiled
def _coefficients(x: float, q_K: Array) -> None:
    q_K[0] = math.exp(-x)
    for i in range(1, len(q_K)):
        q_K[i] = q_K[i - 1] * x / i
