"""Compiled kernel of word2vec with negative sampling.

Numba, compiled for each width at its first use, cached on disk.

Inputs are processed in blocks of 4 and outputs in blocks of 3 or 6, so that each loaded row serves several products;
padding gets a gradient of zero. Random numbers are splitmix64's, with a seed from the
learner, so one worker is reproducible bit for bit. Several workers write to the same tables without locks (Hogwild!,
Niu et al. 2011).

V: words, E: width, K: outputs, gathered as rows of Y. Numbers in parentheses: equations of `word2vec.model`.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from engram.sequences.word2vec.kernel_ops import (
    FASTMATH,
    FOUR,
    SIX,
    F,
    U,
    dot_products,
    gather_rows,
    inlined,
    random_below,
    random_bits,
    round_up_to_six,
    sample_negatives,
    sample_window,
    scatter_add_rows,
    sigmoid,
    subsample,
    update_rows,
)

MAX_SENTENCE = 1000
"""longest sentence in words; longer ones are cut"""
MAX_SHARED = 64
"""the same if a sentence shares its negatives"""
LOSS_EVERY = U(64)
"""the loss is computed for one window in this many: a logarithm costs as much as a product of two rows"""

Train = Callable[..., tuple[float, int]]


@functools.cache
def compile_kernel(width: int) -> Train:
    """Compile the training function for tables whose rows are `width` wide, for which loops are unrolled.

    It trains on sentences, the i-th of which ends before ends[i], and returns the loss of some pairs and their number.
    `keep`, `prob` and `alias` are those of `SamplingTables`. If a sentence shares its negatives, each of them counts
    for `weight` of the negatives of each pair.
    """
    E = width

    @njit(cache=True, error_model="numpy", nogil=True, fastmath=FASTMATH)
    def train(
        ids: Any, ends: Any, v: Any, u: Any, keep: Any, prob: Any, alias: Any,
        window: int, negative: int, weight: float, lr: float, seed: int, cbow: bool, shared: bool,
    ) -> tuple[float, int]:  # fmt: skip
        if cbow:
            return _cbow(ids, ends, v, u, keep, prob, alias, U(window), U(negative), F(lr), U(seed), U(E))
        return _skip_gram(
            ids, ends, v, u, keep, prob, alias, U(window), U(negative), F(weight), F(lr), U(seed), shared, U(E)
        )

    return train


# ---------------------------------------------------------------------- skip-gram and CBOW


@inlined
def _skip_gram(
    ids: Any, ends: Any, v: Any, u: Any, keep: Any, prob: Any, alias: Any,
    window: Any, negative: Any, weight: Any, lr: Any, seed: Any, shared: bool, E: Any,
) -> Any:  # fmt: skip
    """Skip-gram: each context word predicts the center word against negatives.

    Returns loss and pairs measured. A block is a window, or a sentence that shares its negatives. Its inputs are the
    context words or all words, its outputs the center word or all (`positives`) and, from `first` on, the negatives.
    """
    longest = U(MAX_SHARED if shared else MAX_SENTENCE)
    rows = round_up_to_six(longest) + round_up_to_six(negative + U(1)) + SIX
    kept, radius = np.zeros(rows, np.uint64), np.zeros(rows, np.uint64)
    context, target = np.zeros(rows, np.uint64), np.zeros(rows, np.uint64)
    outputs = rows if shared else round_up_to_six(negative + U(1))
    Y, dY = np.zeros(outputs * E, np.float32), np.zeros(outputs * E, np.float32)
    G, state = np.zeros(FOUR * outputs, np.float32), np.array([seed])
    start, windows, loss, loss_pairs = U(0), U(0), 0.0, U(0)
    for s in range(U(len(ends))):
        while start < U(ends[s]):
            stop = min(U(ends[s]), start + longest)
            n, start = subsample(ids, start, stop, keep, kept, state), stop
            for i in range(min(n, U(1)) if shared else n):
                if shared:
                    m, positives, first = n, n, round_up_to_six(n) + SIX
                    for j in range(n):
                        context[j], radius[j] = kept[j], window - random_below(random_bits(state), window)
                        target[j] = kept[j]
                else:
                    m, positives, first = sample_window(kept, n, i, context, window, state), U(1), U(1)
                    target[0] = kept[i]
                K = first + negative
                with_loss, windows = windows % LOSS_EVERY < positives, windows + positives
                sample_negatives(target, first, K, prob, alias, state)
                gather_rows(u, target, positives, first, K, Y, dY, E)
                for j in range(U(0), m, FOUR):
                    count = min(FOUR, m - j)
                    left, right = _neighbor_range(j, n, radius, window) if shared else (U(0), K)
                    right = left + round_up_to_six(right - left)
                    last = first + round_up_to_six(negative) if shared else first
                    dot_products(v, context, j, Y, left, right, first, last, G, E)
                    if shared:
                        partial, pairs = _sentence_gradients(
                            G, j, count, n, radius, left, right, first, K, last, weight, lr, with_loss
                        )
                    else:
                        partial, pairs = _window_gradients(G, count, target, K, right, lr, with_loss)
                    loss, loss_pairs = loss + partial, loss_pairs + pairs
                    update_rows(v, context, j, count, Y, dY, left, right, first, last, G, E)
                scatter_add_rows(u, target, positives, first, K, dY, E)
    return loss, np.int64(loss_pairs)


@inlined
def _cbow(
    ids: Any, ends: Any, v: Any, u: Any, keep: Any, prob: Any, alias: Any,
    window: Any, negative: Any, lr: Any, seed: Any, E: Any,
) -> Any:  # fmt: skip
    """CBOW: the mean of the context words, h, predicts the center word against negatives."""
    K = negative + U(1)
    kept, context = np.zeros(MAX_SENTENCE + 1, np.uint64), np.zeros(U(2) * window + U(1), np.uint64)
    target, G, h, dh = np.zeros(K, np.uint64), np.zeros(FOUR * K, F), np.zeros(E, F), np.zeros(E, F)
    state, start, windows, loss, loss_pairs = np.array([seed]), U(0), U(0), 0.0, U(0)
    for s in range(U(len(ends))):
        while start < U(ends[s]):
            stop = min(U(ends[s]), start + U(MAX_SENTENCE))
            n = subsample(ids, start, stop, keep, kept, state)
            start = stop
            for i in range(n):
                m = sample_window(kept, n, i, context, window, state)
                if m == U(0):
                    continue
                target[0], inverse_m = kept[i], F(1) / F(m)
                sample_negatives(target, U(1), K, prob, alias, state)
                for d in range(E):
                    h[d], dh[d] = F(0), F(0)
                for j in range(m):
                    c = context[j]
                    for d in range(E):
                        h[d] += inverse_m * v[c, d]  # (2)
                for k in range(K):
                    w, product = target[k], F(0)
                    for d in range(E):
                        product += h[d] * u[w, d]
                    G[FOUR * k] = product
                if windows % LOSS_EVERY == U(0):
                    loss, loss_pairs = loss + _window_loss(G, U(0), target, K), loss_pairs + U(1)
                windows += U(1)
                for k in range(K):
                    w, label = target[k], F(1) if k == U(0) else F(0)
                    g = lr * (label - sigmoid(G[FOUR * k])) if k == U(0) or w != target[0] else F(0)  # (6)
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
                        v[c, d] += inverse_m * dh[d]  # (7)
    return loss, np.int64(loss_pairs)


# ---------------------------------------------------------------------- gradients and loss


@inlined
def _window_gradients(G: Any, count: Any, target: Any, K: Any, last: Any, lr: Any, with_loss: bool) -> Any:
    """Replace scores by gradients (6) times lr; a negative that is the center word itself gets none."""
    loss = 0.0
    for a in range(count if with_loss else U(0)):
        loss += _window_loss(G, a, target, K)
    for i in range(FOUR * last):
        G[i] = -lr * sigmoid(G[i])  # (6)
    for a in range(FOUR):
        G[a] += lr
    for k in range(U(1), last):
        if k >= K or target[k] == target[0]:
            for a in range(FOUR):
                G[FOUR * k + a] = F(0)
    for a in range(count, FOUR):
        for k in range(last):
            G[FOUR * k + a] = F(0)
    return loss, count if with_loss else U(0)


@inlined
def _sentence_gradients(
    G: Any, j: Any, count: Any, n: Any, radius: Any, left: Any, right: Any, first: Any, K: Any, last: Any,
    weight: Any, lr: Any, with_loss: bool,
) -> Any:  # fmt: skip
    """The same for words j to j + 3 against their neighbors and the negatives of the sentence."""
    loss, loss_pairs = 0.0, U(0)
    if with_loss:
        for a in range(count):
            partial, pairs = _sentence_loss(G, j, a, n, radius, left, right, first, K, weight)
            loss, loss_pairs = loss + partial, loss_pairs + pairs
    for g in range(FOUR * left, FOUR * right):
        G[g] = lr - lr * sigmoid(G[g])  # (6)
    for g in range(FOUR * first, FOUR * last):
        G[g] = -lr * weight * sigmoid(G[g])  # (6)
    for a in range(FOUR):
        pairs = F(0)
        for i in range(left, right):
            paired = F(1) if a < count and _is_pair(i, j + a, n, radius) else F(0)
            pairs += paired
            G[FOUR * i + a] *= paired
        for k in range(first, last):
            G[FOUR * k + a] *= pairs if k < K else F(0)
    return loss, loss_pairs


@inlined
def _neighbor_range(j: Any, n: Any, radius: Any, window: Any) -> Any:
    """Return the range of words whose windows contain any of the words j to j + 3."""
    left, right = j - window if j > window else U(0), min(n, j + FOUR + window)
    while left < j and left + radius[left] < j:
        left += U(1)
    while right > j + FOUR and right > j + FOUR + radius[right - U(1)]:
        right -= U(1)
    return left, right


@inlined
def _is_pair(i: Any, j: Any, n: Any, radius: Any) -> Any:
    """Whether the j-th word of a sentence is in the window of the i-th."""
    distance = i - j if i > j else j - i
    return i < n and distance > U(0) and distance <= radius[i]


@inlined
def _sentence_loss(
    G: Any, j: Any, a: Any, n: Any, radius: Any, left: Any, right: Any, first: Any, K: Any, weight: Any
) -> Any:
    """Return (3) for the a-th of four inputs, summed over its pairs, and the number of pairs."""
    loss, others, pairs = 0.0, 0.0, U(0)
    for i in range(left, right):
        if _is_pair(i, j + a, n, radius):
            loss, pairs = loss + math.log1p(math.exp(-G[FOUR * i + a])), pairs + U(1)
    for k in range(first, K):
        others += math.log1p(math.exp(G[FOUR * k + a]))
    return loss + F(pairs) * weight * others, pairs


@inlined
def _window_loss(G: Any, a: Any, target: Any, K: Any) -> Any:
    """Return (3) for the a-th of four inputs; the score of output k is G[4 k + a]."""
    loss = math.log1p(math.exp(-G[a]))
    for k in range(U(1), K):
        loss += math.log1p(math.exp(G[FOUR * k + a])) if target[k] != target[0] else 0.0
    return loss
