r"""Kernels of quantized matrices: the product of few or many rows, and the matrix itself.

    t = \max |x| / 127,\quad p = \text{round}(x / t)                                         activations     (1)
    y = \sum_g s_g t_g (q_g - z) \cdot p_g + m_g t_g \sum p_g                                 product         (2)

    Symbols:
        x, y, q, p, s, t, m, z     as in generation/quantization.py
        N, O, I, G                 rows, outputs, inputs, groups of 32 inputs

A strip of 16 outputs fills one register. Its weights lie in the order in which they are read: for each group, four
inputs of each output side by side. A weight is read once for four rows.
"""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from engram.core.simd import (
    carray,
    dot4,
    floats,
    half_to_float,
    high_nibbles,
    ints,
    load_bytes,
    load_four,
    load_halves,
    low_nibbles,
    multiply,
    multiply_add,
    pointer,
    store_floats,
    to_floats,
)
from engram.core.threads import parallel_njit

Array = npt.NDArray[Any]
GROUP, STRIP = 32, 16
"""inputs of a group, outputs of a strip"""
ROWS = 4
"""rows for which a weight is read once"""


WEIGHTS, SCALES, BIAS, BITS, ZERO, PARTS, OUTPUTS, INPUTS = range(8)
"""what the kernels know of a matrix, as a row of integers: the addresses of its weights, of the scales of each strip
and group and of its biases (0 without), its bits, the number that stands for 0, 2 parts if minima follow the scales,
and its size"""


