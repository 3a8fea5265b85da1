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

It computes what `Block` computes, but for post-norm and cross-attention. For one token, torch spends more time between
operations than inside them. Matrices are those of the block itself, in float32, or in int8 with a scale per output.
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
from engram.nn.attention import KVCache, QKNorm
from engram.nn.linear import Linear
from engram.nn.transformer_block import ACTIVATIONS, GATED, Block, Residual

Array = npt.NDArray[Any]
NAMES = list(ACTIVATIONS)
CODE = {name: NAMES.index({"geglu": "gelu", "geglu_tanh": "gelu_tanh"}.get(name, name)) for name in NAMES}
RELU, RELU2, GELU, GELU_TANH, QUICK_GELU = (CODE[name] for name in ("relu", "relu2", "gelu", "gelu_tanh", "quick_gelu"))
QK_NORMS: dict[QKNorm, int] = {"none": 0, "layer-no-affine": 1, "rms": 2, "rms-no-affine": 2, "rms-width": 3}
LAYER_BY_HEAD, RMS_BY_HEAD, RMS_BY_WIDTH = 1, 2, 3
RESIDUALS: dict[Residual, int] = {"pre-norm": 0, "output-norm": 1, "sandwich-norm": 2, "parallel": 3}
PRE_NORM, OUTPUT_NORM, SANDWICH_NORM, PARALLEL = RESIDUALS.values()


class Matrix(NamedTuple):
    """y = s (W x) + b."""

    W_OI: Array
    s_O: Array
    b_O: Array


