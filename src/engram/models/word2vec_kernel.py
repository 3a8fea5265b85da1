"""The fast form of word2vec with negative sampling: numba, compiled for each width at its first use, cached on disk.

Inputs are taken four at a time against outputs in threes and sixes, so that a row that has been loaded is used for
several products; places that are left over get a gradient of zero. Random numbers are splitmix64's, begun from a seed
that the learner draws, so one worker gives the same bits every time. Several workers write into the same tables without
waiting for each other (Niu et al. 2011, «Hogwild!»).

V words, E width, K outputs, whose rows are gathered in Y. Numbers in brackets are the equations of `word2vec`.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

U = np.uint64
F = np.float32

LONGEST = 1000
"""words of a sentence that are taken at once"""
LONGEST_SHARED = 64
"""the same where a sentence shares its negatives, and all its words are at hand"""
MEASURED = U(64)
"""one window in so many is measured: a logarithm costs as much as a product of two rows"""

FOUR, SIX = U(4), U(6)
GOLDEN, MIX_1, MIX_2 = U(0x9E3779B97F4A7C15), U(0xBF58476D1CE4E5B9), U(0x94D049BB133111EB)
LOG2_E = F(1 / math.log(2))
ROUNDER = F(1.5 * 2**23)  # x + ROUNDER holds the integer nearest to x in its lowest bits
P1, P2, P3, P4, P5, P6, P7 = [F(math.log(2) ** i / math.factorial(i)) for i in range(1, 8)]

SUMS = {"contract", "reassoc", "nsz"}  # the order of a sum is the compiler's: without that no sum fills a register
inlined = njit(error_model="numpy", inline="always", fastmath=SUMS)  # before compiling, so that E is a number in it
in_order = njit(cache=True, error_model="numpy", forceinline=True, fastmath={"contract"})

Train = Callable[..., tuple[float, int]]


@functools.cache
def kernel(width: int) -> Train:
    """The function that trains tables whose rows are `width` wide, a number that its loops are unrolled for.

    It learns from sentences, the i-th of which ends before ends[i], and returns the loss of some pairs, and how many.
    `keep`, `chance` and `alias` are those of `word2vec.Chances`. Where a sentence shares its negatives, each of them
    counts for `weight` of the negatives of each pair.
    """
    E = width

    @njit(cache=True, error_model="numpy", nogil=True, fastmath=SUMS)
    def train(
        ids: Any, ends: Any, v: Any, u: Any, keep: Any, chance: Any, alias: Any,
        window: int, negative: int, weight: float, rate: float, seed: int, cbow: bool, shared: bool,
    ) -> tuple[float, int]:  # fmt: skip
        if cbow:
            return _cbow(ids, ends, v, u, keep, chance, alias, U(window), U(negative), F(rate), U(seed), U(E))
        return _skip_gram(
            ids, ends, v, u, keep, chance, alias, U(window), U(negative), F(weight), F(rate), U(seed), shared, U(E)
        )

    return train


# ---------------------------------------------------------------------- the two directions


@inlined
def _skip_gram(
    ids: Any, ends: Any, v: Any, u: Any, keep: Any, chance: Any, alias: Any,
    window: Any, negative: Any, weight: Any, rate: Any, seed: Any, shared: bool, E: Any,
) -> Any:  # fmt: skip
    """Every word around predicts the one in the middle, out of it and negatives.

    A block is a window, or a sentence that shares its negatives: the inputs are the words around or all words, the
    outputs the word in the middle or all words, and after them, from `first` on, negatives.
    """
    longest = U(LONGEST_SHARED if shared else LONGEST)
    rows = _sixes(longest) + _sixes(negative + U(1)) + SIX
    kept, reach = np.zeros(rows, np.uint64), np.zeros(rows, np.uint64)
    context, target = np.zeros(rows, np.uint64), np.zeros(rows, np.uint64)
    outputs = rows if shared else _sixes(negative + U(1))
    Y, dY = np.zeros(outputs * E, np.float32), np.zeros(outputs * E, np.float32)
    G, state = np.zeros(FOUR * outputs, np.float32), np.array([seed])
    start, seen, loss, measured = U(0), U(0), 0.0, U(0)
    for s in range(U(len(ends))):
        while start < U(ends[s]):
            stop = min(U(ends[s]), start + longest)
            n = _subsample(ids, start, stop, keep, kept, state)
            start = stop
            for i in range(min(n, U(1)) if shared else n):
                if shared:
                    m, words, first = n, n, _sixes(n) + SIX
                    for j in range(n):
                        context[j], reach[j] = kept[j], window - _below(_random(state), window)
                        target[j] = kept[j]
                else:
                    m, words, first = _window(kept, n, i, context, window, state), U(1), U(1)
                    target[0] = kept[i]
                K = first + negative
                measure = seen % MEASURED < words
                seen += words
                _noise(target, first, K, chance, alias, state)
                _fetch(u, target, words, first, K, Y, dY, E)
                for j in range(U(0), m, FOUR):
                    count = min(FOUR, m - j)
                    left, right = _around(j, n, reach, window) if shared else (U(0), K)
                    right = left + _sixes(right - left)
                    last = first + _sixes(negative) if shared else first
                    _scores(v, context, j, Y, left, right, first, last, G, E)
                    if shared:
                        more, pairs = _errors_in_sentence(
                            G, j, count, n, reach, left, right, first, K, last, weight, rate, measure
                        )
                    else:
                        more, pairs = _errors_in_window(G, count, target, K, right, rate, measure)
                    loss, measured = loss + more, measured + pairs
                    _learn(v, context, j, count, Y, dY, left, right, first, last, G, E)
                _give_back(u, target, words, first, K, dY, E)
    return loss, np.int64(measured)


@inlined
def _cbow(
    ids: Any, ends: Any, v: Any, u: Any, keep: Any, chance: Any, alias: Any,
    window: Any, negative: Any, rate: Any, seed: Any, E: Any,
) -> Any:  # fmt: skip
    """The mean of the words around, h, predicts the one in the middle, out of it and negatives."""
    K = negative + U(1)
    kept, context = np.zeros(LONGEST + 1, np.uint64), np.zeros(U(2) * window + U(1), np.uint64)
    target, G, h, dh = np.zeros(K, np.uint64), np.zeros(FOUR * K, F), np.zeros(E, F), np.zeros(E, F)
    state, start, seen, loss, measured = np.array([seed]), U(0), U(0), 0.0, U(0)
    for s in range(U(len(ends))):
        while start < U(ends[s]):
            stop = min(U(ends[s]), start + U(LONGEST))
            n = _subsample(ids, start, stop, keep, kept, state)
            start = stop
            for i in range(n):
                m = _window(kept, n, i, context, window, state)
                if m == U(0):
                    continue
                target[0], share = kept[i], F(1) / F(m)
                _noise(target, U(1), K, chance, alias, state)
                for d in range(E):
                    h[d], dh[d] = F(0), F(0)
                for j in range(m):
                    c = context[j]
                    for d in range(E):
                        h[d] += share * v[c, d]  # (2)
                for k in range(K):
                    w, product = target[k], F(0)
                    for d in range(E):
                        product += h[d] * u[w, d]
                    G[FOUR * k] = product
                if seen % MEASURED == U(0):
                    loss, measured = loss + _loss(G, U(0), target, K), measured + U(1)
                seen += U(1)
                for k in range(K):
                    w, own = target[k], F(1) if k == U(0) else F(0)
                    g = rate * (own - _sigma(G[FOUR * k])) if k == U(0) or w != target[0] else F(0)  # (6)
                    G[FOUR * k] = g
                    for d in range(E):
                        dh[d] += g * u[w, d]
                for k in range(K):
                    w, g = target[k], G[FOUR * k]
                    for d in range(E):
                        u[w, d] += g * h[d]  # (7)
                for j in range(m):
                    c = context[j]
                    for d in range(E):
                        v[c, d] += share * dh[d]  # (7)
    return loss, np.int64(measured)


# ---------------------------------------------------------------------- chance


@inlined
def _random(state: Any) -> Any:
    """64 random bits."""
    state[0] += GOLDEN
    z = state[0]
    z = (z ^ (z >> U(30))) * MIX_1
    z = (z ^ (z >> U(27))) * MIX_2
    return z ^ (z >> U(31))


@inlined
def _below(bits: Any, n: Any) -> Any:
    """A number from 0 to n - 1 out of the upper 32 bits."""
    return ((bits >> U(32)) * n) >> U(32)


@inlined
def _subsample(ids: Any, start: Any, stop: Any, keep: Any, kept: Any, state: Any) -> Any:
    """The words that stay, by (5); returns how many."""
    n = U(0)
    for p in range(start, stop):
        w = U(ids[p])
        kept[n] = w
        n += U(1) if (_random(state) >> U(32)) < keep[w] else U(0)
    return n


@inlined
def _window(kept: Any, n: Any, i: Any, context: Any, window: Any, state: Any) -> Any:
    """The words around the i-th, as far away as 1, 2 … or `window`, each equally often; returns how many."""
    reach = window - _below(_random(state), window)
    m = U(0)
    for j in range(i - reach if i > reach else U(0), min(n, i + reach + U(1))):
        context[m] = kept[j]
        m += U(1) if j != i else U(0)
    return m


@inlined
def _noise(target: Any, first: Any, last: Any, chance: Any, alias: Any, state: Any) -> None:
    """Negatives by (4): a word drawn evenly stands for itself with its chance, else for its alias (Walker 1977)."""
    for k in range(first, last):
        bits = _random(state)
        w = _below(bits, U(len(chance)))
        other = U(alias[w])  # read in any case: a branch would be guessed wrong every other time
        target[k] = w if (bits & U(0xFFFFFFFF)) < chance[w] else other


# ---------------------------------------------------------------------- errors


@inlined
def _errors_in_window(G: Any, count: Any, target: Any, K: Any, last: Any, rate: Any, measure: bool) -> Any:
    """Turn scores into what is learnt from them; a negative that is the word itself teaches nothing."""
    loss = 0.0
    for a in range(count if measure else U(0)):
        loss += _loss(G, a, target, K)
    for i in range(FOUR * last):
        G[i] = -rate * _sigma(G[i])  # (6)
    for a in range(FOUR):
        G[a] += rate
    for k in range(U(1), last):
        if k >= K or target[k] == target[0]:
            for a in range(FOUR):
                G[FOUR * k + a] = F(0)
    for a in range(count, FOUR):
        for k in range(last):
            G[FOUR * k + a] = F(0)
    return loss, count if measure else U(0)


@inlined
def _errors_in_sentence(
    G: Any, j: Any, count: Any, n: Any, reach: Any, left: Any, right: Any, first: Any, K: Any, last: Any,
    weight: Any, rate: Any, measure: bool,
) -> Any:  # fmt: skip
    """The same for words j … j + 3 against the words around and the negatives of the sentence."""
    loss, measured = 0.0, U(0)
    if measure:
        for a in range(count):
            more, pairs = _loss_in_sentence(G, j, a, n, reach, left, right, first, K, weight)
            loss, measured = loss + more, measured + pairs
    for g in range(FOUR * left, FOUR * right):
        G[g] = rate - rate * _sigma(G[g])  # (6)
    for g in range(FOUR * first, FOUR * last):
        G[g] = -rate * weight * _sigma(G[g])  # (6)
    for a in range(FOUR):
        pairs = F(0)
        for i in range(left, right):
            paired = F(1) if a < count and _paired(i, j + a, n, reach) else F(0)
            pairs += paired
            G[FOUR * i + a] *= paired
        for k in range(first, last):
            G[FOUR * k + a] *= pairs if k < K else F(0)
    return loss, measured


@inlined
def _around(j: Any, n: Any, reach: Any, window: Any) -> Any:
    """From where to where there are words that any of j … j + 3 is around."""
    left, right = j - window if j > window else U(0), min(n, j + FOUR + window)
    while left < j and left + reach[left] < j:
        left += U(1)
    while right > j + FOUR and right > j + FOUR + reach[right - U(1)]:
        right -= U(1)
    return left, right


@inlined
def _paired(i: Any, j: Any, n: Any, reach: Any) -> Any:
    """Whether the j-th word of a sentence is around the i-th."""
    apart = i - j if i > j else j - i
    return i < n and apart > U(0) and apart <= reach[i]


@inlined
def _loss_in_sentence(
    G: Any, j: Any, a: Any, n: Any, reach: Any, left: Any, right: Any, first: Any, K: Any, weight: Any
) -> Any:
    """(3) for the a-th of four inputs over all its pairs, and how many they are."""
    loss, others, pairs = 0.0, 0.0, U(0)
    for i in range(left, right):
        if _paired(i, j + a, n, reach):
            loss, pairs = loss + math.log1p(math.exp(-G[FOUR * i + a])), pairs + U(1)
    for k in range(first, K):
        others += math.log1p(math.exp(G[FOUR * k + a]))
    return loss + F(pairs) * weight * others, pairs


@inlined
def _loss(G: Any, a: Any, target: Any, K: Any) -> Any:
    """(3) for the a-th of four inputs; the score of output k is G[4 k + a]."""
    loss = math.log1p(math.exp(-G[a]))
    for k in range(U(1), K):
        loss += math.log1p(math.exp(G[FOUR * k + a])) if target[k] != target[0] else 0.0
    return loss


@in_order
def _sigma(x: Any) -> Any:
    """1 / (1 + e^-x) to 1e-7: with -x = (k + r) ln 2, e^-x is 2^k 2^r, and Taylor's series gives 2^r."""
    z = min(max(x, F(-30)), F(30)) * -LOG2_E
    shifted = z + ROUNDER
    r = z - (shifted - ROUNDER)
    power = F(1) + r * (P1 + r * (P2 + r * (P3 + r * (P4 + r * (P5 + r * (P6 + r * P7))))))
    exponent_bits = (F(shifted).view(np.int32) + np.int32(127)) << np.int32(23)
    return F(1) / (F(1) + np.int32(exponent_bits).view(np.float32) * power)


