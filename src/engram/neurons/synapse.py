"""Synapses: what a spike leaves behind (note 003 §2.4).   N synapses, T time steps, K = n + 1 stages, D a step

    h(t) = t^n e^(-t / tau) / (n! tau^(n + 1))              for t >= 0, otherwise 0; its integral is 1          (1)
    s(t) = sum_p h(t - t_p)                                 the train of spikes at t_p, filtered                (2)

h is what n + 1 stages make of an impulse, each of which follows the one before it, and the last of which is s:

    tau dx_0/dt = -x_0 + input,   tau dx_k/dt = -x_k + x_(k-1)                                                  (3)
    x_k(t + D) = sum_(j <= k) q_(k-j)(D) x_j(t),   q_i(D) = (D / tau)^i e^(-D / tau) / i!                       (4)
    a spike at t_p:   x_k(t) += q_k(t - t_p) / tau          exact wherever in a step it falls                   (5)
    an input held during D:   x_k(t + D) += (1 - sum_(i <= k) q_i(D)) input                                     (6)

(4) and (5) are (2), without its sum over all spikes so far: a convolution by a state that is as large as h is complex.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.tap import tap
from engram.neurons.kernels import compiled
from engram.neurons.lif import Spikes

Array = NDArray[np.float64]
MOST_ORDER = 20


class Synapse(nn.Module):
    """N filters of one shape; `state` holds their stages."""

    state: Tensor

    @dataclass(frozen=True, kw_only=True)
    class Config:
        synapses: int = 1
        """number of filters (N)"""
        tau_ms: float = 5.0
        """time constant, ms"""
        order: int = 0
        """exponent of t in the response (n): 0 jumps and decays, 1 and more rise first"""
        step_ms: float = 0.1
        """time step, ms"""

        def __post_init__(self) -> None:
            for name in ("synapses", "tau_ms", "step_ms"):
                if not 0 < getattr(self, name) < math.inf:
                    raise EngramError(f"{name} must be greater than 0, not {getattr(self, name)}.")
            if not 0 <= self.order <= MOST_ORDER:
                raise EngramError(f"order must be from 0 to {MOST_ORDER}, not {self.order}.")

    def __init__(self, config: Config | None = None) -> None:
        super().__init__()
        self.config = config or self.Config()
        self.register_buffer("state", self.rest())

    def rest(self) -> Tensor:
        """Nothing left of any spike, K×N."""
        return torch.zeros(self.config.order + 1, self.config.synapses, dtype=torch.float64)

    def h(self, t_ms: ArrayLike | Tensor) -> Tensor:
        """The response to one spike at time 0, per ms."""
        return response(torch.as_tensor(t_ms, dtype=torch.float64), self.config.tau_ms, self.config.order)

    def step(self, state_KN: Tensor, spikes: Spikes, steps: int) -> tuple[Tensor, Tensor]:
        """Advance by `steps`, in which the spikes fall; the new state, and s after each step, T×N."""
        ordered = spikes.in_order_of_time()
        new_KN, s_TN = state_KN.clone(), np.empty((steps, self.config.synapses))
        if len(ordered.time_ms) and not 0 <= ordered.time_ms[0] <= ordered.time_ms[-1] <= steps * self.config.step_ms:
            raise EngramError(f"Spikes must fall within the {steps * self.config.step_ms:g} ms that are advanced.")
        if len(ordered.neuron) and not 0 <= ordered.neuron.min() <= ordered.neuron.max() < self.config.synapses:
            raise EngramError(f"Spikes must be those of {self.config.synapses} synapses, from 0 on.")
        _filter(new_KN.numpy(), self.config.tau_ms, self.config.step_ms, ordered.time_ms, ordered.neuron, s_TN)
        return new_KN, torch.from_numpy(s_TN)

    def hold(self, state_KN: Tensor, input_TN: Tensor) -> tuple[Tensor, Tensor]:
        """Advance with an input that is not spikes but a number, held during each step."""
        q_K = powers(self.config.step_ms / self.config.tau_ms, self.config.order)
        fresh_K1 = torch.from_numpy(1 - np.cumsum(q_K))[:, None]
        mix_KK = torch.from_numpy(np.array([[q_K[k - j] if j <= k else 0.0 for j in range(len(q_K))]
                                            for k in range(len(q_K))]))  # fmt: skip
        s_TN = torch.empty(input_TN.shape, dtype=torch.float64)
        for t, input_N in enumerate(input_TN.double()):
            state_KN = mix_KK @ state_KN + fresh_K1 * input_N  # (4), (6)
            s_TN[t] = state_KN[-1]
        return state_KN, s_TN

    def forward(self, spikes: Spikes, steps: int) -> Tensor:
        """s after each step, T×N, from rest."""
        return tap("s", self.step(self.rest(), spikes, steps)[1])


def response(t_ms: Tensor, tau_ms: float, order: int) -> Tensor:
    """h."""
    x = (t_ms / tau_ms).clamp(min=0)
    return torch.where(t_ms >= 0, x**order * torch.exp(-x) / (math.factorial(order) * tau_ms), 0.0)  # (1)


def convolved(spikes: Spikes, t_ms: ArrayLike, synapses: int, tau_ms: float, order: int = 0) -> Array:
    """s at any times, T×N, as (2) says it: a sum over all spikes."""
    t = np.asarray(t_ms, np.float64)
    s_TN = np.zeros((len(t), synapses))
    for time_ms, neuron in zip(spikes.time_ms, spikes.neuron, strict=True):
        s_TN[:, neuron] += response(torch.from_numpy(t - time_ms), tau_ms, order).numpy()  # (2)
    return s_TN


def powers(x: float, order: int) -> Array:
    """q_0 … q_n for D / tau = x."""
    return np.array([x**i * math.exp(-x) / math.factorial(i) for i in range(order + 1)])


@compiled
def _filter(x_KN: Array, tau_ms: float, step_ms: float, time_ms: Array, neuron: NDArray[np.int64], s_TN: Array) -> None:
    K, N = x_KN.shape
    q_K, next_spike = np.empty(K), 0
    for t in range(len(s_TN)):
        end = (t + 1) * step_ms
        _powers(step_ms / tau_ms, q_K)
        for i in range(N):
            for k in range(K - 1, -1, -1):
                total = 0.0
                for j in range(k + 1):
                    total += q_K[k - j] * x_KN[j, i]
                x_KN[k, i] = total  # (4)
        while next_spike < len(time_ms) and (time_ms[next_spike] <= end or t == len(s_TN) - 1):
            _powers(max(0.0, end - time_ms[next_spike]) / tau_ms, q_K)
            for k in range(K):
                x_KN[k, neuron[next_spike]] += q_K[k] / tau_ms  # (5)
            next_spike += 1
        for i in range(N):
            s_TN[t, i] = x_KN[K - 1, i]


@compiled
def _powers(x: float, q_K: Array) -> None:
    q_K[0] = math.exp(-x)
    for i in range(1, len(q_K)):
        q_K[i] = q_K[i - 1] * x / i
