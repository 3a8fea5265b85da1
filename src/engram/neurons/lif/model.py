r"""Leaky integrate-and-fire (LIF) neuron (Lapicque 1907), dimensionless: rest at 0, threshold at 1.

    \tau_m dv/dt = v_{in} - v                                                   below the threshold             (1)
    v \geq 1: \text{spike}, v = 0 \text{ for } \tau_{ref}                         threshold, refractory period    (2)
    v(t) = v_{in} + (v(0) - v_{in}) \exp(-t / \tau_m)                           solution of (1)                 (3)
    t_1 = \tau_m \ln((v_{in} - v(0)) / (v_{in} - 1))                            time to threshold, v_in > 1     (4)
    r = 1 / (\tau_{ref} - \tau_m \ln(1 - 1 / v_{in}))                           firing rate; 0 for v_in <= 1    (5)

The input is constant during a time step, so (3) is exact, and (4) gives the exact spike time within the step.
`exact=False` does what most simulators do: spikes fall on the ends of time steps, which lengthens
each interval by half a step on average, and the refractory period is rounded to whole steps.

Symbols:
    v, v_{in}             membrane potential, input
    \tau_m, \tau_{ref}    membrane time constant, refractory period
    t_1                   time to reach the threshold
    r                     firing rate
    N, T                  neurons, time steps
"""

import math
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
import torch
from annotated_types import Ge, Gt
from numba import prange
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.tap import tap
from engram.core.threads import parallel_njit
from engram.neurons.finite import FiniteSettings
from engram.neurons.kernels import compiled
from engram.neurons.spikes import Array, Spikes, pack_spikes

LANES = 32
"""neurons integrated together: eight AVX2 registers of them"""
PARALLEL = 1 << 17
"""neurons × time steps from which threads pay off"""

MAX_SPIKES = 10**9
"""upper limit of the spike buffer"""


