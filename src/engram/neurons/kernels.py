"""Numba kernels of neuron models: time loops, compiled at the first call and cached on disk.

float64 in the order written, with fused multiply-add; `exp` is a polynomial, and neurons are computed in groups of L
lanes (the last group padded), so that the compiler vectorizes. A neuron gets the same bits whatever its neighbors, the
number of threads and the chunks of time.

T time steps, N neurons, L lanes, R rows of the state: 1 or 4. "model (n)" is equation (n) of `hodgkin_huxley.model`.
"""

import math
from typing import Any

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from engram.core.threads import parallel_njit

Array = NDArray[np.float64]

LANES = 64  # enough to hide the latency of the exponentials
BLOCK = 2**17  # neurons × steps per call (10 ms): fits the caches, and is worth starting threads

LOG2_E = 1 / math.log(2)
LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")  # ln 2 in two parts: k * LN2_HIGH is exact for |k| < 2**20
LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
ROUNDER = 1.5 * 2.0**52  # x + ROUNDER holds the integer nearest to x in its lowest bits
SMALL = 1 / 8
E_1, E_2_5, E_3 = math.exp(1.0), math.exp(2.5), math.exp(3.0)

FUSED = {"contract"}  # a product and a sum may be one instruction
compiled = njit(cache=True, error_model="numpy", nogil=True, fastmath=FUSED)
inlined = njit(cache=True, error_model="numpy", forceinline=True, fastmath=FUSED)