# ---------------------------------------------------------------------- products of rows


@inlined
def _sixes(n: Any) -> Any:
    """n rounded up to a multiple of six."""
    return (n + U(5)) // SIX * SIX


@inlined
def _fetch(u: Any, target: Any, words: Any, first: Any, K: Any, Y: Any, dY: Any, E: Any) -> None:
    """Copy the rows of the outputs to one place, with room for what they learn."""
    for k in range(K):
        if k < words or k >= first:
            w, f = target[k], k * E  # outside the loop, or no two of its rounds could be one
            for d in range(E):
                Y[f + d] = u[w, d]
                dY[f + d] = F(0)


@inlined
def _give_back(u: Any, target: Any, words: Any, first: Any, K: Any, dY: Any, E: Any) -> None:
    for k in range(K):
        if k < words or k >= first:
            w, f = target[k], k * E
            for d in range(E):
                u[w, d] += dY[f + d]


@inlined
def _scores(v: Any, context: Any, j: Any, Y: Any, left: Any, right: Any, first: Any, last: Any, G: Any, E: Any) -> None:
    """Products of four inputs with the outputs left … right - 1 and first … last - 1, three at a time."""
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
def _learn(
    v: Any, context: Any, j: Any, count: Any, Y: Any, dY: Any, left: Any, right: Any, first: Any, last: Any, G: Any,
    E: Any,
) -> None:  # fmt: skip
    """(7): dY += G' v for the outputs, then v += G Y for the inputs, two at a time: both from the values before."""
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