class LIF(nn.Module):
    """N independent neurons; `state` holds v and the remaining refractory time in ms (2×N)."""

    tau_m_ms: Tensor
    tau_ref_ms: Tensor
    state: Tensor
    recorded = 1

    @dataclass(frozen=True, kw_only=True)
    class Config(FiniteSettings):
        neurons: Annotated[int, Ge(1)] = 1
        """number of independent neurons (N)"""
        tau_m_ms: Annotated[float, Gt(0)] = 20.0
        """membrane time constant, ms"""
        tau_ref_ms: Annotated[float, Ge(0)] = 2.0
        """refractory period, ms; 0 means none"""
        step_ms: Annotated[float, Gt(0)] = 0.1
        """time step during which the input is constant, ms"""
        exact: bool = True
        """exact spike times within a time step instead of at its end"""

    def __init__(self, config: Config | None = None) -> None:
        super().__init__()
        self.config = config or self.Config()
        for name in ("tau_m_ms", "tau_ref_ms"):
            value = getattr(self.config, name)
            self.register_buffer(name, torch.full((self.config.neurons,), value, dtype=torch.float64))
        self.register_buffer("state", self.init_state())

    def init_state(self) -> Tensor:
        """The resting state: v = 0, not refractory, 2×N."""
        return torch.zeros(2, self.config.neurons, dtype=torch.float64)

    def step(self, state_2N: Tensor, v_in_TN: Tensor, *, record: bool = True) -> tuple[Tensor, Tensor, Spikes]:
        """Integrate T time steps: the new state, v after each step (T×N), and the spikes.

        Spike times are relative to the start. Without `record` v is not returned, which saves most of the time; an
        input of one row expanded to T rows is read once.
        """
        N = self.config.neurons
        if state_2N.shape != (2, N) or v_in_TN.ndim != 2 or v_in_TN.shape[1] != N:
            raise EngramError(
                f"{N} neurons need a state of shape 2×N and an input of shape T×N, not {tuple(state_2N.shape)} and "
                f"{tuple(v_in_TN.shape)}."
            )
        new_2N = state_2N.double().clone(memory_format=torch.contiguous_format)
        T, constant = len(v_in_TN), v_in_TN.stride(0) == 0
        u_TN = v_in_TN[: 1 if constant else T].double().contiguous().numpy()
        first_N, time_ms = self._allocate_spikes(u_TN.max(0, initial=0.0), T * self.config.step_ms)
        v_TN = np.empty((T if record else 0, N))
        tau_N, tau_ref_N = self._constants()
        decay_N, count_N, step_ms = np.exp(-self.config.step_ms / tau_N), np.zeros(N, np.int64), self.config.step_ms
        arrays = KernelArrays(new_2N.numpy(), tau_N, tau_ref_N, decay_N, step_ms, u_TN, v_TN, time_ms, first_N, count_N)
        advance = _advance_parallel if T * N >= PARALLEL else _advance_serial
        advance(arrays, T, self.config.exact)
        return new_2N, torch.from_numpy(v_TN), pack_spikes(time_ms, first_N, count_N)

    def simulate(self, state_2N: Tensor, v_in_TN: Tensor) -> tuple[Tensor, Tensor, Spikes]:
        """The same as `step`, with the recording as T×1×N."""
        new_2N, v_TN, spikes = self.step(state_2N, v_in_TN)
        return new_2N, v_TN[:, None], spikes

    def simulate_constant_input(self, v_in_N: ArrayLike | Tensor, duration_ms: float) -> Spikes:
        """Exact spikes from rest under a constant input, by the interval of (5) instead of time steps."""
        u_N = np.ascontiguousarray(np.broadcast_to(np.asarray(v_in_N, np.float64), self.config.neurons))
        first_N, time_ms = self._allocate_spikes(u_N, duration_ms)
        tau_N, tau_ref_N = self._constants()
        return pack_spikes(time_ms, first_N, _fill_intervals(tau_N, tau_ref_N, u_N, duration_ms, time_ms, first_N))

    def forward(self, v_in_TN: Tensor) -> Tensor:
        """v after each time step from rest, T×N; `state` does not change."""
        return tap("v", self.step(self.init_state(), v_in_TN)[1])

    def reference_step(self, state_2N: Tensor, v_in_N: Tensor) -> tuple[Tensor, list[tuple[float, int]]]:
        """One time step in plain Python, and (time, neuron) of its spikes: the reference of the kernel."""
        spikes, new_2N = list[tuple[float, int]](), state_2N.clone()
        for i, (v, refractory, u) in enumerate(zip(*state_2N.tolist(), v_in_N.tolist(), strict=True)):
            tau, tau_ref, now, end = self.tau_m_ms[i].item(), self.tau_ref_ms[i].item(), 0.0, self.config.step_ms
            while now + refractory < end:
                now, refractory = now + refractory, 0.0
                rise_ms = tau * math.log((u - v) / (u - 1)) if u > 1 else math.inf  # (4)
                if now + rise_ms > end:
                    v = u + (v - u) * math.exp(-(end - now) / tau)  # (3)
                    now = end
                    break
                now, v, refractory = now + rise_ms, 0.0, tau_ref  # (2)
                spikes.append((now, i))
            new_2N[0, i], new_2N[1, i] = v, max(0.0, refractory - (end - now))
        return new_2N, spikes

    def _constants(self) -> tuple[Array, Array]:
        if self.config.exact:
            return self.tau_m_ms.numpy(), self.tau_ref_ms.numpy()
        step = self.config.step_ms
        return self.tau_m_ms.numpy(), torch.round(self.tau_ref_ms / step).mul(step).numpy()

    def _allocate_spikes(self, max_N: Array, duration_ms: float) -> tuple[NDArray[np.int64], Array]:
        """Offsets and buffer for the spikes of each neuron, at most those under its largest input."""
        if not np.isfinite(max_N).all():
            raise EngramError("The input must be finite.")
        rate_N = firing_rate_hz(max_N, *self._constants())
        if not duration_ms / 1000 * rate_N.sum() < MAX_SPIKES:
            raise EngramError(f"This input would cause more than {MAX_SPIKES:,} spikes: lower it.")
        first_N = np.concatenate([[0], np.cumsum(np.floor(duration_ms / 1000 * rate_N).astype(np.int64) + 2)])
        return first_N, np.empty(first_N[-1])