class FusedLayer(NamedTuple):
    """Weights and settings of a block as the kernel takes them."""

    norm_2E: Array
    """gain and bias of the norm before attention, or after it with output-norm"""
    out_norm_2E: Array
    """of the norm after attention, with sandwich-norm"""
    q: Matrix
    k: Matrix
    v: Matrix
    o: Matrix
    q_gain: Array
    k_gain: Array
    ff_norm_2E: Array
    ff_out_norm_2E: Array
    up: Matrix
    gate: Matrix
    down: Matrix
    cos_sin_TR2: Array
    activation: int
    gated: bool
    rms: bool
    qk_norm: int
    residual: int
    window: int
    scale: float
    softcap: float
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
    if not supported or block.residual not in RESIDUALS or hasattr(block, "cross"):
        return None
    q, k, v, o, up, gate, down = (matrix(layer) for layer in layers)
    rotary = attention.rotary
    norm, ff_norm = norm_arrays(block.attention_norm), norm_arrays(block.ff_norm)
    sandwich = block.residual == "sandwich-norm"
    q_gain, k_gain = (
        getattr(attention, name).weight.detach().numpy()
        if hasattr(attention, name)
        else np.ones(layer.out_features if attention.qk_norm == "rms-width" else attention.head_width, np.float32)
        for name, layer in (("q_norm", attention.q), ("k_norm", attention.k))
    )
    return FusedLayer(
        norm, norm_arrays(block.attention_out_norm) if sandwich else norm, q, k, v, o, q_gain, k_gain,
        ff_norm, norm_arrays(block.ff_out_norm) if sandwich else ff_norm, up, gate, down,
        rotary.cos_sin_TR2.numpy() if rotary is not None else np.empty((0, 1, 2), np.float32),
        CODE[ff.activation], ff.activation in GATED, isinstance(block.attention_norm, nn.RMSNorm),
        QK_NORMS[attention.qk_norm], RESIDUALS[block.residual], attention.window,
        attention.scale or attention.head_width**-0.5, attention.softcap, float(block.attention_norm.eps or 0.0),
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


def norm_arrays(norm: nn.LayerNorm | nn.RMSNorm) -> Array:
    """Gain and bias of a norm, 2 × E."""
    gain = np.ones(norm.normalized_shape, np.float32) if norm.weight is None else norm.weight.detach().numpy()
    bias = getattr(norm, "bias", None)
    return np.stack([gain, np.zeros_like(gain) if bias is None else bias.detach().numpy()])


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
def _standardize(x: Array, y: Array, eps: float, rms: bool) -> None:
    """Normalize to mean 0 and variance 1, or with `rms` to root mean square 1."""
    mean, square = np.float32(0.0), np.float32(0.0)
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
def _norm(h_E: Array, gain_bias_2E: Array, eps: float, rms: bool, x_E: Array) -> None:
    _standardize(h_E, x_E, eps, rms)
    for e in range(len(x_E)):
        x_E[e] = x_E[e] * gain_bias_2E[0, e] + gain_bias_2E[1, e]


@numba.njit(cache=True, fastmath=True)
def _rms_norm(x: Array, gain: Array, eps: float) -> None:
    _standardize(x, x, eps, True)
    for i in range(len(x)):
        x[i] *= gain[i]


@numba.njit(cache=True)
def _rope(x_D: Array, cos_sin_D2: Array) -> None:
    for i in range(len(cos_sin_D2)):
        a, b, cos, sin = x_D[2 * i], x_D[2 * i + 1], cos_sin_D2[i, 0], cos_sin_D2[i, 1]
        x_D[2 * i], x_D[2 * i + 1] = a * cos - b * sin, a * sin + b * cos


@numba.njit(cache=True, fastmath=True)
def _attend(q_D: Array, k_SD: Array, v_SD: Array, scale: float, softcap: float, a_D: Array) -> None:
    """Attention (2) of one head; the largest score is subtracted, so that nothing overflows."""
    p_S, largest, total = np.empty(len(k_SD), np.float32), -np.inf, np.float32(0)
    for s in range(len(k_SD)):
        p_S[s] = _dot(k_SD[s], q_D) * scale
        if softcap > 0:
            p_S[s] = softcap * math.tanh(p_S[s] / softcap)
        largest = max(largest, p_S[s])
    a_D[:] = 0
    for s in range(len(k_SD)):
        p = np.float32(math.exp(p_S[s] - largest))
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
    activation, gated, rms, residual, eps = block.activation, block.gated, block.rms, block.residual, block.eps
    q_width, kv_width, size = len(Q), len(K), k_GSD.shape[2]
    heads, groups, scale, softcap = q_width // size, len(k_GSD), block.scale, block.softcap
    before, after = residual != OUTPUT_NORM, residual in (OUTPUT_NORM, SANDWICH_NORM)
    a_HD, hidden_F = np.empty((heads, size), np.float32), np.empty(len(U), np.float32)
    q_HD, x_E, y_E, z_E = np.empty((heads, size), np.float32), h_E.copy(), np.empty_like(h_E), np.empty_like(h_E)
    if before:
        _norm(h_E, block.norm_2E, eps, rms, x_E)
    for n in numba.prange(q_width + 2 * kv_width):  # (1)
        if n < q_width:
            q_HD[n // size, n % size] = s_Q[n] * _dot(Q[n], x_E) + b_Q[n]
        elif n < q_width + kv_width:
            i = n - q_width
            k_GSD[i // size, position, i % size] = s_K[i] * _dot(K[i], x_E) + b_K[i]
        else:
            i = n - q_width - kv_width
            v_GSD[i // size, position, i % size] = s_V[i] * _dot(V[i], x_E) + b_V[i]
    _norm_and_rotate(block, q_HD, k_GSD, position)
    first = max(0, position + 1 - block.window) if block.window else 0
    for head in numba.prange(heads):
        group = head * groups // heads
        k_SD, v_SD = k_GSD[group, first : position + 1], v_GSD[group, first : position + 1]
        _attend(q_HD[head], k_SD, v_SD, scale, softcap, a_HD[head])  # (2)
    a_O = a_HD.reshape(q_width)
    for e in numba.prange(len(h_E)):
        y_E[e] = s_P[e] * _dot(P[e], a_O) + b_P[e]  # (3)
    if after:
        _norm(y_E, block.out_norm_2E, eps, rms, y_E)
    if residual != PARALLEL:
        for e in range(len(h_E)):
            h_E[e] += y_E[e]

    x_E[:] = h_E
    if before:
        _norm(h_E, block.ff_norm_2E, eps, rms, x_E)
    for n in numba.prange(len(U)):
        z = s_U[n] * _dot(U[n], x_E) + b_U[n]
        if gated:
            hidden_F[n] = z * _activate(activation, s_C[n] * _dot(C[n], x_E) + b_C[n])
        else:
            hidden_F[n] = _activate(activation, z)
    for e in numba.prange(len(h_E)):
        z_E[e] = s_W[e] * _dot(W[e], hidden_F) + b_W[e]  # (4)
    if after:
        _norm(z_E, block.ff_out_norm_2E, eps, rms, z_E)
    for e in range(len(h_E)):
        h_E[e] += z_E[e] + (y_E[e] if residual == PARALLEL else np.float32(0))


@numba.njit(cache=True, fastmath=True)
def _norm_and_rotate(block: FusedLayer, q_HD: Array, k_GSD: Array, position: int) -> None:
    """QK-norm and RoPE of the queries and of the key of this token, where configured."""
    heads, groups, size = len(q_HD), len(k_GSD), k_GSD.shape[2]
    if block.qk_norm == RMS_BY_WIDTH:
        _rms_norm(q_HD.reshape(heads * size), block.q_gain, block.eps)
        k_K = k_GSD[:, position].copy().reshape(groups * size)
        _rms_norm(k_K, block.k_gain, block.eps)
        k_GSD[:, position] = k_K.reshape(groups, size)
    for head in range(heads + groups):
        head_D = q_HD[head] if head < heads else k_GSD[head - heads, position]
        if block.qk_norm == LAYER_BY_HEAD:
            _standardize(head_D, head_D, 1e-5, False)
        elif block.qk_norm == RMS_BY_HEAD:
            _rms_norm(head_D, block.q_gain if head < heads else block.k_gain, block.eps)
        if len(block.cos_sin_TR2):
            _rope(head_D, block.cos_sin_TR2[position])
