"""How a Hodgkin–Huxley neuron answers a constant current: how fast it fires, from where on, and why.

The phase plane is that of the model with two variables that the four nearly are (Krinskii & Kokoz 1973): m follows V at
once, and h and n, which are slow, have always nearly the same sum.

    m = m_inf(V),   h = h_rest + n_rest - n                                                                     (1)
    dn/dt = 0       n = n_inf(V)                                                                                (2)
    dV/dt = 0       J = I_Na + I_K + I_L, which for each V has one solution n: all of it falls as n rises       (3)

Where (2) and (3) meet, the neuron may rest. It fires on and on when the meeting point does not hold it.
"""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from engram.core.errors import EngramError
from engram.neurons.hodgkin_huxley import HodgkinHuxley, gates_inf

Array = NDArray[np.float64]
STEADY_MS = 100.0
"""a neuron that has not fired for so long does not fire any more: the slowest that keep firing take 20 ms"""
SIDE_BY_SIDE = 32
"""currents tried at once in the search for a threshold"""


def answers(config: HodgkinHuxley.Config, J_N: ArrayLike, duration_ms: float) -> list[Array]:
    """The spike times of neurons at rest, each under a constant current of its own from time 0 on."""
    J = torch.as_tensor(np.atleast_1d(np.asarray(J_N, np.float64)))
    model = HodgkinHuxley(replace(config, neurons=len(J)))
    _, spikes = model.fire(model.rest(), J.expand(round(duration_ms / config.step_ms), -1))
    return [spikes.of(i) for i in range(len(J))]


def frequency_hz(
    config: HodgkinHuxley.Config, J_N: ArrayLike, duration_ms: float = 500.0, settle_ms: float = 100.0
) -> Array:
    """The steady rate under each constant current; 0 where the neuron fires only at first, or not at all."""
    if duration_ms < settle_ms + STEADY_MS:
        raise EngramError(f"duration_ms must be at least {settle_ms + STEADY_MS:g}, not {duration_ms:g}.")
    steady = [times[times >= settle_ms] for times in answers(config, J_N, duration_ms)]
    return np.array(
        [1000 / np.diff(t).mean() if len(t) > 1 and t[-1] > duration_ms - STEADY_MS else 0.0 for t in steady]
    )


def rheobase(
    config: HodgkinHuxley.Config, *, repetitive: bool = False, most: float = 100.0, tolerance: float = 1e-4
) -> float:
    """The weakest current, switched on at rest, that makes the neuron fire once, or fire on and on; inf beyond `most`.

    Currents between one that is too weak and one that is not are tried side by side, until these two are close.
    """
    low, high = 0.0, most
    if not fires(config, [high], repetitive)[0]:
        return float("inf")
    while high - low > tolerance:
        tried = np.linspace(low, high, SIDE_BY_SIDE + 1)[1:]
        first = int(np.argmax(fires(config, tried, repetitive)))
        low, high = (tried[first - 1] if first else low), float(tried[first])
    return high


def fires(config: HodgkinHuxley.Config, J_N: ArrayLike, repetitive: bool) -> NDArray[np.bool_]:
    if repetitive:
        return frequency_hz(config, J_N) > 0
    return np.array([len(times) > 0 for times in answers(config, J_N, STEADY_MS)])


def nullclines(model: HodgkinHuxley, J: float, V: Tensor, neuron: int = 0) -> tuple[Tensor, Tensor]:
    """n on (2) and on (3) at each V of a vector; nan where no n from 0 to 1 makes the currents cancel."""
    _, _, h_rest, n_rest = model.rest()[:, neuron]
    m_inf, _, n_inf = gates_inf(V)

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
