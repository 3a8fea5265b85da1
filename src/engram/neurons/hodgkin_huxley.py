"""Hodgkin–Huxley neuron (Hodgkin & Huxley 1952).   N neurons, T time steps, 4 the state: V, m, h, n

    c dV/dt = J - g_Na m³h (V - V_Na) - g_K n⁴ (V - V_K) - g_L (V - V_L)     voltage, J the injected current    (1)
    da/dt = phi (alpha_a(V) (1 - a) - beta_a(V) a) = (a_inf - a) / tau_a     each gate a of m, h, n             (2)
    a_inf = alpha_a / (alpha_a + beta_a),  1 / tau_a = phi (alpha_a + beta_a)                                   (3)
    phi = 3^((temperature - 6.3) / 10)                                       Q10 of 3                           (4)

    alpha_m = linoid((V + 40) / 10)         beta_m = 4 e^(-(V + 65) / 18)    linoid(x) = x / (1 - e^-x)         (5)
    alpha_h = 0.07 e^(-(V + 65) / 20)       beta_h = 1 / (1 + e^(-(V + 35) / 10))                               (6)
    alpha_n = 0.1 linoid((V + 55) / 10)     beta_n = 0.125 e^(-(V + 65) / 80)                                   (7)

Given V the gates are linear, given the gates V is, and a linear equation is solved exactly: x(t) = x_inf + (x(0) -
x_inf) e^(-t / tau). One step of length D takes them in turn, symmetrically (Strang 1968), which is of second order:

    a <- a_inf + (a - a_inf) e^(-D / 2 tau_a)       gates, half a step at the old V                             (8)
    V <- V_inf + (V - V_inf) e^(-D / tau_V)         voltage, a full step; tau_V = c / G, G the open conductance (9)
    a <- a_inf + (a - a_inf) e^(-D / 2 tau_a)       gates, the other half at the new V                         (10)

So all four numbers of a state belong to the same moment, and time may be cut into chunks anywhere. (10) and the next
step's (8) see the same V: the fast form in `kernels` evaluates the rates once for both. The other `integrator` is the
one of the textbooks, of fourth order, four times as slow, and unstable when a step is long (Runge 1895, Kutta 1901):

    k1 = f(x)   k2 = f(x + D/2 k1)   k3 = f(x + D/2 k2)   k4 = f(x + D k3)       f the right sides of (1), (2)
    x <- x + D/6 (k1 + 2 k2 + 2 k3 + k4)                                                                       (11)

Units: ms, mV, µA/cm², mS/cm², µF/cm², in which (1) needs no factors. Resting near -65 mV, inward currents negative.
"""

import math
from dataclasses import dataclass, fields
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from engram.core.errors import EngramError, unknown
from engram.core.tap import tap
from engram.neurons.kernels import BLOCK, advance_hodgkin_huxley, crossings
from engram.neurons.lif import Spikes

Q10 = 3.0
REFERENCE_C = 6.3  # the temperature at which (5)-(7) were measured
THRESHOLD_MV = -30.0  # below the peaks of strongly driven neurons, which reach only -20 mV at 100 µA/cm²

Integrator = Literal["exponential", "rk4"]


