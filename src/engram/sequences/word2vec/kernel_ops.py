"""Parts of word2vec's compiled kernel: random numbers, sampling, sigmoid and blocked products of rows.

All are inlined into `kernels.compile_kernel` before compilation. Numbers in brackets are the equations of
`word2vec.model`.   V words, E width, K outputs, whose rows are gathered in Y
"""

import math
from typing import Any

import numpy as np
from numba import njit

U = np.uint64
F = np.float32

FOUR, SIX = U(4), U(6)
GAMMA, MIX_1, MIX_2 = U(0x9E3779B97F4A7C15), U(0xBF58476D1CE4E5B9), U(0x94D049BB133111EB)
LOG2_E = F(1 / math.log(2))
ROUND_MAGIC = F(1.5 * 2**23)  # x + ROUND_MAGIC holds the integer nearest to x in its lowest bits
P1, P2, P3, P4, P5, P6, P7 = [F(math.log(2) ** i / math.factorial(i)) for i in range(1, 8)]

FASTMATH = {"contract", "reassoc", "nsz"}  # sums in any order, so that they are vectorized
inlined = njit(error_model="numpy", inline="always", fastmath=FASTMATH)  # before compilation: E becomes a constant
strict = njit(cache=True, error_model="numpy", forceinline=True, fastmath={"contract"})


# ---------------------------------------------------------------------- random numbers and sampling


@inlined
def random_bits(state: Any) -> Any:
    """Return 64 random bits of splitmix64."""
    state[0] += GAMMA
    z = state[0]
    z = (z ^ (z >> U(30))) * MIX_1
    z = (z ^ (z >> U(27))) * MIX_2
    return z ^ (z >> U(31))


@inlined
def random_below(bits: Any, n: Any) -> Any:
    """Return a number from 0 to n - 1, made of the upper 32 bits."""
    return ((bits >> U(32)) * n) >> U(32)


@inlined
def subsample(ids: Any, start: Any, stop: Any, keep: Any, words: Any, state: Any) -> Any:
    """Sub-sample the words of a sentence by (5) into `words`; returns their number."""
    n = U(0)
    for p in range(start, stop):
        w = U(ids[p])
        words[n] = w
        n += U(1) if (random_bits(state) >> U(32)) < keep[w] else U(0)
    return n


@inlined
def sample_window(words: Any, n: Any, i: Any, context: Any, window: Any, state: Any) -> Any:
    """Copy the words around the i-th, up to a uniformly sampled radius of 1 to `window`.

    Returns their number.
    """
    radius = window - random_below(random_bits(state), window)
    m = U(0)
    for j in range(i - radius if i > radius else U(0), min(n, i + radius + U(1))):
        context[m] = words[j]
        m += U(1) if j != i else U(0)
    return m


@inlined
def sample_negatives(target: Any, first: Any, last: Any, prob: Any, alias: Any, state: Any) -> None:
    """Sample negatives from (4) by the alias method (Walker 1977)."""
    for k in range(first, last):
        bits = random_bits(state)
        w = random_below(bits, U(len(prob)))
        other = U(alias[w])  # read unconditionally: a branch would be mispredicted half the time
        target[k] = w if (bits & U(0xFFFFFFFF)) < prob[w] else other


# ---------------------------------------------------------------------- sigmoid


