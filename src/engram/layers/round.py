"""One round of a Transformer for one token, in one kernel: how text is made quickly on a CPU.

E width of the stream, H heads, G key/value heads, D width of a head, S tokens so far, F width inside, O I a matrix

    x = norm(h),   q = W_q x + b_q,   k = W_k x + b_k,   v = W_v x + b_v        normed and turned where asked for  (1)
    a = softmax(q K' / sqrt(D)) V                                               K and V remember k and v           (2)
    h <- h + W_o a + b_o                                                                                           (3)
    x = norm(h),   h <- h + W_down f(W_up x + b_up) + b_down                    SwiGLU: silu(W_gate x) W_up x      (4)

It computes what `Block` computes (pre-norm), and nothing in between is for Python: with one token, torch spends more
time from one operation to the next than inside them. Matrices are those of the block itself, in 32 bits, or in 8 with
a scale for each output.
"""

import math
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from engram.core.threads import parallel_njit
from engram.layers.attention import KeyValues
from engram.layers.block import FUNCTIONS, Block
from engram.layers.int8 import Int8Linear
from engram.layers.linear import Linear

Array = npt.NDArray[Any]
CODE = {name: code for code, name in enumerate(FUNCTIONS)}
RELU, RELU2, GELU, GELU_TANH, QUICK_GELU, SWIGLU = (
    CODE[name] for name in ("relu", "relu2", "gelu", "gelu_tanh", "quick_gelu", "swiglu")
)


class Matrix(NamedTuple):
    """y = s (W x) + b."""

    W_OI: Array
    s_O: Array
    b_O: Array


class Round(NamedTuple):
    """A block as the kernel wants it."""

    norm_2E: Array
    q: Matrix
    k: Matrix
    v: Matrix
    o: Matrix
    ff_norm_2E: Array
    up: Matrix
    gate: Matrix
    down: Matrix
    turn_TD2: Array
    function: int
    qk_norm: bool
    eps: float


def rounds(blocks: nn.ModuleList) -> list[Round] | None:
    """All blocks for the kernel; none if there is one that it cannot compute."""
    made = [prepared(block) for block in blocks if isinstance(block, Block)]
    return [one for one in made if one is not None] if None not in made else None


def prepared(block: Block) -> Round | None:
    attention, ff = block.attention, block.ff
    layers = (attention.q, attention.k, attention.v, attention.o, ff.up, ff.gate or ff.up, ff.down)
    plain = all(type(layer) in (Linear, Int8Linear) and on_cpu(layer) for layer in layers)
    if not plain or not block.pre or hasattr(block, "cross"):
        return None
    q, k, v, o, up, gate, down = (matrix(layer) for layer in layers)
    rotary = attention.rotary
    turn_TD2 = rotary.turn_TD2.numpy() if rotary is not None else np.empty((0, 1, 2), np.float32)
    norms = norm_arrays(block.attention_norm), norm_arrays(block.ff_norm)
    return Round(
        norms[0], q, k, v, o, norms[1], up, gate, down, turn_TD2, CODE[ff.function], attention.qk_norm,
        block.attention_norm.eps,
    )  # fmt: skip


def on_cpu(layer: nn.Module) -> bool:
    return all(value.is_cpu and value.dtype in (torch.float32, torch.int8) for value in layer.state_dict().values())


def matrix(layer: nn.Module) -> Matrix:
    if isinstance(layer, Int8Linear):
        W_OI, s_O, bias = layer.arrays
    else:
        assert isinstance(layer, nn.Linear)
        W_OI = layer.weight.detach().contiguous().numpy()
        s_O = np.ones(len(W_OI), np.float32)
        bias = None if layer.bias is None else layer.bias.detach().numpy()
    return Matrix(W_OI, s_O, np.zeros(len(W_OI), np.float32) if bias is None else bias)


def norm_arrays(norm: nn.LayerNorm) -> Array:
    """Gain and bias."""
    if norm.weight is None:
        return np.stack([np.ones(norm.normalized_shape, np.float32), np.zeros(norm.normalized_shape, np.float32)])
    return torch.stack([norm.weight, norm.bias]).detach().numpy()


def pass_through(made: list[Round], h_E: Tensor, cache: list[KeyValues]) -> None:
    """Let one token go through all blocks: h becomes the stream after the last, and the cache remembers the token."""
    stream_E = h_E.numpy()
    for one, layer in zip(made, cache, strict=True):
        _round(one, stream_E, layer.k_BGSD[0].numpy(), layer.v_BGSD[0].numpy(), layer.length)
        layer.length += 1


@numba.njit(cache=True, fastmath=True)
def _dot(W_I: Array, x_I: Array) -> Any:
    total = np.float32(0.0)
    for i in range(len(x_I)):
        total += np.float32(W_I[i]) * x_I[i]
    return total


@numba.njit(cache=True, fastmath=True)
def _standardise(x: Array, y: Array, eps: float) -> None:
    """Mean 0 and variance 1."""
    mean, square = np.float32(0.0), np.float32(0.0)
    for i in range(len(x)):
        mean += x[i]
    mean /= np.float32(len(x))
    for i in range(len(x)):
        square += (x[i] - mean) * (x[i] - mean)
    scale = np.float32(1 / math.sqrt(square / len(x) + eps))
    for i in range(len(x)):
        y[i] = (x[i] - mean) * scale