class HodgkinHuxley(nn.Module):
    """N independent neurons. Every parameter is a buffer with a value per neuron; `state` holds V, m, h, n at rest."""

    c: Tensor
    g_Na: Tensor
    g_K: Tensor
    g_L: Tensor
    V_Na: Tensor
    V_K: Tensor
    V_L: Tensor
    temperature_C: Tensor
    state: Tensor
    recorded = 4

    @dataclass(frozen=True, kw_only=True)
    class Config:
        neurons: int = 1
        """number of independent neurons (N)"""
        c: float = 1.0
        """capacitance of the membrane, µF/cm²"""
        g_Na: float = 120.0
        """conductance of sodium with all channels open, mS/cm²"""
        g_K: float = 36.0
        """conductance of potassium with all channels open, mS/cm²"""
        g_L: float = 0.3
        """conductance of the leak, mS/cm²"""
        V_Na: float = 50.0
        """reversal potential of sodium, mV"""
        V_K: float = -77.0
        """reversal potential of potassium, mV"""
        V_L: float = -54.387
        """reversal potential of the leak, mV"""
        temperature_C: float = 6.3
        """temperature in °C: the gates move three times faster for every 10 °C"""
        step_ms: float = 0.01
        """time step, ms; errors grow with its square, or with its fourth power"""
        integrator: Integrator = "exponential"
        """«exponential»: gates and voltage in turn, each exactly; or «rk4», Runge and Kutta's"""

        def __post_init__(self) -> None:
            if self.integrator not in get_args(Integrator):
                raise unknown("integrator", self.integrator, get_args(Integrator))
            for field in fields(self)[:-1]:
                if not math.isfinite(getattr(self, field.name)):
                    raise EngramError(f"{field.name} must be a finite number, not {getattr(self, field.name)}.")
            for name in ("neurons", "c", "g_L", "step_ms"):
                if getattr(self, name) <= 0:
                    raise EngramError(f"{name} must be greater than 0, not {getattr(self, name)}.")
            for name in ("g_Na", "g_K"):
                if getattr(self, name) < 0:
                    raise EngramError(f"{name} must be at least 0, not {getattr(self, name)}.")

    def __init__(self, config: Config | None = None) -> None:
        super().__init__()
        self.config = config or self.Config()
        for name in ("c", "g_Na", "g_K", "g_L", "V_Na", "V_K", "V_L", "temperature_C"):
            value = getattr(self.config, name)
            self.register_buffer(name, torch.full((self.config.neurons,), value, dtype=torch.float64))
        self.register_buffer("state", self.rest())

    @property
    def phi(self) -> Tensor:
        """How much faster the gates move than at 6.3 °C, N."""
        return Q10 ** ((self.temperature_C - REFERENCE_C) / 10)  # (4)

    def rest(self) -> Tensor:
        """The equilibrium without injected current, 4×N; call it again after changing a parameter.

        At the lowest reversal potential no current flows inwards and at the highest none outwards, so the net current
        changes sign between them. Bisection finds where, to the last bit.
        """
        reversals = torch.stack([self.V_Na, self.V_K, self.V_L])
        low, high = reversals.amin(0), reversals.amax(0)
        for _ in range(64):
            V = (low + high) / 2
            I_Na, I_K, I_L = self.currents(V, *gates_inf(V))
            outward = I_Na + I_K + I_L > 0
            low, high = torch.where(outward, low, V), torch.where(outward, V, high)
        return torch.stack([V, *gates_inf(V)])

    def currents(self, V: Tensor, m: Tensor, h: Tensor, n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """I_Na, I_K, I_L in µA/cm², outwards positive; any shape that ends in N."""
        I_Na = self.g_Na * m**3 * h * (V - self.V_Na)
        I_K = self.g_K * n**4 * (V - self.V_K)
        I_L = self.g_L * (V - self.V_L)
        return I_Na, I_K, I_L

    def step(self, state_4N: Tensor, current_TN: Tensor) -> tuple[Tensor, Tensor]:
        """Advance T steps, holding current_TN[t] during step t; the new state and the state after each step, T×4×N."""
        if state_4N.shape != self.state.shape or current_TN.shape[1:] != self.c.shape or current_TN.ndim != 2:
            raise EngramError(
                f"{self.config.neurons} neurons need a state of shape 4×N and a current of shape T×N, not "
                f"{tuple(state_4N.shape)} and {tuple(current_TN.shape)}."
            )
        recording_T4N = state_4N.new_empty(len(current_TN), *self.state.shape, dtype=torch.float64)
        return self._record(self.parameters_8N, state_4N, current_TN, recording_T4N), recording_T4N

    @property
    def parameters_8N(self) -> Tensor:
        """What the kernels read."""
        return torch.stack([self.c, self.g_Na, self.g_K, self.g_L, self.V_Na, self.V_K, self.V_L, self.phi])

    def _record(self, parameters_8N: Tensor, state_4N: Tensor, current_TN: Tensor, recording_TRN: Tensor) -> Tensor:
        """The new state, after the first R rows of the one after each step were written down."""
        new_4N = state_4N.double().clone(memory_format=torch.contiguous_format)
        current, recording = current_TN.double().contiguous().numpy(), recording_TRN.numpy()
        by_runge = self.config.integrator == "rk4"
        advance_hodgkin_huxley(
            new_4N.numpy(), parameters_8N.numpy(), self.config.step_ms, current, recording, runge_kutta=by_runge
        )
        return new_4N

    def advance(self, state_4N: Tensor, current_TN: Tensor) -> tuple[Tensor, Tensor, Spikes]:
        """The same, and the spikes, whose time is 0 at the first step; one may have begun just before it."""
        new_4N, recording_T4N = self.step(state_4N, current_TN)
        V_TN = torch.cat([state_4N[None, 0], recording_T4N[:, 0]])
        times_ms, neuron = spikes(V_TN.numpy(), self.config.step_ms)
        return new_4N, recording_T4N, Spikes.sorted(times_ms - self.config.step_ms, neuron)

    def fire(self, state_4N: Tensor, current_TN: Tensor) -> tuple[Tensor, Spikes]:
        """The new state and the spikes alone, for times and numbers of neurons whose recording would not fit."""
        at_once = max(1, min(BLOCK // self.config.neurons, len(current_TN)))
        times, neurons = [np.empty(0)], [np.empty(0, np.int64)]
        V_T1N, parameters_8N = torch.empty(at_once + 1, 1, self.config.neurons, dtype=torch.float64), self.parameters_8N
        for first in range(0, len(current_TN), at_once):
            J_TN = current_TN[first : first + at_once]
            V_T1N[0] = state_4N[:1]
            state_4N = self._record(parameters_8N, state_4N, J_TN, V_T1N[1 : len(J_TN) + 1])
            time_ms, neuron = spikes(V_T1N[: len(J_TN) + 1, 0].numpy(), self.config.step_ms)
            times.append(time_ms + (first - 1) * self.config.step_ms)
            neurons.append(neuron)
        return state_4N, Spikes.sorted(np.concatenate(times), np.concatenate(neurons))

    def forward(self, current_TN: Tensor) -> Tensor:
        """The recording T×4×N under a current that finds the neurons at rest; their own state stays as it is."""
        _, recording_T4N = self.step(self.rest(), current_TN)
        V, m, h, n = (tap(name, value) for name, value in zip("Vmhn", recording_T4N.unbind(1), strict=True))
        for name, current in zip(("I_Na", "I_K", "I_L"), self.currents(V, m, h, n), strict=True):
            tap(name, current)
        return torch.stack([V, m, h, n], 1)

    def clear_step(self, state_4N: Tensor, J_N: Tensor) -> Tensor:
        """One step as the equations say it: what `step` computes, slowly."""
        if self.config.integrator == "rk4":
            return self._clear_runge_kutta(state_4N, J_N)
        V, *gates = state_4N
        m, h, n = self._relax_gates(V, gates)  # (8)
        G_Na, G_K = self.g_Na * m**3 * h, self.g_K * n**4
        G = G_Na + G_K + self.g_L
        V_inf = (J_N + G_Na * self.V_Na + G_K * self.V_K + self.g_L * self.V_L) / G
        V = V_inf + (V - V_inf) * torch.exp(-self.config.step_ms * G / self.c)  # (9)
        return torch.stack([V, *self._relax_gates(V, [m, h, n])])  # (10)

    def _clear_runge_kutta(self, x_4N: Tensor, J_N: Tensor) -> Tensor:
        D = self.config.step_ms
        k1 = self.slope(x_4N, J_N)
        k2 = self.slope(x_4N + D / 2 * k1, J_N)
        k3 = self.slope(x_4N + D / 2 * k2, J_N)
        k4 = self.slope(x_4N + D * k3, J_N)
        return x_4N + D / 6 * (k1 + 2 * k2 + 2 * k3 + k4)  # (11)

    def slope(self, x_4N: Tensor, J_N: Tensor) -> Tensor:
        """The right sides of (1) and (2): how fast V, m, h and n change, per ms."""
        V, *gates = x_4N
        I_Na, I_K, I_L = self.currents(V, *gates)
        dV = (J_N - I_Na - I_K - I_L) / self.c  # (1)
        changes = [self.phi * (alpha * (1 - a) - beta * a) for a, (alpha, beta) in zip(gates, rates(V), strict=True)]
        return torch.stack([dV, *changes])  # (2)

    def _relax_gates(self, V: Tensor, gates: list[Tensor]) -> list[Tensor]:
        """m, h, n half a step later at constant V."""
        speeds = [self.phi * (alpha + beta) for alpha, beta in rates(V)]  # (3)
        return [
            a_inf + (a - a_inf) * torch.exp(-self.config.step_ms / 2 * speed)
            for a, a_inf, speed in zip(gates, gates_inf(V), speeds, strict=True)
        ]


def rates(V: Tensor) -> tuple[tuple[Tensor, Tensor], ...]:
    """(alpha, beta) of m, h and n at 6.3 °C, per ms."""
    m = linoid((V + 40) / 10), 4 * torch.exp(-(V + 65) / 18)  # (5)
    h = 0.07 * torch.exp(-(V + 65) / 20), 1 / (1 + torch.exp(-(V + 35) / 10))  # (6)
    n = 0.1 * linoid((V + 55) / 10), 0.125 * torch.exp(-(V + 65) / 80)  # (7)
    return m, h, n


def gates_inf(V: Tensor) -> list[Tensor]:
    """What m, h and n tend to at V."""
    return [alpha / (alpha + beta) for alpha, beta in rates(V)]  # (3)


def linoid(x: Tensor) -> Tensor:
    """x / (1 - e^-x), which is 1 at x = 0; expm1 keeps every digit around it."""
    return torch.where(x == 0, 1.0, x / -torch.expm1(-x))


def spikes(
    V_TN: NDArray[np.float64], step_ms: float, threshold_mV: float = THRESHOLD_MV
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """When V rises through the threshold, and which neuron's, in order of time: V_TN[t] is V at (t + 1) step_ms.

    The line between two samples is enough: at 0.01 ms its error is 1e-4 ms at most, a hundredth of the integration's.
    """
    V_TN = np.ascontiguousarray(V_TN)  # the compiler reads several neurons at once
    t, neuron = crossings(V_TN, threshold_mV)
    before, after = V_TN[t, neuron], V_TN[t + 1, neuron]
    return (t + 1 + (threshold_mV - before) / (after - before)) * step_ms, neuron


def spike_times_ms(V_T: ArrayLike, step_ms: float, threshold_mV: float = THRESHOLD_MV) -> NDArray[np.float64]:
    """The same for a recording of one neuron."""
    return spikes(np.asarray(V_T, dtype=np.float64)[:, None], step_ms, threshold_mV)[0]
