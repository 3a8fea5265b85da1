r"""Parts of the fused decode kernel beside matrix products: norms, RoPE, attention, activations.

    e^x = 2^k e^r,\quad k = \text{round}(x / \ln 2),\quad r = x - k \ln 2   a polynomial of r, and k as exponent    (1)

Symbols and the other equations are those of generation/fused_decode.py. Rows of the KV cache have 32, 16 or 8 bits.
"""

import math
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from engram.core.simd import bits_to_float, carray, float_to_half, half_to_float, pointer
from engram.nn.attention import QKNorm
from engram.nn.transformer_block import ACTIVATIONS, Residual

Array = npt.NDArray[Any]
NAMES = list(ACTIVATIONS)
CODE = {name: NAMES.index({"geglu": "gelu", "geglu_tanh": "gelu_tanh"}.get(name, name)) for name in NAMES}
RELU, RELU2, GELU, GELU_TANH, QUICK_GELU = (CODE[name] for name in ("relu", "relu2", "gelu", "gelu_tanh", "quick_gelu"))
QK_NORMS: dict[QKNorm, int] = {"none": 0, "layer-no-affine": 1, "rms": 2, "rms-no-affine": 2, "rms-width": 3}
LAYER_BY_HEAD, RMS_BY_HEAD, RMS_BY_WIDTH = 1, 2, 3
RESIDUALS: dict[Residual, int] = {"pre-norm": 0, "output-norm": 1, "sandwich-norm": 2, "parallel": 3}
PRE_NORM, OUTPUT_NORM, SANDWICH_NORM, PARALLEL = RESIDUALS.values()
LOG2_E, LN_2_HIGH, LN_2_LOW = np.float32(1.44269504), np.float32(0.693359375), np.float32(-2.12194440e-4)


@numba.njit(cache=True, inline="always")
def exponential(x: float) -> float:
    """Return e^x to 2e-7 of itself (1); unlike math.exp, numba computes it for 16 numbers at once."""
    z = min(max(np.float32(x), np.float32(-87)), np.float32(88))
    k = math.floor(z * LOG2_E + np.float32(0.5))
    r = z - k * LN_2_HIGH - k * LN_2_LOW
    p = np.float32(1 / 5040) * r + np.float32(1 / 720)
    p = p * r + np.float32(1 / 120)
    p = p * r + np.float32(1 / 24)
    p = p * r + np.float32(1 / 6)
    p = p * r + np.float32(0.5)
    p = p * r * r + r + np.float32(1)
    return p * bits_to_float(np.int32((np.int32(k) + np.int32(127)) << np.int32(23)))


@numba.njit(cache=True, fastmath=True)
def dot(a_I: Array, b_I: Array) -> Any:
    """Product of two rows, of which the second may be longer."""
    total = np.float32(0)
    for i in range(len(a_I)):
        total += a_I[i] * b_I[i]
    return total


@numba.njit(cache=True, fastmath=True)
def standardize(x: Array, y: Array, eps: float, rms: bool) -> None:
    """Normalize to mean 0 and variance 1, or with `rms` to root mean square 1."""
    mean, square = np.float32(0), np.float32(0)
    if not rms:
        for i in range(len(x)):
            mean += x[i]
        mean /= np.float32(len(x))
    for i in range(len(x)):
        square += (x[i] - mean) * (x[i] - mean)
    scale = np.float32(1 / math.sqrt(square / len(x) + eps))
    for i in range(len(x)):
        y[i] = (x[i] - mean) * scale


@numba.njit(cache=True, fastmath=True)
def normalize(h_NE: Array, gain_bias_2E: Array, eps: float, rms: bool, x_NE: Array) -> None:
    """LayerNorm or RMSNorm of each row."""
    for n in range(len(h_NE)):
        standardize(h_NE[n], x_NE[n], eps, rms)
        for e in range(x_NE.shape[1]):
            x_NE[n, e] = x_NE[n, e] * gain_bias_2E[0, e] + gain_bias_2E[1, e]