@numba.njit(cache=True)
def empty_inputs(rows: int, inputs: int) -> tuple[Array, Array, Array]:
    """Return room for quantized inputs: p, t and the sum of p in each group."""
    groups = -(-inputs // GROUP)
    p_NI, t_NG = np.zeros((rows, groups * GROUP), np.int8), np.zeros((rows, groups), np.float32)
    return p_NI, t_NG, np.zeros((rows, groups), np.int32)


@numba.njit(cache=True, fastmath=True)
def quantize_row(x_I: Array, p_I: Array, t_G: Array, sum_G: Array) -> None:
    """Quantize the inputs of one row (1)."""
    for g in range(len(t_G)):
        start, end = g * GROUP, min(g * GROUP + GROUP, len(x_I))
        largest = np.float32(0)
        for i in range(start, end):
            largest = max(largest, abs(x_I[i]))
        t_G[g] = largest / np.float32(127)
        inverse = np.float32(127) / largest if largest > 0 else np.float32(0)
        total = np.int32(0)
        for i in range(start, end):
            p_I[i] = np.int8(np.rint(x_I[i] * inverse))
            total += np.int32(p_I[i])
        sum_G[g] = total


@numba.njit(cache=True)
def multiply_strip(matrix: Array, strip: int, p_NI: Array, t_NG: Array, sum_NG: Array, y: int, stride: int) -> None:
    """Compute 16 outputs of all rows (2), the first at the address y, the next `stride` on."""
    rows = len(t_NG)
    blocked = rows // ROWS * ROWS
    for row in range(0, blocked, ROWS):
        _multiply_4(matrix, strip, p_NI, t_NG, sum_NG, row, y, stride)
    for row in range(blocked, rows):
        store_floats(y + row * stride, _multiply_1(matrix, strip, p_NI, t_NG, sum_NG, row))


@numba.njit(cache=True)
def _multiply_1(matrix: Array, strip: int, p_NI: Array, t_NG: Array, sum_NG: Array, row: int) -> Any:
    bits, zero, parts, groups = matrix[BITS], matrix[ZERO], matrix[PARTS], t_NG.shape[1]
    w = matrix[WEIGHTS] + strip * groups * 64 * bits
    s = matrix[SCALES] + strip * groups * 32 * parts
    p = p_NI.ctypes.data + row * groups * GROUP
    y = floats(np.float32(0))
    for g in range(groups):
        t, sum_g = t_NG[row, g], sum_NG[row, g]
        total = ints(np.int32(-zero * sum_g))
        if bits == 4:
            for j in range(4):
                packed = load_bytes(w + 64 * j)
                total = dot4(total, low_nibbles(packed), load_four(p + 8 * j))
                total = dot4(total, high_nibbles(packed), load_four(p + 8 * j + 4))
            w += 256
        else:
            for j in range(8):
                total = dot4(total, load_bytes(w + 64 * j), load_four(p + 4 * j))
            w += 512
        y = multiply_add(to_floats(total), multiply(load_halves(s), floats(t)), y)
        if parts == 2:
            y = multiply_add(load_halves(s + 32), floats(np.float32(t * sum_g)), y)
        s += 32 * parts
        p += GROUP
    return y


@numba.njit(cache=True)
def _multiply_4(
    matrix: Array, strip: int, p_NI: Array, t_NG: Array, sum_NG: Array, row: int, y: int, stride: int
) -> None:
    bits, zero, parts, groups = matrix[BITS], matrix[ZERO], matrix[PARTS], t_NG.shape[1]
    width = groups * GROUP
    w = matrix[WEIGHTS] + strip * groups * 64 * bits
    s = matrix[SCALES] + strip * groups * 32 * parts
    p = p_NI.ctypes.data + row * width
    y0 = y1 = y2 = y3 = floats(np.float32(0))
    for g in range(groups):
        n0, n1, n2, n3 = sum_NG[row, g], sum_NG[row + 1, g], sum_NG[row + 2, g], sum_NG[row + 3, g]
        total0, total1 = ints(np.int32(-zero * n0)), ints(np.int32(-zero * n1))
        total2, total3 = ints(np.int32(-zero * n2)), ints(np.int32(-zero * n3))
        for j in range(4):
            if bits == 4:
                packed = load_bytes(w + 64 * j)
                a, b = low_nibbles(packed), high_nibbles(packed)
            else:
                a, b = load_bytes(w + 128 * j), load_bytes(w + 128 * j + 64)
            x = p + 8 * j
            total0 = dot4(dot4(total0, a, load_four(x)), b, load_four(x + 4))
            total1 = dot4(dot4(total1, a, load_four(x + width)), b, load_four(x + width + 4))
            total2 = dot4(dot4(total2, a, load_four(x + 2 * width)), b, load_four(x + 2 * width + 4))
            total3 = dot4(dot4(total3, a, load_four(x + 3 * width)), b, load_four(x + 3 * width + 4))
        w += 64 * bits
        scale = load_halves(s)
        y0 = multiply_add(to_floats(total0), multiply(scale, floats(t_NG[row, g])), y0)
        y1 = multiply_add(to_floats(total1), multiply(scale, floats(t_NG[row + 1, g])), y1)
        y2 = multiply_add(to_floats(total2), multiply(scale, floats(t_NG[row + 2, g])), y2)
        y3 = multiply_add(to_floats(total3), multiply(scale, floats(t_NG[row + 3, g])), y3)
        if parts == 2:
            minimum = load_halves(s + 32)
            y0 = multiply_add(minimum, floats(np.float32(t_NG[row, g] * n0)), y0)
            y1 = multiply_add(minimum, floats(np.float32(t_NG[row + 1, g] * n1)), y1)
            y2 = multiply_add(minimum, floats(np.float32(t_NG[row + 2, g] * n2)), y2)
            y3 = multiply_add(minimum, floats(np.float32(t_NG[row + 3, g] * n3)), y3)
        s += 32 * parts
        p += GROUP
    store_floats(y + row * stride, y0)
    store_floats(y + (row + 1) * stride, y1)
    store_floats(y + (row + 2) * stride, y2)
    store_floats(y + (row + 3) * stride, y3)


@parallel_njit()
def quantized_product(matrix: Array, x_NI: Array, y_NO: Array) -> None:
    """Compute the product (2) of all rows, without biases; y has room for whole strips."""
    rows, strips = len(x_NI), y_NO.shape[1] // STRIP
    p_NI, t_NG, sum_NG = empty_inputs(rows, matrix[INPUTS])
    for n in numba.prange(rows):
        quantize_row(x_NI[n], p_NI[n], t_NG[n], sum_NG[n])
    y, stride = y_NO.ctypes.data, 4 * y_NO.shape[1]
    for strip in numba.prange(strips):
        multiply_strip(matrix, strip, p_NI, t_NG, sum_NG, y + 64 * strip, stride)


@parallel_njit()
def dequantize_matrix(matrix: Array, W_OI: Array) -> None:
    """Fill W, which has room for whole strips and groups, with the weights."""
    bits, zero, parts, groups = matrix[BITS], matrix[ZERO], matrix[PARTS], W_OI.shape[1] // GROUP
    for strip in numba.prange(len(W_OI) // STRIP):
        packed = carray(pointer(matrix[WEIGHTS] + strip * groups * 64 * bits), (groups, 64 * bits), np.uint8)
        scales = carray(pointer(matrix[SCALES] + strip * groups * 32 * parts), (groups, parts, STRIP), np.int16)
        for g in range(groups):
            for row in range(STRIP):
                s = half_to_float(scales[g, 0, row])
                m = half_to_float(scales[g, 1, row]) if parts == 2 else np.float32(0)
                for i in range(GROUP):
                    q = _code(packed[g], row, i, bits)
                    W_OI[strip * STRIP + row, g * GROUP + i] = s * np.float32(q - zero) + m


@numba.njit(cache=True)
def _code(packed: Array, row: int, i: int, bits: int) -> Any:
    """The quantized weight of one output and input of a group."""
    if bits == 8:
        return np.int32(packed[i // 4 * 64 + 4 * row + i % 4])
    pair = packed[i // 8 * 64 + 4 * row + i % 4]
    return np.int32(pair >> 4 if i % 8 >= 4 else pair & 15)
