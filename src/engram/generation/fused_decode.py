r"""Fused decode kernel: one Transformer layer for one token in one kernel, for fast generation on a CPU.

    x = \text{norm}(h),\quad q = W_q x + b_q,\quad k = W_k x + b_k,\quad v = W_v x + b_v      projections        (1)
    a = \text{softmax}(q K^T / \sqrt{D}) V                        attention to the KV cache                       (2)
    h \leftarrow h + W_o a + b_o                                   residual stream after attention                 (3)
    h \leftarrow h + W_d f(W_u \text{norm}(h) + b_u) + b_d         and after the feed-forward network              (4)

    Symbols:
        h            residual stream
        W_u, W_d     matrices of the feed-forward network: up, down
        K, V         keys and values of all tokens so far, in the KV cache
        E, F         model width, feed-forward width
        H, G, D      heads, key/value heads, head width
        S            tokens so far
        O, I         outputs and inputs of a matrix

It computes what `Block` computes (pre-norm, with QK-norm and RoPE where configured). For one token, torch spends more
time between operations than inside them. Matrices are those of the block itself, in float32, or in int8 with a scale
for each output.
"""

import math
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from engram.core.threads import parallel_njit
from engram.generation.quantization import Int8Linear
from engram.nn.attention import KVCache
from engram.nn.linear import Linear
from engram.nn.transformer_block import ACTIVATIONS, Block

Array = npt.NDArray[Any]
CODE = {name: code for code, name in enumerate(ACTIVATIONS)}
RELU, RELU2, GELU, GELU_TANH, QUICK_GELU, SWIGLU = (
    CODE[name] for name in ("relu", "relu2", "gelu", "gelu_tanh", "quick_gelu", "swiglu")
)


class Matrix(NamedTuple):
    """y = s (W x) + b."""

    W_OI: Array
    s_O: Array
    b_O: Array


class FusedLayer(NamedTuple):
    """Weights of a block as the kernel takes them."""

    norm_2E: Array
    q: Matrix
    k: Matrix
    v: Matrix
    o: Matrix
    ff_norm_2E: Array
    up: Matrix
    gate: Matrix
    down: Matrix
    cos_sin_TD2: Array
    activation: int
    qk_norm: bool
    eps: float


def prepare_layers(blocks: nn.ModuleList) -> list[FusedLayer] | None:
    """Weights of all blocks for the kernel; None if it cannot compute one of them."""
    layers = [prepare_layer(block) for block in blocks if isinstance(block, Block)]
    return [layer for layer in layers if layer is not None] if None not in layers else None


def prepare_layer(block: Block) -> FusedLayer | None:
    """Weights of a block for the kernel; None if it cannot compute it."""
    attention, ff = block.attention, block.ff
    layers = (attention.q, attention.k, attention.v, attention.o, ff.up, ff.gate or ff.up, ff.down)
    supported = all(type(layer) in (Linear, Int8Linear) and on_cpu(layer) for layer in layers)
    if not supported or not block.pre_norm or hasattr(block, "cross"):
        return None
    q, k, v, o, up, gate, down = (matrix(layer) for layer in layers)
    rotary = attention.rotary
    cos_sin_TD2 = rotary.cos_sin_TD2.numpy() if rotary is not None else np.empty((0, 1, 2), np.float32)
    norms = norm_arrays(block.attention_norm), norm_arrays(block.ff_norm)
    return FusedLayer(
        norms[0], q, k, v, o, norms[1], up, gate, down, cos_sin_TD2, CODE[ff.activation], attention.qk_norm,
        block.attention_norm.eps,
    )  # fmt: skip


def on_cpu(layer: nn.Module) -> bool:
    """Whether all tensors of a layer are on the CPU, in float32 or int8."""
    return all(value.is_cpu and value.dtype in (torch.float32, torch.int8) for value in layer.state_dict().values())


def matrix(layer: nn.Module) -> Matrix:
    """Weights, scales and biases of a linear layer."""
    if isinstance(layer, Int8Linear):
        W_OI, s_O, bias = layer.arrays
    else:
        assert isinstance(layer, nn.Linear)
        W_OI = layer.weight.detach().contiguous().numpy()
        s_O = np.ones(len(W_OI), np.float32)
        bias = None if layer.bias is None else layer.bias.detach().numpy()
    return Matrix(W_OI, s_O, np.zeros(len(W_OI), np.float32) if bias is None else bias)


def norm_arrays(norm: nn.LayerNorm) -> Array:
    """Gain and bias of LayerNorm, 2 × E."""
    if norm.weight is None:
        return np.stack([np.ones(norm.normalized_shape, np.float32), np.zeros(norm.normalized_shape, np.float32)])
    return torch.stack([norm.weight, norm.bias]).detach().numpy()


def decode_token(layers: list[FusedLayer], h_E: Tensor, cache: list[KVCache]) -> None:
    """Run one token through all layers: h becomes the residual stream after the last, and the KV cache grows."""
    stream_E = h_E.numpy()
    for layer, kv in zip(layers, cache, strict=True):
        _decode_layer(layer, stream_E, kv.k_BGSD[0].numpy(), kv.v_BGSD[0].numpy(), kv.length)
        kv.length += 1