@numba.njit(cache=True, fastmath=True)
def _norm(h_E: Array, gain_bias_2E: Array, eps: float, x_E: Array) -> None:
    _standardise(h_E, x_E, eps)
    for e in range(len(x_E)):
        x_E[e] = x_E[e] * gain_bias_2E[0, e] + gain_bias_2E[1, e]


@numba.njit(cache=True)
def _turn(x_D: Array, turn_D2: Array) -> None:
    for i in range(len(turn_D2)):
        a, b, cos, sin = x_D[2 * i], x_D[2 * i + 1], turn_D2[i, 0], turn_D2[i, 1]
        x_D[2 * i], x_D[2 * i + 1] = a * cos - b * sin, a * sin + b * cos


@numba.njit(cache=True, fastmath=True)
def _attend(q_D: Array, k_SD: Array, v_SD: Array, a_D: Array) -> None:
    """(2) for one head; the largest score is taken off, so that nothing overflows."""
    p_S, most, total, root = np.empty(len(k_SD), np.float32), -np.inf, np.float32(0), math.sqrt(len(q_D))
    for s in range(len(k_SD)):
        p_S[s] = _dot(k_SD[s], q_D)
        most = max(most, p_S[s])
    a_D[:] = 0
    for s in range(len(k_SD)):
        p = np.float32(math.exp((p_S[s] - most) / root))
        total += p
        for d in range(len(a_D)):
            a_D[d] += p * v_SD[s, d]
    for d in range(len(a_D)):
        a_D[d] /= total


@numba.njit(cache=True)
def _f(function: int, z: float) -> float:
    if function == RELU:
        return max(z, 0.0)
    if function == RELU2:
        return max(z, 0.0) ** 2
    if function == GELU:
        return 0.5 * z * (1 + math.erf(z * math.sqrt(0.5)))
    if function == GELU_TANH:
        return z / (1 + math.exp(-2 * math.sqrt(2 / math.pi) * (z + 0.044715 * z * z * z)))
    return z / (1 + math.exp(-(1.702 if function == QUICK_GELU else 1.0) * z))


@parallel_njit(fastmath=True)
def _round(block: Round, h_E: Array, k_GSD: Array, v_GSD: Array, place: int) -> None:
    (Q, s_Q, b_Q), (K, s_K, b_K), (V, s_V, b_V), (P, s_P, b_P) = block.q, block.k, block.v, block.o
    (U, s_U, b_U), (C, s_C, b_C), (W, s_W, b_W) = block.up, block.gate, block.down
    norm_2E, ff_norm_2E, turn_TD2, function, qk_norm, eps = (
        block.norm_2E, block.ff_norm_2E, block.turn_TD2, block.function, block.qk_norm, block.eps,
    )  # fmt: skip
    wide, narrow, size = len(Q), len(K), k_GSD.shape[2]
    heads, groups = wide // size, len(k_GSD)
    x_E, a_HD, inside_F = np.empty_like(h_E), np.empty((heads, size), np.float32), np.empty(len(U), np.float32)
    q_HD = np.empty((heads, size), np.float32)

    _norm(h_E, norm_2E, eps, x_E)
    for n in numba.prange(wide + 2 * narrow):  # (1)
        if n < wide:
            q_HD[n // size, n % size] = s_Q[n] * _dot(Q[n], x_E) + b_Q[n]
        elif n < wide + narrow:
            i = n - wide
            k_GSD[i // size, place, i % size] = s_K[i] * _dot(K[i], x_E) + b_K[i]
        else:
            i = n - wide - narrow
            v_GSD[i // size, place, i % size] = s_V[i] * _dot(V[i], x_E) + b_V[i]
    for head in range(heads + groups):
        one_D = q_HD[head] if head < heads else k_GSD[head - heads, place]
        if qk_norm:
            _standardise(one_D, one_D, 1e-5)
        if len(turn_TD2):
            _turn(one_D, turn_TD2[place])
    for head in numba.prange(heads):
        group = head * groups // heads
        _attend(q_HD[head], k_GSD[group, : place + 1], v_GSD[group, : place + 1], a_HD[head])  # (2)
    a_O = a_HD.reshape(wide)
    for e in numba.prange(len(h_E)):
        h_E[e] += s_P[e] * _dot(P[e], a_O) + b_P[e]  # (3)

    _norm(h_E, ff_norm_2E, eps, x_E)
    for n in numba.prange(len(U)):
        z = s_U[n] * _dot(U[n], x_E) + b_U[n]
        if function == SWIGLU:
            inside_F[n] = z * _f(function, s_C[n] * _dot(C[n], x_E) + b_C[n])
        else:
            inside_F[n] = _f(function, z)
    for e in numba.prange(len(h_E)):
        h_E[e] += s_W[e] * _dot(W[e], inside_F) + b_W[e]  # (4)
