r"""Fused decode kernel: all Transformer layers for the next token of one or more texts, on a CPU.

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
        L, N, S      layers, texts, tokens so far
        O, I         outputs and inputs of a matrix

It computes what `Block` computes, but for post-norm and cross-attention. For one token, torch spends more time between
operations than inside them. Matrices are those of the blocks themselves, in 32 bits, or quantized to 8 or 4 with
quantized inputs; each is read once for all texts, in strips of 16 outputs that are divided among the threads.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from engram.core.simd import carray, pointer
from engram.core.threads import parallel_njit
from engram.generation.decode_ops import (
    CODE,
    OUTPUT_NORM,
    PARALLEL,
    QK_NORMS,
    RESIDUALS,
    SANDWICH_NORM,
    activate,
    attend,
    dot,
    norm_and_rotate,
    normalize,
    store_row,
)
from engram.generation.quantization import QuantizedLinear
from engram.generation.quantized_product import (
    BIAS,
    BITS,
    INPUTS,
    OUTPUTS,
    STRIP,
    WEIGHTS,
    empty_inputs,
    multiply_strip,
    quantize_row,
)
from engram.nn.attention import Attention, KVCache
from engram.nn.linear import Linear
from engram.nn.transformer_block import GATED, Block

Array = npt.NDArray[Any]
Q, K, V, OUT, UP, GATE, DOWN = range(7)
"""matrices of a layer"""
ATTENTION_NORM, ATTENTION_OUT_NORM, FF_NORM, FF_OUT_NORM = range(4)
"""norms of a layer"""


class FusedLayers(NamedTuple):
    """Weights and settings of all blocks as the kernel takes them."""

    matrix_LMF: Array
    """where each matrix of each layer lies, and in which form (generation/quantized_product.py)"""
    norm_LK2E: Array
    """gains and biases of the norms"""
    q_gain_LO: Array
    k_gain_LO: Array
    cos_sin_CTR2: Array
    """tables of RoPE, and at last an empty one"""
    table_L: Array
    """the table of each layer"""
    window_L: Array
    heads: int
    groups: int
    head_width: int
    activation: int
    gated: bool
    rms: bool
    qk_norm: int
    residual: int
    scale: float
    softcap: float
    eps: float


class FusedDecoder:
    """Runs the next token of each text through all blocks of a model."""

    def __init__(self, blocks: Sequence[Block], layers: FusedLayers) -> None:
        self.blocks, self.layers = blocks, layers  # the blocks own the weights

    @classmethod
    def of(cls, blocks: nn.ModuleList) -> "FusedDecoder | None":
        """Return the decoder of these blocks; None if the kernel cannot compute one of them."""
        found = [block for block in blocks if isinstance(block, Block) and is_supported(block)]
        return cls(found, prepare_layers(found)) if found and len(found) == len(blocks) else None

    def __call__(self, h_NE: Tensor, cache: list[KVCache], padding_N: Tensor) -> None:
        """Turn h into the residual stream after the last layer; the KV cache grows by one token.

        `padding` is the number of slots at the start of a row of the KV cache that are not its own.
        """
        bits, slot, capacity = cache[0].bits, cache[0].length, cache[0].capacity
        address_L4 = np.array([[one.data_ptr() for one in layer.tensors()] for layer in cache])
        _decode(*self.layers, h_NE.numpy(), address_L4, bits, capacity, slot, padding_N.numpy())
        for layer in cache:
            layer.length += 1


def is_supported(block: Block) -> bool:
    """Whether the kernel can compute a block."""
    attention, ff = block.attention, block.ff
    layers = (attention.q, attention.k, attention.v, attention.o, ff.up, ff.gate or ff.up, ff.down)
    plain = all(type(layer) in (Linear, QuantizedLinear) and is_readable(layer) for layer in layers)
    return plain and block.residual in RESIDUALS and not hasattr(block, "cross")


def is_readable(layer: nn.Module) -> bool:
    """Whether the kernel can read the weights of a layer where they lie."""
    if isinstance(layer, QuantizedLinear):
        return layer.packed.is_cpu
    return all(value.is_cpu and value.dtype == torch.float32 and value.is_contiguous() for value in layer.parameters())


def prepare_layers(blocks: Sequence[Block]) -> FusedLayers:
    """Return weights and settings of all blocks."""
    first = blocks[0]
    attention, norm = first.attention, first.attention_norm
    tables = list({id(one): one for block in blocks if (one := block.attention.rotary) is not None}.values())
    cos_sin = [table.cos_sin_TR2.numpy() for table in tables]
    return FusedLayers(
        matrix_LMF=np.array([[describe_matrix(one) for one in matrices(block)] for block in blocks]),
        norm_LK2E=np.array([[norm_arrays(one) for one in norms(block)] for block in blocks]),
        q_gain_LO=np.array([gain(block.attention, "q") for block in blocks]),
        k_gain_LO=np.array([gain(block.attention, "k") for block in blocks]),
        cos_sin_CTR2=np.array(cos_sin) if cos_sin else np.empty((1, 1, 0, 2), np.float32),
        table_L=np.array([tables.index(one) if (one := block.attention.rotary) in tables else -1 for block in blocks]),
        window_L=np.array([block.attention.window for block in blocks]),
        heads=attention.heads, groups=attention.kv_heads, head_width=attention.head_width,
        activation=CODE[first.ff.activation], gated=first.ff.activation in GATED, rms=isinstance(norm, nn.RMSNorm),
        qk_norm=QK_NORMS[attention.qk_norm], residual=RESIDUALS[first.residual],
        scale=attention.scale or attention.head_width**-0.5, softcap=attention.softcap, eps=float(norm.eps or 0.0),
    )  # fmt: skip


def matrices(block: Block) -> list[nn.Module]:
    """Return the linear layers of a block."""
    attention, ff = block.attention, block.ff
    return [attention.q, attention.k, attention.v, attention.o, ff.up, ff.gate or ff.up, ff.down]


def norms(block: Block) -> list[nn.LayerNorm | nn.RMSNorm]:
    """Return the norms of a block; those that it has not are never used."""
    after = block.residual == "sandwich-norm"
    attention_out, ff_out = (
        (block.attention_out_norm, block.ff_out_norm) if after else (block.attention_norm, block.ff_norm)
    )
    return [block.attention_norm, attention_out, block.ff_norm, ff_out]


def describe_matrix(layer: nn.Module) -> Array:
    """Return what the kernel knows of a linear layer."""
    if isinstance(layer, QuantizedLinear):
        return layer.matrix
    assert isinstance(layer, nn.Linear)
    bias = 0 if layer.bias is None else layer.bias.data_ptr()
    return np.array([layer.weight.data_ptr(), 0, bias, 32, 0, 0, *layer.weight.shape])


def norm_arrays(norm: nn.LayerNorm | nn.RMSNorm) -> Array:
    """Return gain and bias of a norm, 2 × E."""
    gain = np.ones(norm.normalized_shape, np.float32) if norm.weight is None else norm.weight.detach().numpy()
    bias = getattr(norm, "bias", None)
    return np.stack([gain, np.zeros_like(gain) if bias is None else bias.detach().numpy()])


def gain(attention: Attention, which: str) -> Array:
    """Return the gain of the QK-norm of queries ("q") or keys ("k"); ones where it has none."""
    norm = getattr(attention, f"{which}_norm", None)
    return np.ones(attention.head_width, np.float32) if norm is None else norm.weight.detach().numpy()


@numba.njit(cache=True)
def _quantize(bits: int, x_NI: Array, p_NI: Array, t_NG: Array, sum_NG: Array) -> None:
    """Quantize the inputs of a matrix, if it is quantized."""
    if bits != 32:
        for n in range(len(x_NI)):
            quantize_row(x_NI[n], p_NI[n], t_NG[n], sum_NG[n])


@numba.njit(cache=True, fastmath=True)
def _strip(matrix: Array, strip: int, x_NI: Array, p_NI: Array, t_NG: Array, sum_NG: Array, y_NO: Array) -> None:
    """Compute 16 outputs of a matrix for all texts, with biases."""
    first, last, inputs = strip * STRIP, min(strip * STRIP + STRIP, matrix[OUTPUTS]), matrix[INPUTS]
    if matrix[BITS] == 32:
        for o in range(first, last):
            W_I = carray(pointer(matrix[WEIGHTS] + 4 * o * inputs), inputs, np.float32)
            for n in range(len(x_NI)):
                y_NO[n, o] = dot(W_I, x_NI[n])
    else:
        multiply_strip(matrix, strip, p_NI, t_NG, sum_NG, y_NO.ctypes.data + 4 * first, 4 * y_NO.shape[1])
    if matrix[BIAS]:
        b_O = carray(pointer(matrix[BIAS]), matrix[OUTPUTS], np.float32)
        for n in range(len(x_NI)):
            for o in range(first, last):
                y_NO[n, o] += b_O[o]


@numba.njit(cache=True)
def _strips(outputs: int) -> int:
    return (outputs + STRIP - 1) // STRIP


@numba.njit(cache=True)
def _room(rows: int, outputs: int) -> Array:
    """Return room for the outputs of whole strips."""
    return np.zeros((rows, _strips(outputs) * STRIP), np.float32)


@numba.njit(cache=True)
def _add(y_NE: Array, h_NE: Array) -> None:
    for n in range(len(h_NE)):
        for e in range(h_NE.shape[1]):
            h_NE[n, e] += y_NE[n, e]


@parallel_njit(fastmath=True)
def _decode(
    matrix_LMF: Array, norm_LK2E: Array, q_gain_LO: Array, k_gain_LO: Array, cos_sin_CTR2: Array, table_L: Array,
    window_L: Array, heads: int, groups: int, size: int, activation: int, gated: bool, rms: bool, qk_norm: int,
    residual: int, scale: float, softcap: float, eps: float, h_NE: Array, cache_L4: Array, cache_bits: int,
    capacity: int, slot: int, padding_N: Array,
) -> None:  # fmt: skip
    """Run one token of each text through all layers; it is the `slot`-th of its row of the KV cache."""
    N, E = h_NE.shape
    ff_width, q_width, kv_width = matrix_LMF[0, UP, OUTPUTS], heads * size, groups * size
    before, after = residual != OUTPUT_NORM, residual in (OUTPUT_NORM, SANDWICH_NORM)
    x_NE, y_NE, z_NE = h_NE.copy(), _room(N, E), _room(N, E)
    q_NO, k_NO, v_NO = _room(N, q_width), _room(N, kv_width), _room(N, kv_width)
    a_NO, hidden_NF, gate_NF = _room(N, q_width)[:, :q_width].copy(), _room(N, ff_width), _room(N, ff_width)
    pE_NI, tE_NG, sumE_NG = empty_inputs(N, E)
    pO_NI, tO_NG, sumO_NG = empty_inputs(N, q_width)
    pF_NI, tF_NG, sumF_NG = empty_inputs(N, ff_width)
    q_strips, kv_strips, e_strips, ff_strips = _strips(q_width), _strips(kv_width), _strips(E), _strips(ff_width)
    for layer in range(len(matrix_LMF)):
        M, norms_K2E, cache, window = matrix_LMF[layer], norm_LK2E[layer], cache_L4[layer], window_L[layer]
        x_NE[:] = h_NE
        if before:
            normalize(h_NE, norms_K2E[ATTENTION_NORM], eps, rms, x_NE)
        _quantize(min(M[Q, BITS], M[K, BITS], M[V, BITS]), x_NE, pE_NI, tE_NG, sumE_NG)
        for strip in numba.prange(q_strips + 2 * kv_strips):  # (1)
            if strip < q_strips:
                _strip(M[Q], strip, x_NE, pE_NI, tE_NG, sumE_NG, q_NO)
            elif strip < q_strips + kv_strips:
                _strip(M[K], strip - q_strips, x_NE, pE_NI, tE_NG, sumE_NG, k_NO)
            else:
                _strip(M[V], strip - q_strips - kv_strips, x_NE, pE_NI, tE_NG, sumE_NG, v_NO)
        for n in range(N):
            cos_sin_R2 = (
                cos_sin_CTR2[table_L[layer], slot - padding_N[n]] if table_L[layer] >= 0 else cos_sin_CTR2[0, 0, :0]
            )
            k_GD = k_NO[n, :kv_width].reshape(groups, size)
            norm_and_rotate(q_NO[n, :q_width].reshape(heads, size), q_gain_LO[layer], qk_norm, eps, cos_sin_R2)
            norm_and_rotate(k_GD, k_gain_LO[layer], qk_norm, eps, cos_sin_R2)
            for g in range(groups):
                row = (n * groups + g) * capacity + slot
                store_row(k_GD[g], cache[0], cache[2], row, cache_bits)
                store_row(v_NO[n, g * size : g * size + size], cache[1], cache[3], row, cache_bits)
        for i in numba.prange(N * heads):
            n, head = i // heads, i % heads
            row = (n * groups + head * groups // heads) * capacity
            first = max(padding_N[n], slot + 1 - window if window else 0)
            q_D, a_D = q_NO[n, head * size : head * size + size], a_NO[n, head * size : head * size + size]
            attend(q_D, cache, cache_bits, row + first, row + slot + 1, scale, softcap, a_D)  # (2)
        _quantize(M[OUT, BITS], a_NO, pO_NI, tO_NG, sumO_NG)
        for strip in numba.prange(e_strips):
            _strip(M[OUT], strip, a_NO, pO_NI, tO_NG, sumO_NG, y_NE)  # (3)
        if after:
            normalize(y_NE[:, :E], norms_K2E[ATTENTION_OUT_NORM], eps, rms, y_NE[:, :E])
        if residual != PARALLEL:
            _add(y_NE, h_NE)

        x_NE[:] = h_NE
        if before:
            normalize(h_NE, norms_K2E[FF_NORM], eps, rms, x_NE)
        _quantize(min(M[UP, BITS], M[GATE, BITS]), x_NE, pE_NI, tE_NG, sumE_NG)
        for strip in numba.prange(ff_strips):
            start, end = strip * STRIP, min(strip * STRIP + STRIP, ff_width)
            _strip(M[UP], strip, x_NE, pE_NI, tE_NG, sumE_NG, hidden_NF)
            if gated:
                _strip(M[GATE], strip, x_NE, pE_NI, tE_NG, sumE_NG, gate_NF)
            for n in range(N):
                activate(activation, gate_NF[n, start:end] if gated else hidden_NF[n, start:end])
                if gated:
                    hidden_NF[n, start:end] *= gate_NF[n, start:end]
        _quantize(M[DOWN, BITS], hidden_NF[:, :ff_width], pF_NI, tF_NG, sumF_NG)
        for strip in numba.prange(e_strips):
            _strip(M[DOWN], strip, hidden_NF, pF_NI, tF_NG, sumF_NG, z_NE)  # (4)
        if after:
            normalize(z_NE[:, :E], norms_K2E[FF_OUT_NORM], eps, rms, z_NE[:, :E])
        _add(z_NE, h_NE)
        if residual == PARALLEL:
            _add(y_NE, h_NE)