@numba.njit(cache=True, fastmath=True)
def norm_and_rotate(x_HD: Array, gain: Array, qk_norm: int, eps: float, cos_sin_R2: Array) -> None:
    """QK-norm and RoPE of the queries or keys of one token, where configured."""
    size = x_HD.shape[1]
    if qk_norm == RMS_BY_WIDTH:
        flat = x_HD.reshape(x_HD.size)
        standardize(flat, flat, eps, True)
    for head in range(len(x_HD)):
        x_D = x_HD[head]
        if qk_norm == LAYER_BY_HEAD:
            standardize(x_D, x_D, 1e-5, False)
        elif qk_norm == RMS_BY_HEAD:
            standardize(x_D, x_D, eps, True)
        if qk_norm in (RMS_BY_HEAD, RMS_BY_WIDTH):
            first = head * size if qk_norm == RMS_BY_WIDTH else 0
            for d in range(size):
                x_D[d] *= gain[first + d]
        for i in range(len(cos_sin_R2)):
            a, b, cos, sin = x_D[2 * i], x_D[2 * i + 1], cos_sin_R2[i, 0], cos_sin_R2[i, 1]
            x_D[2 * i], x_D[2 * i + 1] = a * cos - b * sin, a * sin + b * cos


@numba.njit(cache=True, fastmath=True)
def store_row(x_D: Array, rows: int, scales: int, index: int, bits: int) -> None:
    """Write a key or value into the KV cache."""
    size = len(x_D)
    if bits == 32:
        carray(pointer(rows + 4 * index * size), size, np.float32)[:] = x_D
    elif bits == 16:
        halves = carray(pointer(rows + 2 * index * size), size, np.int16)
        for d in range(size):
            halves[d] = float_to_half(x_D[d])
    else:
        largest = np.float32(0)
        for d in range(size):
            largest = max(largest, abs(x_D[d]))
        carray(pointer(scales + 4 * index), 1, np.float32)[0] = largest / np.float32(127)
        inverse = np.float32(127) / largest if largest > 0 else np.float32(0)
        integers = carray(pointer(rows + index * size), size, np.int8)
        for d in range(size):
            integers[d] = np.int8(np.rint(x_D[d] * inverse))


@numba.njit(cache=True, fastmath=True)
def load_row(rows: int, scales: int, index: int, bits: int, room_D: Array) -> Array:
    """Return a key or value of the KV cache: where it lies, or in `room` where it must be converted."""
    size = len(room_D)
    if bits == 32:
        return carray(pointer(rows + 4 * index * size), size, np.float32)
    if bits == 16:
        halves = carray(pointer(rows + 2 * index * size), size, np.int16)
        for d in range(size):
            room_D[d] = half_to_float(halves[d])
    else:
        scale = carray(pointer(scales + 4 * index), 1, np.float32)[0]
        integers = carray(pointer(rows + index * size), size, np.int8)
        for d in range(size):
            room_D[d] = scale * np.float32(integers[d])
    return room_D


@numba.njit(cache=True, fastmath=True)
def attend(
    q_D: Array, cache: Array, bits: int, first: int, last: int, scale: float, softcap: float, a_D: Array
) -> None:
    """Attention of one head to the rows from `first` to `last` of the KV cache; no score overflows.

    `cache` has the addresses of keys, values, and the scales of both.
    """
    p_S, room_D, largest, total = np.empty(last - first, np.float32), np.empty_like(a_D), -np.inf, np.float32(0)
    for s in range(len(p_S)):
        p_S[s] = dot(load_row(cache[0], cache[2], first + s, bits, room_D), q_D) * np.float32(scale)
        if softcap > 0:
            p_S[s] = softcap * math.tanh(p_S[s] / softcap)
        largest = max(largest, p_S[s])
    for s in range(len(p_S)):
        p_S[s] = exponential(p_S[s] - np.float32(largest))
        total += p_S[s]
    a_D[:] = 0
    for s in range(len(p_S)):
        v_D, p = load_row(cache[1], cache[3], first + s, bits, room_D), p_S[s] / total
        for d in range(len(a_D)):
            a_D[d] += p * v_D[d]


@numba.njit(cache=True, fastmath=True)
def activate(activation: int, z_F: Array) -> None:
    """Apply an activation function in place."""
    for i in range(len(z_F)):
        z = z_F[i]
        if activation == RELU:
            z_F[i] = max(z, np.float32(0))
        elif activation == RELU2:
            z_F[i] = max(z, np.float32(0)) ** 2
        elif activation == GELU:
            z_F[i] = 0.5 * z * (1 + math.erf(z * math.sqrt(0.5)))
        elif activation == GELU_TANH:
            inner = np.float32(-2 * math.sqrt(2 / math.pi)) * (z + np.float32(0.044715) * z * z * z)
            z_F[i] = z / (np.float32(1) + exponential(inner))
        else:
            slope = np.float32(-1.702) if activation == QUICK_GELU else np.float32(-1)
            z_F[i] = z / (np.float32(1) + exponential(slope * z))
