r"""Excitability of a Hodgkin–Huxley neuron: f–I curve, rheobase and nullclines.

The phase plane is that of the reduction to two variables (Krinskii & Kokoz 1973): m follows V at once, and the sum of
the slow gates h and n is nearly constant.

    m = m_\infty(V), h = h_0 + n_0 - n                          reduction to V and n         (1)
    n = n_\infty(V)                                             n-nullcline, dn/dt = 0       (2)
    J = I_{Na}(V, n) + I_K(V, n) + I_L(V)                       V-nullcline, dV/dt = 0       (3)

For each V, (3) has one solution n, as its right side rises with n. Where the nullclines meet is an equilibrium; the
neuron fires repetitively when that is unstable.

Symbols:
    V, m, h, n            membrane potential and gates
    h_0, n_0              h and n at rest
    J                     injected current
    I_{Na}, I_K, I_L      ionic currents
"""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from engram.core.errors import EngramError
from engram.neurons.hodgkin_huxley.model import HodgkinHuxley, steady_state_gates

Array = NDArray[np.float64]
STEADY_MS = 100.0
"""silence after which a neuron counts as quiescent, ms; the slowest repetitive firing has intervals of 20 ms"""
CURRENTS_PER_SEARCH = 32
"""currents simulated at once in the search for the rheobase"""


def simulate_spike_times(config: HodgkinHuxley.Config, J_N: ArrayLike, duration_ms: float) -> list[Array]:
    """Spike times under each of several constant currents, from rest."""
    J = torch.as_tensor(np.atleast_1d(np.asarray(J_N, np.float64)))
    model = HodgkinHuxley(replace(config, neurons=len(J)))
    _, spikes = model.simulate_spikes(model.init_state(), J.expand(round(duration_ms / config.step_ms), -1))
    return [spikes.train(i) for i in range(len(J))]


def frequency_hz(
    config: HodgkinHuxley.Config, J_N: ArrayLike, duration_ms: float = 500.0, settle_ms: float = 100.0
) -> Array:
    """f–I curve: steady firing rate under each constant current; 0 without repetitive firing."""
    if duration_ms < settle_ms + STEADY_MS:
        raise EngramError(f"duration_ms must be at least {settle_ms + STEADY_MS:g}, not {duration_ms:g}.")
    steady = [times[times >= settle_ms] for times in simulate_spike_times(config, J_N, duration_ms)]
    return np.array(
        [1000 / np.diff(t).mean() if len(t) > 1 and t[-1] > duration_ms - STEADY_MS else 0.0 for t in steady]
    )


def rheobase(
    config: HodgkinHuxley.Config, *, repetitive: bool = False, max_current: float = 100.0, tolerance: float = 1e-4
) -> float:
    """Weakest current step from rest that elicits a spike, or repetitive firing; inf if there is none.

    It is inf above `max_current`.

    The interval that holds it is divided into equal parts until it is shorter than the tolerance.
    """
    low, high = 0.0, max_current
    if not fires(config, [high], repetitive)[0]:
        return float("inf")
    while high - low > tolerance:
        candidates = np.linspace(low, high, CURRENTS_PER_SEARCH + 1)[1:]
        first = int(np.argmax(fires(config, candidates, repetitive)))
        low, high = (candidates[first - 1] if first else low), float(candidates[first])
    return high


def fires(config: HodgkinHuxley.Config, J_N: ArrayLike, repetitive: bool) -> NDArray[np.bool_]:
    """Whether each constant current elicits a spike, or repetitive firing."""
    if repetitive:
        return frequency_hz(config, J_N) > 0
    return np.array([len(times) > 0 for times in simulate_spike_times(config, J_N, STEADY_MS)])


def nullclines(model: HodgkinHuxley, J: float, V: Tensor, neuron: int = 0) -> tuple[Tensor, Tensor]:
    """n on the n-nullcline (2) and on the V-nullcline (3) at each V; NaN where n is not from 0 to 1."""
    _, _, h_rest, n_rest = model.init_state()[:, neuron]
    m_inf, _, n_inf = steady_state_gates(V)

    def net(n: Tensor) -> Tensor:
        g_Na, g_K, g_L, V_Na, V_K, V_L = (
            getattr(model, name)[neuron] for name in ("g_Na", "g_K", "g_L", "V_Na", "V_K", "V_L")
        )
        I_Na = g_Na * m_inf**3 * (h_rest + n_rest - n) * (V - V_Na)  # (1)
        return J - I_Na - g_K * n**4 * (V - V_K) - g_L * (V - V_L)  # (3)

    low, high = torch.zeros_like(V), torch.ones_like(V)
    crosses = (net(low) > 0) & (net(high) < 0)
    for _ in range(50):
        n = (low + high) / 2
        still = net(n) > 0
        low, high = torch.where(still, n, low), torch.where(still, high, n)
    return n_inf, torch.where(crosses, n, torch.nan)  # (2)
