r"""Scan of the minimal gated units (minGRU), from projections to states in one pass (Feng et al. 2024).

    g_t = \sigma(z_t)                                                       gate                                    (1)
    h_t = g_t n_t + (1 - g_t) h_{t-1}                                       new state                               (2)
    \lambda_t = dL/dh_t + (1 - g_{t+1}) \lambda_{t+1}                       backward pass                           (3)
    dL/dn_t = g_t \lambda_t,\quad dL/dz_t = g_t (1 - g_t) (n_t - h_{t-1}) \lambda_t      gradients                  (4)
    e^x = 2^k e^r,\quad x = k \ln 2 + r,\quad |r| \le \ln 2 / 2             exponential, Taylor series to r^7       (5)

    Symbols:
        z, n         projections: gate before the sigmoid, candidate state
        h            states
        \lambda      gradient of the loss with respect to a state, through all later ones
        B, T, H      batch, time, hidden units

z and n are the two halves of one tensor, B × T × 2H, as one matrix product computes them. The kernel stores only z, n
and h, and recomputes the gate in the backward pass: reading a number from memory takes longer than the polynomial of
(5), which is computed for 16 numbers at once. 1 - g is computed as e^{-z} g, without cancellation.
"""

from typing import Any

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from engram.core.errors import EngramError
from engram.core.threads import parallel_njit
from engram.nn.scan import (
    FUSED,
    Array,
    count_blocks,
    empty_like,
    get_block,
    previous_states,
    reverse_scan,
    run_kernel,
    scan,
)

f32, i32 = np.float32, np.int32
LIMIT = f32(87)  # e^87 and e^-87 are normal float32 numbers
LOG2_E = f32(1 / np.log(2))
LN2_HIGH, LN2_LOW = f32(0.693359375), f32(np.log(2) - 0.693359375)  # k * LN2_HIGH is exact
ROUNDER = f32(1.5 * 2**23)  # x + ROUNDER holds the integer nearest to x in its lowest bits
C = tuple(f32(1 / divisor) for divisor in (1, 1, 2, 6, 24, 120, 720, 5040))


def gated_scan(zn_BT2H: Tensor, h0_BH: Tensor) -> Tensor:
    """All states h of (2), B × T × H, from h0."""
    H = zn_BT2H.shape[-1] // 2
    if zn_BT2H.ndim != 3 or h0_BH.shape != (len(zn_BT2H), H) or zn_BT2H.shape[-1] != 2 * H:
        shapes = f"{tuple(zn_BT2H.shape)} and {tuple(h0_BH.shape)}"
        raise EngramError(f"A gated scan takes projections of B × T × 2H and a state of B × H, not {shapes}.")
    if zn_BT2H.is_cpu and zn_BT2H.dtype == h0_BH.dtype == torch.float32 and not torch.compiler.is_compiling():
        return GatedScan.apply(zn_BT2H, h0_BH)
    z_BTH, n_BTH = zn_BT2H.chunk(2, -1)
    return scan(torch.sigmoid(-z_BTH), torch.sigmoid(z_BTH) * n_BTH, h0_BH.to(zn_BT2H.dtype))  # (1), (2)


