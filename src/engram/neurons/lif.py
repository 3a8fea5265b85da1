"""Leaky integrate-and-fire neuron (note 003 §2.2; Lapicque 1907).   N neurons, T time steps, 2 the state: v, wait

    tau_m dv/dt = v_in - v                                  below the threshold                                 (1)
    v reaches 1: a spike; v is 0 for the time tau_ref, and starts again                                         (2)
    v(t) = v_in + (v(0) - v_in) e^(-t / tau_m)              the solution of (1) for a constant v_in             (3)
    t = tau_m ln((v_in - v(0)) / (v_in - 1))                when it reaches 1, for v_in > 1                     (4)
    rate = 1 / (tau_ref - tau_m ln(1 - 1 / v_in))           for v_in > 1, otherwise 0                           (5)

with a membrane's own quantities, J the injected current:

    c dV/dt = J - g_L (V - V_L),   a spike at V_th          tau_m = c / g_L                                     (6)
    v = (V - V_L) / (V_th - V_L),   v_in = J / (g_L (V_th - V_L))                                               (7)

The input is held during a step, so (3) is exact and (4) says when within the step a spike falls: spike times do not
depend on the step. `exact=False` does what most simulators do: a spike waits for the end of its step, which makes each
interval longer by half a step on average, and tau_ref is rounded to whole steps.
"""

import math
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import prange
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.tap import tap
from engram.core.threads import parallel_njit
from engram.neurons.kernels import compiled

Array = NDArray[np.float64]
LANES = 32
"""neurons that are advanced together: those of eight AVX2 registers"""
PARALLEL = 1 << 17
"""neurons × steps for which it is worth to start threads"""

MOST_SPIKES = 10**9
"""for which room is made at once"""


class Spikes(NamedTuple):
    """When, and which neuron's: neuron after neuron, each one's in order of time."""

    time_ms: Array
    neuron: NDArray[np.int64]

    @classmethod
    def sorted(cls, time_ms: Array, neuron: NDArray[np.int64]) -> "Spikes":
        """Spikes that come in any order."""
        order = np.lexsort([time_ms, neuron])
        return cls(time_ms[order], neuron[order])

    def of(self, neuron: int) -> Array:
        """The spike train of one neuron."""
        return self.time_ms[np.searchsorted(self.neuron, neuron) : np.searchsorted(self.neuron, neuron + 1)]

    def in_order_of_time(self) -> "Spikes":
        order = np.argsort(self.time_ms, kind="stable")
        return Spikes(self.time_ms[order], self.neuron[order])


@dataclass(frozen=True, kw_only=True)
class Membrane:
    """The quantities that (6) is made of, and the way to the form without dimensions and back (7)."""

    c: float = 1.0
    """capacitance, µF/cm²"""
    g_L: float = 0.05
    """conductance of the leak, mS/cm²"""
    V_L: float = -65.0
    """where the leak draws the voltage, mV"""
    V_th: float = -50.0
    """where a spike begins, mV"""

    def __post_init__(self) -> None:
        for name in ("c", "g_L"):
            if not 0 < getattr(self, name) < math.inf:
                raise EngramError(f"{name} must be greater than 0, not {getattr(self, name)}.")
        if not self.V_th > self.V_L:
            raise EngramError(f"V_th must be above V_L ({self.V_L}), not {self.V_th}.")

    @property
    def tau_m_ms(self) -> float:
        return self.c / self.g_L  # (6)

    def v(self, V: Tensor) -> Tensor:
        return (V - self.V_L) / (self.V_th - self.V_L)  # (7)

    def V(self, v: Tensor) -> Tensor:
        return self.V_L + v * (self.V_th - self.V_L)

    def v_in(self, J: Tensor) -> Tensor:
        return J / (self.g_L * (self.V_th - self.V_L))  # (7)

    def J(self, v_in: Tensor) -> Tensor:
        return v_in * self.g_L * (self.V_th - self.V_L)


