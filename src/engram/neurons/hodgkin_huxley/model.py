r"""Hodgkin–Huxley neuron (Hodgkin & Huxley 1952).

    c dV/dt = J - g_{Na} m^3 h (V - V_{Na}) - g_K n^4 (V - V_K) - g_L (V - V_L)        membrane potential      (1)
    da/dt = \phi (\alpha_a(V) (1 - a) - \beta_a(V) a) = (a_\infty - a) / \tau_a         gates a = m, h, n       (2)
    a_\infty = \alpha_a / (\alpha_a + \beta_a), 1 / \tau_a = \phi (\alpha_a + \beta_a)  steady state, rate      (3)
    \phi = 3^{(T_C - 6.3) / 10}                                                       temperature, Q10 = 3    (4)
    \alpha_m = L((V + 40) / 10), \beta_m = 4 \exp(-(V + 65) / 18)                       sodium activation       (5)
    \alpha_h = 0.07 \exp(-(V + 65) / 20), \beta_h = 1 / (1 + \exp(-(V + 35) / 10))      sodium inactivation     (6)
    \alpha_n = 0.1 L((V + 55) / 10), \beta_n = 0.125 \exp(-(V + 65) / 80)               potassium activation    (7)

Given V the gates are linear, given the gates V is, and a linear equation is solved exactly. The exponential integrator
alternates between them symmetrically (Strang 1968), which is of second order:

    a \leftarrow a_\infty + (a - a_\infty) \exp(-D / (2 \tau_a))                        gates, half a step      (8)
    V \leftarrow V_\infty + (V - V_\infty) \exp(-D / \tau_V)                            full step               (9)
    a \leftarrow a_\infty + (a - a_\infty) \exp(-D / (2 \tau_a))                        gates, the other half  (10)

The whole state belongs to one moment, so time can be split into chunks anywhere. (10) and the next (8) see the same V:
the kernel evaluates the rates once for both. The other integrator is the classical Runge–Kutta method of fourth order
(Runge 1895, Kutta 1901), four times as slow and unstable for long steps:

    k_1 = f(x), k_2 = f(x + D / 2 k_1), k_3 = f(x + D / 2 k_2), k_4 = f(x + D k_3)      slopes by (1), (2)     (11)
    x \leftarrow x + D / 6 (k_1 + 2 k_2 + 2 k_3 + k_4)                                  RK4 step               (12)

Symbols:
    V                     membrane potential, mV
    m, h, n               sodium activation, sodium inactivation, potassium activation, from 0 to 1
    J                     injected current, µA/cm²
    c                     membrane capacitance, µF/cm²
    g_{Na}, g_K, g_L      maximal conductances of sodium and potassium, leak conductance, mS/cm²
    V_{Na}, V_K, V_L      reversal potentials, mV
    T_C                   temperature, °C
    L(x)                  x / (1 - \exp(-x))
    V_\infty, \tau_V      limit and time constant c / G of V at the open conductance G
    D                     time step, ms
    x, f                  state (V, m, h, n) and its derivative
    N, T                  neurons, time steps

The resting potential is near -65 mV; inward currents are negative.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

import numpy as np
import torch
from annotated_types import Ge, Gt
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from engram.core.errors import EngramError, unknown
from engram.core.tap import tap
from engram.neurons.finite import FiniteSettings
from engram.neurons.kernels import BLOCK, advance_hodgkin_huxley, crossings
from engram.neurons.spikes import Spikes

Q10 = 3.0
REFERENCE_C = 6.3  # the temperature at which (5)-(7) were measured
THRESHOLD_MV = -30.0  # strong currents lower the peaks: -20 mV at 100 µA/cm²

Integrator = Literal["exponential", "rk4"]


class HodgkinHuxley(nn.Module):
    """N independent neurons.

    Parameters are buffers with a value per neuron, `state` holds V, m, h, n (4×N).
    """

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
    class Config(FiniteSettings):
        neurons: Annotated[int, Ge(1)] = 1
        """number of independent neurons (N)"""
        c: Annotated[float, Gt(0)] = 1.0
        """membrane capacitance, µF/cm²"""
        g_Na: Annotated[float, Ge(0)] = 120.0
        """maximal sodium conductance, mS/cm²; 0 blocks the channels"""
        g_K: Annotated[float, Ge(0)] = 36.0
        """maximal potassium conductance, mS/cm²; 0 blocks the channels"""
        g_L: Annotated[float, Gt(0)] = 0.3
        """leak conductance, mS/cm²"""
        V_Na: float = 50.0
        """reversal potential of sodium, mV"""
        V_K: float = -77.0
        """reversal potential of potassium, mV"""
        V_L: float = -54.387
        """reversal potential of the leak, mV"""
        temperature_C: float = 6.3
        """temperature, °C; the gates are 3 times faster for every 10 °C (Q10)"""
        step_ms: Annotated[float, Gt(0)] = 0.01
        """time step, ms; errors grow with its square, with rk4 with its fourth power"""
        integrator: Integrator = "exponential"
        """"exponential" (Strang splitting, second order) or "rk4" (Runge–Kutta, fourth order)"""

        def __post_init__(self) -> None:
            if self.integrator not in get_args(Integrator):
                raise unknown("integrator", self.integrator, get_args(Integrator))
            super().__post_init__()

    def __init__(self, config: Config | None = None) -> None:
        super().__init__()
        self.config = config or self.Config()
        for name in ("c", "g_Na", "g_K", "g_L", "V_Na", "V_K", "V_L", "temperature_C"):
            value = getattr(self.config, name)
            self.register_buffer(name, torch.full((self.config.neurons,), value, dtype=torch.float64))
        self.register_buffer("state", self.init_state())

    @property
    def phi(self) -> Tensor:
        """Temperature factor of the gate rates relative to 6.3 °C, N."""
        return Q10 ** ((self.temperature_C - REFERENCE_C) / 10)  # (4)

    def init_state(self) -> Tensor:
        """The resting state without injected current, 4×N; call it again after changing a parameter.

        The net current changes sign between the lowest and the highest reversal potential: bisection finds where.
        """
        reversals = torch.stack([self.V_Na, self.V_K, self.V_L])
        low, high = reversals.amin(0), reversals.amax(0)
        for _ in range(64):
            V = (low + high) / 2
            I_Na, I_K, I_L = self.currents(V, *steady_state_gates(V))
            outward = I_Na + I_K + I_L > 0
            low, high = torch.where(outward, low, V), torch.where(outward, V, high)
        return torch.stack([V, *steady_state_gates(V)])

    def currents(self, V: Tensor, m: Tensor, h: Tensor, n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Ionic currents I_Na, I_K, I_L in µA/cm², outward positive; any shape that ends in N."""
        I_Na = self.g_Na * m**3 * h * (V - self.V_Na)
        I_K = self.g_K * n**4 * (V - self.V_K)
        I_L = self.g_L * (V - self.V_L)
        return I_Na, I_K, I_L

    def step(self, state_4N: Tensor, current_TN: Tensor) -> tuple[Tensor, Tensor]:
        """Integrate T time steps with the current constant during each; the new state, and all states, T×4×N."""
        if state_4N.shape != self.state.shape or current_TN.shape[1:] != self.c.shape or current_TN.ndim != 2:
            raise EngramError(
                f"{self.config.neurons} neurons need a state of shape 4×N and a current of shape T×N, not "
                f"{tuple(state_4N.shape)} and {tuple(current_TN.shape)}."
            )
        recording_T4N = state_4N.new_empty(len(current_TN), *self.state.shape, dtype=torch.float64)
        return self._record(self.parameters_8N, state_4N, current_TN, recording_T4N), recording_T4N

    @property
    def parameters_8N(self) -> Tensor:
        """Parameters in the order of the kernels."""
        return torch.stack([self.c, self.g_Na, self.g_K, self.g_L, self.V_Na, self.V_K, self.V_L, self.phi])

    def _record(self, parameters_8N: Tensor, state_4N: Tensor, current_TN: Tensor, recording_TRN: Tensor) -> Tensor:
        """Integrate, record the first R rows of the state after each step, return the new state."""
        new_4N = state_4N.double().clone(memory_format=torch.contiguous_format)
        current, recording = current_TN.double().contiguous().numpy(), recording_TRN.numpy()
        parameters, rk4 = parameters_8N.numpy(), self.config.integrator == "rk4"
        advance_hodgkin_huxley(new_4N.numpy(), parameters, self.config.step_ms, current, recording, runge_kutta=rk4)
        return new_4N

    def simulate(self, state_4N: Tensor, current_TN: Tensor) -> tuple[Tensor, Tensor, Spikes]:
        """The same as `step`, and the spikes, with times relative to its start; one may begin just before it."""
        new_4N, recording_T4N = self.step(state_4N, current_TN)
        V_TN = torch.cat([state_4N[None, 0], recording_T4N[:, 0]])
        times_ms, neuron = detect_spikes(V_TN.numpy(), self.config.step_ms)
        return new_4N, recording_T4N, Spikes.from_unsorted(times_ms - self.config.step_ms, neuron)

    def simulate_spikes(self, state_4N: Tensor, current_TN: Tensor) -> tuple[Tensor, Spikes]:
        """The new state and the spikes without a recording, which saves memory."""
        chunk = max(1, min(BLOCK // self.config.neurons, len(current_TN)))
        times, neurons = [np.empty(0)], [np.empty(0, np.int64)]
        V_T1N, parameters_8N = torch.empty(chunk + 1, 1, self.config.neurons, dtype=torch.float64), self.parameters_8N
        for first in range(0, len(current_TN), chunk):
            J_TN = current_TN[first : first + chunk]
            V_T1N[0] = state_4N[:1]
            state_4N = self._record(parameters_8N, state_4N, J_TN, V_T1N[1 : len(J_TN) + 1])
            time_ms, neuron = detect_spikes(V_T1N[: len(J_TN) + 1, 0].numpy(), self.config.step_ms)
            times.append(time_ms + (first - 1) * self.config.step_ms)
            neurons.append(neuron)
        return state_4N, Spikes.from_unsorted(np.concatenate(times), np.concatenate(neurons))

    def forward(self, current_TN: Tensor) -> Tensor:
        """V, m, h, n after each time step from rest, T×4×N; `state` does not change."""
        _, recording_T4N = self.step(self.init_state(), current_TN)
        V, m, h, n = (tap(name, value) for name, value in zip("Vmhn", recording_T4N.unbind(1), strict=True))
        for name, current in zip(("I_Na", "I_K", "I_L"), self.currents(V, m, h, n), strict=True):
            tap(name, current)
        return torch.stack([V, m, h, n], 1)

    def reference_step(self, state_4N: Tensor, J_N: Tensor) -> Tensor:
        """One time step in plain PyTorch: the reference of the kernel."""
        if self.config.integrator == "rk4":
            return self._reference_rk4(state_4N, J_N)
        V, *gates = state_4N
        m, h, n = self._relax_gates(V, gates)  # (8)
        G_Na, G_K = self.g_Na * m**3 * h, self.g_K * n**4
        G = G_Na + G_K + self.g_L
        V_inf = (J_N + G_Na * self.V_Na + G_K * self.V_K + self.g_L * self.V_L) / G
        V = V_inf + (V - V_inf) * torch.exp(-self.config.step_ms * G / self.c)  # (9)
        return torch.stack([V, *self._relax_gates(V, [m, h, n])])  # (10)

    def _reference_rk4(self, x_4N: Tensor, J_N: Tensor) -> Tensor:
        D = self.config.step_ms
        k1 = self.derivatives(x_4N, J_N)
        k2 = self.derivatives(x_4N + D / 2 * k1, J_N)
        k3 = self.derivatives(x_4N + D / 2 * k2, J_N)
        k4 = self.derivatives(x_4N + D * k3, J_N)  # (11)
        return x_4N + D / 6 * (k1 + 2 * k2 + 2 * k3 + k4)  # (12)

    def derivatives(self, x_4N: Tensor, J_N: Tensor) -> Tensor:
        """Time derivatives of V, m, h and n, per ms."""
        V, *gates = x_4N
        I_Na, I_K, I_L = self.currents(V, *gates)
        dV = (J_N - I_Na - I_K - I_L) / self.c  # (1)
        changes = [
            self.phi * (alpha * (1 - a) - beta * a) for a, (alpha, beta) in zip(gates, gate_rates(V), strict=True)
        ]
        return torch.stack([dV, *changes])  # (2)

    def _relax_gates(self, V: Tensor, gates: list[Tensor]) -> list[Tensor]:
        """m, h, n half a time step later at constant V."""
        speeds = [self.phi * (alpha + beta) for alpha, beta in gate_rates(V)]  # (3)
        return [
            a_inf + (a - a_inf) * torch.exp(-self.config.step_ms / 2 * speed)
            for a, a_inf, speed in zip(gates, steady_state_gates(V), speeds, strict=True)
        ]


def gate_rates(V: Tensor) -> tuple[tuple[Tensor, Tensor], ...]:
    """Opening and closing rates (alpha, beta) of m, h and n at 6.3 °C, per ms."""
    m = linoid((V + 40) / 10), 4 * torch.exp(-(V + 65) / 18)  # (5)
    h = 0.07 * torch.exp(-(V + 65) / 20), 1 / (1 + torch.exp(-(V + 35) / 10))  # (6)
    n = 0.1 * linoid((V + 55) / 10), 0.125 * torch.exp(-(V + 65) / 80)  # (7)
    return m, h, n


def steady_state_gates(V: Tensor) -> list[Tensor]:
    """Steady-state values of m, h and n at V."""
    return [alpha / (alpha + beta) for alpha, beta in gate_rates(V)]  # (3)


def linoid(x: Tensor) -> Tensor:
    """x / (1 - e^-x), which is 1 at x = 0; expm1 keeps every digit around it."""
    return torch.where(x == 0, 1.0, x / -torch.expm1(-x))


def detect_spikes(
    V_TN: NDArray[np.float64], step_ms: float, threshold_mV: float = THRESHOLD_MV
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Times and neurons of upward threshold crossings, in order of time; V_TN[t] is V at (t + 1) step_ms.

    Linear interpolation between two samples errs by at most 1e-4 ms at a step of 0.01 ms.
    """
    V_TN = np.ascontiguousarray(V_TN)  # the compiler reads several neurons at once
    t, neuron = crossings(V_TN, threshold_mV)
    before, after = V_TN[t, neuron], V_TN[t + 1, neuron]
    return (t + 1 + (threshold_mV - before) / (after - before)) * step_ms, neuron


def spike_times_ms(V_T: ArrayLike, step_ms: float, threshold_mV: float = THRESHOLD_MV) -> NDArray[np.float64]:
    """Spike times of one neuron from its recorded membrane potential."""
    return detect_spikes(np.asarray(V_T, dtype=np.float64)[:, None], step_ms, threshold_mV)[0]