class GatedScan(torch.autograd.Function):
    """Kernels of (1), (2) and of (3), (4); a scan of torch where gradients are to be differentiated again."""

    @staticmethod
    def forward(ctx: Any, zn_BT2H: Tensor, h0_BH: Tensor) -> Tensor:  # type: ignore[override]
        h_BTH = zn_BT2H.new_empty(*zn_BT2H.shape[:2], h0_BH.shape[1])
        run_kernel(_forward_serial, _forward_parallel, zn_BT2H, h0_BH, h_BTH)
        ctx.save_for_backward(zn_BT2H, h0_BH, h_BTH)
        return h_BTH

    @staticmethod
    def backward(ctx: Any, dh_BTH: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        zn_BT2H, h0_BH, h_BTH = ctx.saved_tensors
        if torch.is_grad_enabled():
            return reference_backward(zn_BT2H, dh_BTH, h0_BH, h_BTH)
        dzn_BT2H, dh0_BH = empty_like(zn_BT2H), empty_like(h0_BH).zero_()
        run_kernel(_backward_serial, _backward_parallel, zn_BT2H, dh_BTH, h0_BH, h_BTH, dzn_BT2H, dh0_BH)
        return dzn_BT2H, dh0_BH


def reference_backward(zn_BT2H: Tensor, dh_BTH: Tensor, h0_BH: Tensor, h_BTH: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients (3), (4) of z and n in one tensor, and of h0, by operations of torch."""
    z_BTH, n_BTH = zn_BT2H.chunk(2, -1)
    g_BTH, keep_BTH = torch.sigmoid(z_BTH), torch.sigmoid(-z_BTH)  # (1)
    lambda_BTH = reverse_scan(keep_BTH, dh_BTH)  # (3)
    dn_BTH = g_BTH * lambda_BTH  # (4)
    dz_BTH = g_BTH * keep_BTH * (n_BTH - previous_states(h0_BH, h_BTH)) * lambda_BTH
    return torch.cat([dz_BTH, dn_BTH], -1), (keep_BTH * lambda_BTH)[:, :1].sum(1)


@njit(cache=True, error_model="numpy", forceinline=True, fastmath=FUSED)
def _gate(z: Any) -> Any:
    """Gate g, and 1 - g."""
    z = -LIMIT if z < -LIMIT else z  # in this order NaN stays NaN
    z = LIMIT if z > LIMIT else z
    e = _exp(-z)
    g = f32(1) / (f32(1) + e)  # (1)
    return g, e * g


@njit(cache=True, error_model="numpy", forceinline=True, fastmath=FUSED)
def _exp(x: Any) -> Any:
    """e^x for |x| <= 87, to 2 units in the last place."""
    shifted = x * LOG2_E + ROUNDER
    k = shifted - ROUNDER
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    series = C[0] + r * (C[1] + r * (C[2] + r * (C[3] + r * (C[4] + r * (C[5] + r * (C[6] + r * C[7]))))))
    exponent_bits = (f32(shifted).view(i32) + i32(127)) << i32(23)
    return i32(exponent_bits).view(f32) * series  # (5)


@njit(cache=True, error_model="numpy", nogil=True, fastmath=FUSED)
def _forward(zn_T2H: Array, h0_H: Array, h_TH: Array, block: slice, n_block: slice) -> None:
    previous = h0_H[block]
    for t in range(len(h_TH)):
        z, n, h = zn_T2H[t, block], zn_T2H[t, n_block], h_TH[t, block]
        for i in range(len(h)):
            g, keep = _gate(z[i])
            h[i] = g * n[i] + keep * previous[i]  # (2)
        previous = h


@njit(cache=True, error_model="numpy", nogil=True, fastmath=FUSED)
def _backward(
    zn_T2H: Array, dh_TH: Array, h0_H: Array, h_TH: Array, dzn_T2H: Array, dh0_H: Array, block: slice, n_block: slice
) -> None:
    carried = dh0_H[block]  # (1 - g_{t+1}) lambda_{t+1}; in the end the gradient of h_0
    for t in range(len(h_TH) - 1, -1, -1):
        previous = h_TH[t - 1, block] if t else h0_H[block]
        z, n, dh, dz, dn = zn_T2H[t, block], zn_T2H[t, n_block], dh_TH[t, block], dzn_T2H[t, block], dzn_T2H[t, n_block]
        for i in range(len(dh)):
            g, keep = _gate(z[i])
            lambda_t = dh[i] + carried[i]  # (3)
            carried[i] = keep * lambda_t
            dn[i] = g * lambda_t  # (4)
            dz[i] = g * (n[i] - previous[i]) * carried[i]


@njit(cache=True, error_model="numpy", inline="always")
def _candidate_block(block: slice, H: int) -> Any:
    """Columns of n that belong to a block of z."""
    return slice(block.start + H, block.stop + H)


@njit(cache=True, error_model="numpy", nogil=True)
def _forward_serial(zn_BT2H: Array, h0_BH: Array, h_BTH: Array) -> None:
    B, H = h0_BH.shape
    for p in range(count_blocks(B, H)):
        b, block = get_block(p, H)
        _forward(zn_BT2H[b], h0_BH[b], h_BTH[b], block, _candidate_block(block, H))


@parallel_njit(error_model="numpy", nogil=True)
def _forward_parallel(zn_BT2H: Array, h0_BH: Array, h_BTH: Array) -> None:
    B, H = h0_BH.shape
    for p in prange(count_blocks(B, H)):
        b, block = get_block(p, H)
        _forward(zn_BT2H[b], h0_BH[b], h_BTH[b], block, _candidate_block(block, H))


@njit(cache=True, error_model="numpy", nogil=True)
def _backward_serial(zn_BT2H: Array, dh_BTH: Array, h0_BH: Array, h_BTH: Array, dzn_BT2H: Array, dh0_BH: Array) -> None:
    B, H = h0_BH.shape
    for p in range(count_blocks(B, H)):
        b, block = get_block(p, H)
        _backward(zn_BT2H[b], dh_BTH[b], h0_BH[b], h_BTH[b], dzn_BT2H[b], dh0_BH[b], block, _candidate_block(block, H))


@parallel_njit(error_model="numpy", nogil=True)
def _backward_parallel(
    zn_BT2H: Array, dh_BTH: Array, h0_BH: Array, h_BTH: Array, dzn_BT2H: Array, dh0_BH: Array
) -> None:
    B, H = h0_BH.shape
    for p in prange(count_blocks(B, H)):
        b, block = get_block(p, H)
        _backward(zn_BT2H[b], dh_BTH[b], h0_BH[b], h_BTH[b], dzn_BT2H[b], dh0_BH[b], block, _candidate_block(block, H))