@numba.njit(cache=True, fastmath=True)
def _dot(W_I: Array, x_I: Array) -> Any:
    total = np.float32(0.0)
    for i in range(len(x_I)):
        total += np.float32(W_I[i]) * x_I[i]
    return total


@numba.njit(cache=True, fastmath=True)
def _standardize(x: Array, y: Array, eps: float) -> None:
    """Normalize to mean 0 and variance 1."""
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
    _standardize(h_E, x_E, eps)
    for e in range(len(x_E)):
        x_E[e] = x_E[e] * gain_bias_2E[0, e] + gain_bias_2E[1, e]


@numba.njit(cache=True)
def _rope(x_D: Array, cos_sin_D2: Array) -> None:
    for i in range(len(cos_sin_D2)):
        a, b, cos, sin = x_D[2 * i], x_D[2 * i + 1], cos_sin_D2[i, 0], cos_sin_D2[i, 1]
        x_D[2 * i], x_D[2 * i + 1] = a * cos - b * sin, a * sin + b * cos


@numba.njit(cache=True, fastmath=True)
def _attend(q_D: Array, k_SD: Array, v_SD: Array, a_D: Array) -> None:
    """Attention (2) of one head; the largest score is subtracted, so that nothing overflows."""
    p_S, largest, total, root = np.empty(len(k_SD), np.float32), -np.inf, np.float32(0), math.sqrt(len(q_D))
    for s in range(len(k_SD)):
        p_S[s] = _dot(k_SD[s], q_D)
        largest = max(largest, p_S[s])
    a_D[:] = 0
    for s in range(len(k_SD)):
        p = np.float32(math.exp((p_S[s] - largest) / root))
        total += p
        for d in range(len(a_D)):
            a_D[d] += p * v_SD[s, d]
    for d in range(len(a_D)):
        a_D[d] /= total


@numba.njit(cache=True)
def _activate(activation: int, z: float) -> float:
    if activation == RELU:
        return max(z, 0.0)
    if activation == RELU2:
        return max(z, 0.0) ** 2
    if activation == GELU:
        return 0.5 * z * (1 + math.erf(z * math.sqrt(0.5)))
    if activation == GELU_TANH:
        return z / (1 + math.exp(-2 * math.sqrt(2 / math.pi) * (z + 0.044715 * z * z * z)))
    return z / (1 + math.exp(-(1.702 if activation == QUICK_GELU else 1.0) * z))


@parallel_njit(fastmath=True)
def _decode_layer(block: FusedLayer, h_E: Array, k_GSD: Array, v_GSD: Array, position: int) -> None:
    (Q, s_Q, b_Q), (K, s_K, b_K), (V, s_V, b_V), (P, s_P, b_P) = block.q, block.k, block.v, block.o
    (U, s_U, b_U), (C, s_C, b_C), (W, s_W, b_W) = block.up, block.gate, block.down
    norm_2E, ff_norm_2E, cos_sin_TD2, activation, qk_norm, eps = (
        block.norm_2E, block.ff_norm_2E, block.cos_sin_TD2, block.activation, block.qk_norm, block.eps,
    )  # fmt: skip
    q_width, kv_width, size = len(Q), len(K), k_GSD.shape[2]
    heads, groups = q_width // size, len(k_GSD)
    x_E, a_HD, hidden_F = np.empty_like(h_E), np.empty((heads, size), np.float32), np.empty(len(U), np.float32)
    q_HD = np.empty((heads, size), np.float32)

    _norm(h_E, norm_2E, eps, x_E)
    for n in numba.prange(q_width + 2 * kv_width):  # (1)
        if n < q_width:
            q_HD[n // size, n % size] = s_Q[n] * _dot(Q[n], x_E) + b_Q[n]
        elif n < q_width + kv_width:
            i = n - q_width
            k_GSD[i // size, position, i % size] = s_K[i] * _dot(K[i], x_E) + b_K[i]
        else:
            i = n - q_width - kv_width
            v_GSD[i // size, position, i % size] = s_V[i] * _dot(V[i], x_E) + b_V[i]
    for head in range(heads + groups):
        head_D = q_HD[head] if head < heads else k_GSD[head - heads, position]
        if qk_norm:
            _standardize(head_D, head_D, 1e-5)
        if len(cos_sin_TD2):
            _rope(head_D, cos_sin_TD2[position])
    for head in numba.prange(heads):
        group = head * groups // heads
        _attend(q_HD[head], k_GSD[group, : position + 1], v_GSD[group, : position + 1], a_HD[head])  # (2)
    a_O = a_HD.reshape(q_width)
    for e in numba.prange(len(h_E)):
        h_E[e] += s_P[e] * _dot(P[e], a_O) + b_P[e]  # (3)

    _norm(h_E, ff_norm_2E, eps, x_E)
    for n in numba.prange(len(U)):
        z = s_U[n] * _dot(U[n], x_E) + b_U[n]
        if activation == SWIGLU:
            hidden_F[n] = z * _activate(activation, s_C[n] * _dot(C[n], x_E) + b_C[n])
        else:
            hidden_F[n] = _activate(activation, z)
    for e in numba.prange(len(h_E)):
        h_E[e] += s_W[e] * _dot(W[e], hidden_F) + b_W[e]  # (4)