@strict
def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + e^-x) to 1e-7: with -x = (k + r) ln 2, e^-x = 2^k 2^r, and 2^r is a Taylor series."""
    z = min(max(x, F(-30)), F(30)) * -LOG2_E
    shifted = z + ROUND_MAGIC
    r = z - (shifted - ROUND_MAGIC)
    power = F(1) + r * (P1 + r * (P2 + r * (P3 + r * (P4 + r * (P5 + r * (P6 + r * P7))))))
    exponent_bits = (F(shifted).view(np.int32) + np.int32(127)) << np.int32(23)
    return F(1) / (F(1) + np.int32(exponent_bits).view(np.float32) * power)


# ---------------------------------------------------------------------- blocks of rows


@inlined
def round_up_to_six(n: Any) -> Any:
    """Round n up to a multiple of six."""
    return (n + U(5)) // SIX * SIX


@inlined
def gather_rows(u: Any, target: Any, positives: Any, first: Any, K: Any, Y: Any, dY: Any, E: Any) -> None:
    """Gather the output rows of u in Y, and set their gradients dY to zero."""
    for k in range(K):
        if k < positives or k >= first:
            w, f = target[k], k * E  # outside the loop, so that it is vectorized
            for d in range(E):
                Y[f + d] = u[w, d]
                dY[f + d] = F(0)


@inlined
def scatter_add_rows(u: Any, target: Any, positives: Any, first: Any, K: Any, dY: Any, E: Any) -> None:
    """Add the gradients dY to the output rows of u."""
    for k in range(K):
        if k < positives or k >= first:
            w, f = target[k], k * E
            for d in range(E):
                u[w, d] += dY[f + d]


@inlined
def dot_products(
    v: Any, context: Any, j: Any, Y: Any, left: Any, right: Any, first: Any, last: Any, G: Any, E: Any
) -> None:
    """Compute scores of four inputs with outputs left … right - 1 and first … last - 1, by threes."""
    c0, c1, c2, c3 = context[j], context[j + U(1)], context[j + U(2)], context[j + U(3)]
    for step in range(U(0), right - left + last - first, U(3)):
        k = left + step if step < right - left else first + step - (right - left)
        f = k * E
        a0 = a1 = a2 = b0 = b1 = b2 = e0 = e1 = e2 = g0 = g1 = g2 = F(0)
        for d in range(E):
            x0, x1, x2, x3 = v[c0, d], v[c1, d], v[c2, d], v[c3, d]
            y0, y1, y2 = Y[f + d], Y[f + E + d], Y[f + E + E + d]
            a0, b0, e0, g0 = a0 + x0 * y0, b0 + x1 * y0, e0 + x2 * y0, g0 + x3 * y0
            a1, b1, e1, g1 = a1 + x0 * y1, b1 + x1 * y1, e1 + x2 * y1, g1 + x3 * y1
            a2, b2, e2, g2 = a2 + x0 * y2, b2 + x1 * y2, e2 + x2 * y2, g2 + x3 * y2
        g = FOUR * k
        G[g], G[g + U(1)], G[g + U(2)], G[g + U(3)] = a0, b0, e0, g0
        G[g + U(4)], G[g + U(5)], G[g + U(6)], G[g + U(7)] = a1, b1, e1, g1
        G[g + U(8)], G[g + U(9)], G[g + U(10)], G[g + U(11)] = a2, b2, e2, g2


@inlined
def update_rows(
    v: Any, context: Any, j: Any, count: Any, Y: Any, dY: Any, left: Any, right: Any, first: Any, last: Any, G: Any,
    E: Any,
) -> None:  # fmt: skip
    """Update (7): dY += G^T v for outputs, then v += G Y for inputs, by twos, both from old values."""
    c0, c1, c2, c3 = context[j], context[j + U(1)], context[j + U(2)], context[j + U(3)]
    for step in range(U(0), right - left + last - first, U(3)):
        k = left + step if step < right - left else first + step - (right - left)
        f, g = k * E, FOUR * k
        a0, a1, a2, a3 = G[g], G[g + U(1)], G[g + U(2)], G[g + U(3)]
        b0, b1, b2, b3 = G[g + U(4)], G[g + U(5)], G[g + U(6)], G[g + U(7)]
        e0, e1, e2, e3 = G[g + U(8)], G[g + U(9)], G[g + U(10)], G[g + U(11)]
        for d in range(E):
            x0, x1, x2, x3 = v[c0, d], v[c1, d], v[c2, d], v[c3, d]
            dY[f + d] += a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3
            dY[f + E + d] += b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3
            dY[f + E + E + d] += e0 * x0 + e1 * x1 + e2 * x2 + e3 * x3
    for a in range(U(0), count, U(2)):
        c, e, alone = context[j + a], context[j + a + U(1)], a + U(1) == count
        for step in range(U(0), right - left + last - first, SIX):
            k = left + step if step < right - left else first + step - (right - left)
            f, g = k * E, FOUR * k + a
            a0, a1, a2, a3, a4, a5 = G[g], G[g + U(4)], G[g + U(8)], G[g + U(12)], G[g + U(16)], G[g + U(20)]
            if alone:
                for d in range(E):
                    y = a0 * Y[f + d] + a1 * Y[f + E + d] + a2 * Y[f + U(2) * E + d]
                    v[c, d] += y + a3 * Y[f + U(3) * E + d] + a4 * Y[f + U(4) * E + d] + a5 * Y[f + U(5) * E + d]
                continue
            b0, b1, b2, b3, b4, b5 = G[g + U(1)], G[g + U(5)], G[g + U(9)], G[g + U(13)], G[g + U(17)], G[g + U(21)]
            for d in range(E):
                y0, y1, y2 = Y[f + d], Y[f + E + d], Y[f + U(2) * E + d]
                y3, y4, y5 = Y[f + U(3) * E + d], Y[f + U(4) * E + d], Y[f + U(5) * E + d]
                v[c, d] += a0 * y0 + a1 * y1 + a2 * y2 + a3 * y3 + a4 * y4 + a5 * y5
                v[e, d] += b0 * y0 + b1 * y1 + b2 * y2 + b3 * y3 + b4 * y4 + b5 * y5