def firing_rate_hz(v_in: ArrayLike, tau_m_ms: ArrayLike = 20.0, tau_ref_ms: ArrayLike = 2.0) -> Array:
    """Firing rate under a constant input, Hz."""
    u = np.asarray(v_in, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        interval_ms = np.asarray(tau_ref_ms) - np.asarray(tau_m_ms) * np.log1p(-1 / np.maximum(u, 1))
        return np.where(u > 1, 1000 / interval_ms, 0.0)  # (5)


@parallel_njit(error_model="numpy", nogil=True)
def _fill_intervals(
    tau_N: Array, tau_ref_N: Array, u_N: Array, duration_ms: float, time_ms: Array, first_N: NDArray[np.int64]
) -> NDArray[np.int64]:
    count_N = np.zeros(len(u_N), np.int64)
    for i in prange(len(u_N)):
        if u_N[i] > 1:
            rise_ms = -tau_N[i] * math.log1p(-1 / u_N[i])
            interval = tau_ref_N[i] + rise_ms
            count = math.floor((duration_ms - rise_ms) / interval) + 1 if duration_ms >= rise_ms else 0
            for k in range(count):
                time_ms[first_N[i] + k] = rise_ms + k * interval
            count_N[i] = count
    return count_N


class KernelArrays(NamedTuple):
    """Arrays that the kernels read and write."""

    state_2N: Array
    tau_N: Array
    """membrane time constants"""
    tau_ref_N: Array
    """refractory periods"""
    decay_N: Array
    """e^(-step / tau)"""
    step_ms: float
    u_TN: Array
    """input; one row if it is constant"""
    v_TN: Array
    """recording of v; empty without recording"""
    time_ms: Array
    first_N: NDArray[np.int64]
    """offset of the spike times of each neuron"""
    count_N: NDArray[np.int64]
    """number of spikes of each neuron"""


@compiled
def _advance_serial(a: KernelArrays, steps: int, exact: bool) -> None:
    for first in range(0, len(a.tau_N), LANES):
        _advance_lanes(a, steps, exact, first)


@parallel_njit(error_model="numpy", nogil=True)
def _advance_parallel(a: KernelArrays, steps: int, exact: bool) -> None:
    for group in prange((len(a.tau_N) + LANES - 1) // LANES):
        _advance_lanes(a, steps, exact, group * LANES)


@compiled
def _advance_lanes(a: KernelArrays, steps: int, exact: bool, first: int) -> None:
    """Integrate neurons first..first+L-1 (or fewer at the end) through all time steps.

    All lanes are relaxed at once; neurons with an event (spike or end of the refractory period) are redone one by one.
    """
    count = min(LANES, len(a.tau_N) - first)
    v_L, refractory_L, decay_L, u_L = np.zeros(LANES), np.zeros(LANES), np.zeros(LANES), np.zeros(LANES)
    next_v_L, next_refractory_L = np.zeros(LANES), np.zeros(LANES)
    for i in range(count):
        v_L[i], refractory_L[i], decay_L[i] = a.state_2N[0, first + i], a.state_2N[1, first + i], a.decay_N[first + i]
    tolerance = 0.0 if exact else a.step_ms / 2
    for t in range(steps):
        u_N = a.u_TN[t if len(a.u_TN) > 1 else 0]
        for i in range(count):
            u_L[i] = u_N[first + i]
        event = False
        for i in range(LANES):
            relaxed = u_L[i] + (v_L[i] - u_L[i]) * decay_L[i]  # (3)
            is_refractory = refractory_L[i] > tolerance
            next_v_L[i] = v_L[i] if is_refractory else relaxed
            next_refractory_L[i] = refractory_L[i] - a.step_ms if is_refractory else 0.0
            event |= (next_v_L[i] >= 1) | (next_refractory_L[i] < -tolerance)
        if event:
            for i in range(count):
                if next_v_L[i] >= 1 or next_refractory_L[i] < -tolerance:
                    next_v_L[i], next_refractory_L[i] = _event(a, exact, t, first + i, v_L[i], refractory_L[i], u_L[i])
        for i in range(LANES):
            v_L[i], refractory_L[i] = next_v_L[i], next_refractory_L[i]
        if len(a.v_TN):
            v_N = a.v_TN[t]
            for i in range(count):
                v_N[first + i] = v_L[i]
    for i in range(count):
        a.state_2N[0, first + i], a.state_2N[1, first + i] = v_L[i], refractory_L[i]


@compiled
def _event(a: KernelArrays, exact: bool, t: int, i: int, v: float, refractory: float, u: float) -> tuple[float, float]:
    """Step of one neuron with spikes or the end of its refractory period.

    Returns v and the remaining refractory time.
    """
    time_ms = a.time_ms[a.first_N[i] :]
    if not exact:  # the spike falls on the end of the step
        time_ms[a.count_N[i]] = (t + 1) * a.step_ms
        a.count_N[i] += 1
        return 0.0, a.tau_ref_N[i]  # (2)
    now = refractory
    while True:
        rise_ms = a.tau_N[i] * math.log((u - v) / (u - 1)) if u > 1 else math.inf  # (4)
        if now + rise_ms > a.step_ms:
            return u + (v - u) * math.exp((now - a.step_ms) / a.tau_N[i]), 0.0  # (3)
        time_ms[a.count_N[i]] = t * a.step_ms + now + rise_ms
        a.count_N[i] += 1
        now += rise_ms + a.tau_ref_N[i]  # (2)
        v = 0.0
        if now >= a.step_ms:
            return 0.0, now - a.step_ms