def advance_hodgkin_huxley(
    state_4N: Array, parameters_8N: Array, step_ms: float, current_TN: Array, recording_TRN: Array, *, runge_kutta: bool
) -> None:
    """Advance `state_4N` in place by T steps and record (V, m, h, n) after each, or V alone.

    The rows of the parameters are c, g_Na, g_K, g_L, V_Na, V_K, V_L and phi.
    """
    T, N = current_TN.shape
    advance = _advance_parallel if N > LANES and T * N >= BLOCK // 2 else _advance_serial
    steps = max(1, BLOCK // N)
    for start in range(0, T, steps):
        block = slice(start, start + steps)
        advance(state_4N, parameters_8N, step_ms, current_TN[block], recording_TRN[block], runge_kutta)


@compiled
def crossings(V_TN: Array, threshold: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows t and columns i of upward threshold crossings between V[t, i] and V[t + 1, i]."""
    T, N = np.uint64(V_TN.shape[0]), np.uint64(V_TN.shape[1])  # not negative, as numba can see
    t_C, i_C, found = np.empty(N, np.int64), np.empty(N, np.int64), 0
    for t in range(T - np.uint64(1)):
        before, after = V_TN[t], V_TN[t + np.uint64(1)]
        if len(t_C) < found + N:
            t_C, i_C = np.concatenate((t_C, np.empty_like(t_C))), np.concatenate((i_C, np.empty_like(i_C)))
        for first in range(np.uint64(0), N, np.uint64(LANES)):
            last, any_crosses = min(first + np.uint64(LANES), N), np.int64(0)
            for i in range(first, last):
                any_crosses |= below(before[i], threshold) & ~below(after[i], threshold)
            for i in range(first, last if any_crosses < 0 else first):
                if before[i] < threshold and after[i] >= threshold:
                    t_C[found], i_C[found] = t, i
                    found += 1
    return t_C[:found], i_C[:found]


@inlined
def below(V: float, threshold: float) -> Any:
    """Negative where V < threshold: sign bits are faster to combine over neurons than booleans."""
    return np.float64(V - threshold).view(np.int64)


@compiled
def _advance_serial(
    state_4N: Array, p_8N: Array, step_ms: float, current_TN: Array, recording_TRN: Array, runge_kutta: bool
) -> None:
    for first in range(0, state_4N.shape[1], LANES):
        _advance_lanes(state_4N, p_8N, step_ms, current_TN, recording_TRN, runge_kutta, first)


@parallel_njit(error_model="numpy", nogil=True, fastmath=FUSED)
def _advance_parallel(
    state_4N: Array, p_8N: Array, step_ms: float, current_TN: Array, recording_TRN: Array, runge_kutta: bool
) -> None:
    for group in prange((state_4N.shape[1] + LANES - 1) // LANES):
        _advance_lanes(state_4N, p_8N, step_ms, current_TN, recording_TRN, runge_kutta, group * LANES)


@compiled
def _advance_lanes(
    state_4N: Array, p_8N: Array, step_ms: float, current_TN: Array, recording_TRN: Array, runge_kutta: bool, first: int
) -> None:
    """Advance neurons first..first+L-1 (or fewer at the end) through all T steps."""
    begin, count = np.uint64(first), np.uint64(min(LANES, state_4N.shape[1] - first))  # not negative, as numba can see
    zero = np.uint64(0)
    x_4L, J_L, p_8L = np.zeros((4, LANES)), np.zeros(LANES), np.ones((8, LANES))
    inf_3L, decay_3L = np.empty((3, LANES)), np.empty((3, LANES))
    at_4L, k_4L, sum_4L = np.empty((4, LANES)), np.empty((4, LANES)), np.empty((4, LANES))
    _copy(state_4N, begin, x_4L, zero, count)
    _copy(p_8N, begin, p_8L, zero, count)
    update_gate_targets(x_4L, p_8L, step_ms / 2, inf_3L, decay_3L)
    for t in range(len(current_TN)):
        for i in range(count):
            J_L[i] = current_TN[t, begin + i]
        if runge_kutta:
            _runge_kutta(x_4L, p_8L, step_ms, J_L, at_4L, k_4L, sum_4L)
        else:
            relax_gates(x_4L, inf_3L, decay_3L)  # model (8)
            relax_voltage(x_4L, p_8L, step_ms, J_L)  # model (9)
            update_gate_targets(
                x_4L, p_8L, step_ms / 2, inf_3L, decay_3L
            )  # for this step's second half and the next one's first
            relax_gates(x_4L, inf_3L, decay_3L)  # model (10)
        _copy(x_4L, zero, recording_TRN[t], begin, count)
    _copy(x_4L, zero, state_4N, begin, count)


@inlined
def _copy(source: Array, source_first: np.uint64, target: Array, target_first: np.uint64, count: np.uint64) -> None:
    """The rows of target = those of source, for `count` columns.

    With slices numba would compile for 8 s more.
    """
    for row in range(len(target)):
        for i in range(count):
            target[row, target_first + i] = source[row, source_first + i]


@inlined
def relax_gates(x_4L: Array, inf_3L: Array, decay_3L: Array) -> None:
    for a in range(3):
        for i in range(LANES):
            x_4L[1 + a, i] = _relax(x_4L[1 + a, i], inf_3L[a, i], decay_3L[a, i])


@inlined
def relax_voltage(x_4L: Array, p_8L: Array, time_ms: float, J_L: Array) -> None:
    c, g_Na, g_K, g_L, V_Na, V_K, V_L = p_8L[0], p_8L[1], p_8L[2], p_8L[3], p_8L[4], p_8L[5], p_8L[6]
    for i in range(LANES):
        V, m, h, n = x_4L[0, i], x_4L[1, i], x_4L[2, i], x_4L[3, i]
        G_Na = g_Na[i] * (m * m * m * h)
        G_K = g_K[i] * ((n * n) * (n * n))
        G = G_Na + G_K + g_L[i]
        V_inf = (J_L[i] + G_Na * V_Na[i] + G_K * V_K[i] + g_L[i] * V_L[i]) / G
        x_4L[0, i] = _relax(V, V_inf, _decay(time_ms * G / c[i]))


@inlined
def update_gate_targets(x_4L: Array, p_8L: Array, time_ms: float, inf_3L: Array, decay_3L: Array) -> None:
    """Steady states of the gates at the present V, and their decay factors over time_ms."""
    for i in range(LANES):
        alpha_m, beta_m, alpha_h, beta_h, alpha_n, beta_n = _rates(x_4L[0, i])
        time = time_ms * p_8L[7, i]  # model (4)
        inf_3L[0, i], decay_3L[0, i] = alpha_m / (alpha_m + beta_m), time * (alpha_m + beta_m)  # model (3)
        inf_3L[1, i], decay_3L[1, i] = alpha_h / (alpha_h + beta_h), time * (alpha_h + beta_h)  # model (3)
        inf_3L[2, i], decay_3L[2, i] = alpha_n / (alpha_n + beta_n), time * (alpha_n + beta_n)  # model (3)
    for a in range(3):
        _decay_all(decay_3L[a])


@compiled
def _runge_kutta(x_4L: Array, p_8L: Array, D: float, J_L: Array, at_4L: Array, k_4L: Array, sum_4L: Array) -> None:
    """Model (11), (12): `at` is where the slope k is evaluated, `sum` the weighted sum of slopes."""
    for row in range(4):
        for i in range(LANES):
            at_4L[row, i], sum_4L[row, i] = x_4L[row, i], 0.0
    for weight, ahead in ((1.0, D / 2), (2.0, D / 2), (2.0, D), (1.0, 0.0)):
        _derivatives(at_4L, p_8L, J_L, k_4L)
        for row in range(4):
            for i in range(LANES):
                sum_4L[row, i] += weight * k_4L[row, i]
                at_4L[row, i] = x_4L[row, i] + ahead * k_4L[row, i]
    for row in range(4):
        for i in range(LANES):
            x_4L[row, i] += D / 6 * sum_4L[row, i]


@inlined
def _derivatives(x_4L: Array, p_8L: Array, J_L: Array, k_4L: Array) -> None:
    """Derivatives of V, m, h, n, model (1) and (2)."""
    c, g_Na, g_K, g_L, V_Na, V_K, V_L, phi = p_8L[0], p_8L[1], p_8L[2], p_8L[3], p_8L[4], p_8L[5], p_8L[6], p_8L[7]
    for i in range(LANES):
        V, m, h, n = x_4L[0, i], x_4L[1, i], x_4L[2, i], x_4L[3, i]
        alpha_m, beta_m, alpha_h, beta_h, alpha_n, beta_n = _rates(V)
        I_Na = g_Na[i] * (m * m * m * h) * (V - V_Na[i])
        I_K = g_K[i] * ((n * n) * (n * n)) * (V - V_K[i])
        k_4L[0, i] = (J_L[i] - I_Na - I_K - g_L[i] * (V - V_L[i])) / c[i]  # model (1)
        k_4L[1, i] = phi[i] * (alpha_m * (1 - m) - beta_m * m)  # model (2)
        k_4L[2, i] = phi[i] * (alpha_h * (1 - h) - beta_h * h)
        k_4L[3, i] = phi[i] * (alpha_n * (1 - n) - beta_n * n)


@inlined
def _rates(V: float) -> tuple[float, float, float, float, float, float]:
    """The six gate rates from two exponentials: five of the six exponents are multiples of (V + 65) / 80."""
    V = min(max(V, -5000.0), 5000.0)  # keeps the rates finite
    e_18 = _exp((V + 65) * (-1 / 18))
    e_80 = _exp((V + 65) * (-1 / 80))
    e_40 = e_80 * e_80
    e_20 = e_40 * e_40
    e_10 = e_20 * e_20
    alpha_m, beta_m = _linoid((V + 40) * 0.1, e_10 * E_2_5), 4 * e_18  # model (5)
    alpha_h, beta_h = 0.07 * e_20, 1 / (1 + e_10 * E_3)  # model (6)
    alpha_n, beta_n = 0.1 * _linoid((V + 55) * 0.1, e_10 * E_1), 0.125 * e_80  # model (7)
    return alpha_m, beta_m, alpha_h, beta_h, alpha_n, beta_n


@inlined
def _linoid(x: float, e: float) -> float:
    """x / (1 - e^-x), given e = e^-x; where 1 - e would cancel, its series in the Bernoulli numbers."""
    y = x * x
    series = 1 + x / 2 + y * (1 / 12 - y * (1 / 720 - y * (1 / 30240 - y * (1 / 1209600 - y * (1 / 47900160)))))
    quotient = x / (1 - e)
    return series if abs(x) < 0.25 else quotient


@inlined
def _relax(x: float, x_inf: float, decay: float) -> float:
    return x_inf + (x - x_inf) * decay


@inlined
def _decay_all(z_L: Array) -> None:
    """Replace z by e^-z in place; a short series where z is small, chosen by each neuron's own z."""
    far = np.int64(0)
    for i in range(LANES):
        far |= below(SMALL, z_L[i])
    if far >= 0:
        for i in range(LANES):
            z_L[i] = _short_decay(z_L[i])
    else:
        for i in range(LANES):
            z_L[i] = _decay(z_L[i]) if z_L[i] > SMALL else _short_decay(z_L[i])


@inlined
def _short_decay(z: float) -> float:
    """e^-z for 0 <= z <= 1/8, to 1e-15, by Taylor's series."""
    end = 1 / 5040 - z * (1 / 40320 - z * (1 / 362880))
    return 1 - z * (1 - z * (1 / 2 - z * (1 / 6 - z * (1 / 24 - z * (1 / 120 - z * (1 / 720 - z * end))))))


@inlined
def _decay(z: float) -> float:
    """e^-z for z >= 0."""
    return _exp(-min(z, 708.0))


@inlined
def _exp(x: float) -> float:
    """e^x for |x| <= 708, to 1e-15.

    With x = k ln 2 + r it is 2^k e^r, and Taylor's series to r^13 gives e^r.
    """
    shifted = x * LOG2_E + ROUNDER
    k = shifted - ROUNDER
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    r2 = r * r
    even = 1 / 40320 + r2 * (1 / 3628800 + r2 * (1 / 479001600))
    even = 1 + r2 * (1 / 2 + r2 * (1 / 24 + r2 * (1 / 720 + r2 * even)))
    odd = 1 / 362880 + r2 * (1 / 39916800 + r2 * (1 / 6227020800))
    odd = 1 + r2 * (1 / 6 + r2 * (1 / 120 + r2 * (1 / 5040 + r2 * odd)))
    exponent_bits = (np.float64(shifted).view(np.int64) + 1023) << 52
    return np.int64(exponent_bits).view(np.float64) * (even + r * odd)


@compiled
def ornstein_uhlenbeck(noise_TN: Array, decay: float) -> None:
    """Turn normal numbers in place into x_0 = noise_0, x_t = decay x_(t-1) + sqrt(1 - decay²) noise_t."""
    fresh = math.sqrt(1 - decay * decay)
    for t in range(1, len(noise_TN)):
        for i in range(noise_TN.shape[1]):
            noise_TN[t, i] = decay * noise_TN[t - 1, i] + fresh * noise_TN[t, i]