class LIF(nn.Module):
    """N independent neurons, each with its own time constants; `state` holds v and how long it still has to wait."""

    tau_m_ms: Tensor
    tau_ref_ms: Tensor
    state: Tensor
    recorded = 1

    @dataclass(frozen=True, kw_only=True)
    class Config:
        neurons: int = 1
        """number of independent neurons (N)"""
        tau_m_ms: float = 20.0
        """time constant of the membrane, ms"""
        tau_ref_ms: float = 2.0
        """time after a spike in which nothing happens, ms"""
        step_ms: float = 0.1
        """time step, ms, in which the input stays as it is"""
        exact: bool = True
        """let spikes fall where they do within a step, instead of at its end"""

        def __post_init__(self) -> None:
            for field in fields(self):
                if not math.isfinite(getattr(self, field.name)):
                    raise EngramError(f"{field.name} must be a finite number, not {getattr(self, field.name)}.")
            for name in ("neurons", "tau_m_ms", "step_ms"):
                if getattr(self, name) <= 0:
                    raise EngramError(f"{name} must be greater than 0, not {getattr(self, name)}.")
            if self.tau_ref_ms < 0:
                raise EngramError(f"tau_ref_ms must be at least 0, not {self.tau_ref_ms}.")

    def __init__(self, config: Config | None = None) -> None:
        super().__init__()
        self.config = config or self.Config()
        for name in ("tau_m_ms", "tau_ref_ms"):
            value = getattr(self.config, name)
            self.register_buffer(name, torch.full((self.config.neurons,), value, dtype=torch.float64))
        self.register_buffer("state", self.rest())

    def rest(self) -> Tensor:
        """No voltage, and nothing to wait for, 2×N."""
        return torch.zeros(2, self.config.neurons, dtype=torch.float64)

    def step(self, state_2N: Tensor, v_in_TN: Tensor, *, record: bool = True) -> tuple[Tensor, Tensor, Spikes]:
        """Advance T steps, holding v_in_TN[t] during step t: the new state, v after each step (T×N), and the spikes.

        Times begin with 0 at the first step. Without `record` there is no T×N of v, which saves most of the time, and
        an input that is one row, expanded to T of them, is read as one.
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
        first_N, time_ms = self._room(u_TN.max(0, initial=0.0), T * self.config.step_ms)
        v_TN = np.empty((T if record else 0, N))
        tau_N, wait_N = self._constants()
        kept_N, count_N, step_ms = np.exp(-self.config.step_ms / tau_N), np.zeros(N, np.int64), self.config.step_ms
        all_of_it = Advance(new_2N.numpy(), tau_N, wait_N, kept_N, step_ms, u_TN, v_TN, time_ms, first_N, count_N)
        advance = _advance_parallel if T * N >= PARALLEL else _advance_serial
        advance(all_of_it, T, self.config.exact)
        return new_2N, torch.from_numpy(v_TN), packed(time_ms, first_N, count_N)

    def advance(self, state_2N: Tensor, v_in_TN: Tensor) -> tuple[Tensor, Tensor, Spikes]:
        """The same with the recording as T×1×N."""
        new_2N, v_TN, spikes = self.step(state_2N, v_in_TN)
        return new_2N, v_TN[:, None], spikes

    def spikes(self, v_in_N: ArrayLike | Tensor, duration_ms: float) -> Spikes:
        """The exact spikes under an input that never changes, from rest: (5) from one to the next, without steps."""
        u_N = np.ascontiguousarray(np.broadcast_to(np.asarray(v_in_N, np.float64), self.config.neurons))
        first_N, time_ms = self._room(u_N, duration_ms)
        tau_N, wait_N = self._constants()
        return packed(time_ms, first_N, _from_spike_to_spike(tau_N, wait_N, u_N, duration_ms, time_ms, first_N))

    def forward(self, v_in_TN: Tensor) -> Tensor:
        """v after each step, T×N, under an input that finds the neurons at rest; their own state stays as it is."""
        return tap("v", self.step(self.rest(), v_in_TN)[1])

    def clear_step(self, state_2N: Tensor, v_in_N: Tensor) -> tuple[Tensor, list[tuple[float, int]]]:
        """One step as the equations say it, and (time, neuron) of its spikes: what `step` computes, slowly."""
        spiked, new_2N = list[tuple[float, int]](), state_2N.clone()
        for i, (v, wait, u) in enumerate(zip(*state_2N.tolist(), v_in_N.tolist(), strict=True)):
            tau, refractory, now, end = self.tau_m_ms[i].item(), self.tau_ref_ms[i].item(), 0.0, self.config.step_ms
            while now + wait < end:
                now, wait = now + wait, 0.0
                rises = tau * math.log((u - v) / (u - 1)) if u > 1 else math.inf  # (4)
                if now + rises > end:
                    v = u + (v - u) * math.exp(-(end - now) / tau)  # (3)
                    now = end
                    break
                now, v, wait = now + rises, 0.0, refractory  # (2)
                spiked.append((now, i))
            new_2N[0, i], new_2N[1, i] = v, max(0.0, wait - (end - now))
        return new_2N, spiked

    def _constants(self) -> tuple[Array, Array]:
        if self.config.exact:
            return self.tau_m_ms.numpy(), self.tau_ref_ms.numpy()
        step = self.config.step_ms
        return self.tau_m_ms.numpy(), torch.round(self.tau_ref_ms / step).mul(step).numpy()

    def _room(self, most_N: Array, duration_ms: float) -> tuple[NDArray[np.int64], Array]:
        """Room for the spikes of each neuron, of which there cannot be more than under its largest input."""
        if not np.isfinite(most_N).all():
            raise EngramError("The input must be finite.")
        rate_N = rate_hz(most_N, *self._constants())
        if not duration_ms / 1000 * rate_N.sum() < MOST_SPIKES:
            raise EngramError(f"Under such an input there would be more than {MOST_SPIKES:,} spikes: lower it.")
        first_N = np.concatenate([[0], np.cumsum(np.floor(duration_ms / 1000 * rate_N).astype(np.int64) + 2)])
        return first_N, np.empty(first_N[-1])


def rate_hz(v_in: ArrayLike, tau_m_ms: ArrayLike = 20.0, tau_ref_ms: ArrayLike = 2.0) -> Array:
    """Spikes per second under a constant input."""
    u = np.asarray(v_in, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        interval_ms = np.asarray(tau_ref_ms) - np.asarray(tau_m_ms) * np.log1p(-1 / np.maximum(u, 1))
        return np.where(u > 1, 1000 / interval_ms, 0.0)  # (5)


def packed(time_ms: Array, first_N: NDArray[np.int64], count_N: NDArray[np.int64]) -> Spikes:
    """The spikes without the room that was left."""
    neuron = np.repeat(np.arange(len(count_N)), count_N)
    place = np.arange(len(neuron)) - np.repeat(np.cumsum(count_N) - count_N, count_N)
    return Spikes(time_ms[first_N[neuron] + place], neuron)


def by_neuron(time_ms: Array, neuron: NDArray[Any], neurons: int) -> Spikes:
    """Spikes in order of time, sorted by neuron: each has its place as soon as they are counted."""
    return Spikes(*_by_neuron(time_ms, neuron, neurons))


@compiled
def _by_neuron(time_ms: Array, neuron: NDArray[Any], neurons: int) -> tuple[Array, NDArray[np.int64]]:
    next_N = np.zeros(neurons + 1, np.int64)
    for k in range(len(neuron)):
        next_N[neuron[k] + 1] += 1
    for i in range(neurons):
        next_N[i + 1] += next_N[i]
    sorted_ms, sorted_neuron = np.empty_like(time_ms), np.empty(len(neuron), np.int64)
    for i in range(neurons):
        sorted_neuron[next_N[i] : next_N[i + 1]] = i
    for k in range(len(time_ms)):
        sorted_ms[next_N[neuron[k]]] = time_ms[k]
        next_N[neuron[k]] += 1
    return sorted_ms, sorted_neuron


@parallel_njit(error_model="numpy", nogil=True)
def _from_spike_to_spike(
    tau_N: Array, wait_N: Array, u_N: Array, duration_ms: float, time_ms: Array, first_N: NDArray[np.int64]
) -> NDArray[np.int64]:
    count_N = np.zeros(len(u_N), np.int64)
    for i in prange(len(u_N)):
        if u_N[i] > 1:
            rises = -tau_N[i] * math.log1p(-1 / u_N[i])
            interval = wait_N[i] + rises
            count = math.floor((duration_ms - rises) / interval) + 1 if duration_ms >= rises else 0
            for k in range(count):
                time_ms[first_N[i] + k] = rises + k * interval
            count_N[i] = count
    return count_N


class Advance(NamedTuple):
    """What the kernels read and write."""

    state_2N: Array
    tau_N: Array
    wait_N: Array
    kept_N: Array
    """e^(-step / tau)"""
    step_ms: float
    u_TN: Array
    """one row only where the input never changes"""
    v_TN: Array
    """empty where nothing is recorded"""
    time_ms: Array
    first_N: NDArray[np.int64]
    """where the times of each neuron begin"""
    count_N: NDArray[np.int64]
    """how many there are"""


@compiled
def _advance_serial(a: Advance, steps: int, exact: bool) -> None:
    for first in range(0, len(a.tau_N), LANES):
        _advance_lanes(a, steps, exact, first)


@parallel_njit(error_model="numpy", nogil=True)
def _advance_parallel(a: Advance, steps: int, exact: bool) -> None:
    for group in prange((len(a.tau_N) + LANES - 1) // LANES):
        _advance_lanes(a, steps, exact, group * LANES)


@compiled
def _advance_lanes(a: Advance, steps: int, exact: bool, first: int) -> None:
    """Neurons first..first+L-1, or as many of them as there are, through all steps.

    All of them rise or wait together, a few instructions for all; those to whom something happens are seen to after.
    """
    count = min(LANES, len(a.tau_N) - first)
    v_L, wait_L, kept_L, u_L = np.zeros(LANES), np.zeros(LANES), np.zeros(LANES), np.zeros(LANES)
    next_v_L, next_wait_L = np.zeros(LANES), np.zeros(LANES)
    for i in range(count):
        v_L[i], wait_L[i], kept_L[i] = a.state_2N[0, first + i], a.state_2N[1, first + i], a.kept_N[first + i]
    nearly_over = 0.0 if exact else a.step_ms / 2
    for t in range(steps):
        u_N = a.u_TN[t if len(a.u_TN) > 1 else 0]
        for i in range(count):
            u_L[i] = u_N[first + i]
        happens = False
        for i in range(LANES):
            risen = u_L[i] + (v_L[i] - u_L[i]) * kept_L[i]  # (3)
            waits = wait_L[i] > nearly_over
            next_v_L[i] = v_L[i] if waits else risen
            next_wait_L[i] = wait_L[i] - a.step_ms if waits else 0.0
            happens |= (next_v_L[i] >= 1) | (next_wait_L[i] < -nearly_over)
        if happens:
            for i in range(count):
                if next_v_L[i] >= 1 or next_wait_L[i] < -nearly_over:
                    next_v_L[i], next_wait_L[i] = _event(a, exact, t, first + i, v_L[i], wait_L[i], u_L[i])
        for i in range(LANES):
            v_L[i], wait_L[i] = next_v_L[i], next_wait_L[i]
        if len(a.v_TN):
            v_N = a.v_TN[t]
            for i in range(count):
                v_N[first + i] = v_L[i]
    for i in range(count):
        a.state_2N[0, first + i], a.state_2N[1, first + i] = v_L[i], wait_L[i]


@compiled
def _event(a: Advance, exact: bool, t: int, i: int, v: float, wait: float, u: float) -> tuple[float, float]:
    """One step of one neuron, in which it stops waiting, or fires, maybe several times: its v and how long it waits."""
    time_ms = a.time_ms[a.first_N[i] :]
    if not exact:  # a spike, at the end of the step
        time_ms[a.count_N[i]] = (t + 1) * a.step_ms
        a.count_N[i] += 1
        return 0.0, a.wait_N[i]  # (2)
    now = wait
    while True:
        rises = a.tau_N[i] * math.log((u - v) / (u - 1)) if u > 1 else math.inf  # (4)
        if now + rises > a.step_ms:
            return u + (v - u) * math.exp((now - a.step_ms) / a.tau_N[i]), 0.0  # (3)
        time_ms[a.count_N[i]] = t * a.step_ms + now + rises
        a.count_N[i] += 1
        now += rises + a.wait_N[i]  # (2)
        v = 0.0
        if now >= a.step_ms:
            return 0.0, now - a.step_ms
