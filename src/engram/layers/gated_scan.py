"""The scan of the minimal gated units, from projections to states in one pass (note 003 §18.4; Feng et al. 2024).

B batch, T time, H hidden; z and n stand side by side, as one product makes them: B × T × 2H

    g_t = sigmoid(z_t)                                      gate                                            (1)
    h_t = g_t n_t + (1 - g_t) h_(t-1)                       new state from the proposal n and the old one   (2)
    lambda_t = dL/dh_t + (1 - g_(t+1)) lambda_(t+1)                                                         (3)
    dL/dn_t = g_t lambda_t,   dL/dz_t = g_t (1 - g_t) (n_t - h_(t-1)) lambda_t                              (4)

The kernel keeps nothing but z, n and h, and computes the gate again on its way back: to read a number from memory takes
longer than the polynomial for the exponential (5), which is done for 16 numbers at once. 1 - g is e^-z g, which is
exact where a subtraction would leave nothing.

    e^x = 2^k e^r,   x = k ln 2 + r,   |r| <= ln 2 / 2,   e^r by Taylor's series to r^7                     (5)
"""

from typing import Any

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from engram.core.errors import EngramError
from engram.core.threads import parallel_njit
from engram.layers.scan import FUSED, Array, new, piece, pieces, previous, run, scan, scan_back

f32, i32 = np.float32, np.int32
MOST = f32(87)  # e^87 and e^-87 are still ordinary float32 numbers
LOG2_E = f32(1 / np.log(2))
LN2_HIGH, LN2_LOW = f32(0.693359375), f32(np.log(2) - 0.693359375)  # k * LN2_HIGH is exact
ROUNDER = f32(1.5 * 2**23)  # x + ROUNDER holds the integer nearest to x in its lowest bits
C = tuple(f32(1 / divisor) for divisor in (1, 1, 2, 6, 24, 120, 720, 5040))


def gated_scan(zn_BT2H: Tensor, h0_BH: Tensor) -> Tensor:
    """All h of (2), B × T × H, beginning at h0."""
    H = zn_BT2H.shape[-1] // 2
    if zn_BT2H.ndim != 3 or h0_BH.shape != (len(zn_BT2H), H) or zn_BT2H.shape[-1] != 2 * H:
        shapes = f"{tuple(zn_BT2H.shape)} and {tuple(h0_BH.shape)}"
        raise EngramError(f"A gated scan takes projections of B × T × 2H and a state of B × H, not {shapes}.")
    if zn_BT2H.is_cpu and zn_BT2H.dtype == h0_BH.dtype == torch.float32 and not torch.compiler.is_compiling():
        return GatedScan.apply(zn_BT2H, h0_BH)
    z_BTH, n_BTH = zn_BT2H.chunk(2, -1)
    return scan(torch.sigmoid(-z_BTH), torch.sigmoid(z_BTH) * n_BTH, h0_BH.to(zn_BT2H.dtype))  # (1), (2)


class GatedScan(torch.autograd.Function):
    """(1) and (2) in one kernel, (3) and (4) in another, or in a scan where the slopes are to be differentiated."""

    @staticmethod
    def forward(ctx: Any, zn_BT2H: Tensor, h0_BH: Tensor) -> Tensor:  # type: ignore[override]
        h_BTH = zn_BT2H.new_empty(*zn_BT2H.shape[:2], h0_BH.shape[1])
        run(_forward_serial, _forward_parallel, zn_BT2H, h0_BH, h_BTH)
        ctx.save_for_backward(zn_BT2H, h0_BH, h_BTH)
        return h_BTH

    @staticmethod
    def backward(ctx: Any, dh_BTH: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        zn_BT2H, h0_BH, h_BTH = ctx.saved_tensors
        if torch.is_grad_enabled():
            return clear_backward(zn_BT2H, dh_BTH, h0_BH, h_BTH)
        dzn_BT2H, dh0_BH = new(zn_BT2H), new(h0_BH).zero_()
        run(_backward_serial, _backward_parallel, zn_BT2H, dh_BTH, h0_BH, h_BTH, dzn_BT2H, dh0_BH)
        return dzn_BT2H, dh0_BH


def clear_backward(zn_BT2H: Tensor, dh_BTH: Tensor, h0_BH: Tensor, h_BTH: Tensor) -> tuple[Tensor, Tensor]:
    """The slopes of z and n, side by side, and of h0, as the equations say them."""
    z_BTH, n_BTH = zn_BT2H.chunk(2, -1)
    g_BTH, kept_BTH = torch.sigmoid(z_BTH), torch.sigmoid(-z_BTH)  # (1)
    back_BTH = scan_back(kept_BTH, dh_BTH)  # (3)
    dn_BTH = g_BTH * back_BTH  # (4)
    dz_BTH = g_BTH * kept_BTH * (n_BTH - previous(h0_BH, h_BTH)) * back_BTH
    return torch.cat([dz_BTH, dn_BTH], -1), (kept_BTH * back_BTH)[:, :1].sum(1)


@njit(cache=True, error_model="numpy", forceinline=True, fastmath=FUSED)
def _gate(z: Any) -> Any:
    """g and 1 - g."""
    z = -MOST if z < -MOST else z  # in this order what is not a number stays so
    z = MOST if z > MOST else z
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
def _forward(zn_T2H: Array, h0_H: Array, h_TH: Array, here: slice, there: slice) -> None:
    before = h0_H[here]
    for t in range(len(h_TH)):
        z, n, h = zn_T2H[t, here], zn_T2H[t, there], h_TH[t, here]
        for i in range(len(h)):
            g, kept = _gate(z[i])
            h[i] = g * n[i] + kept * before[i]  # (2)
        before = h


@njit(cache=True, error_model="numpy", nogil=True, fastmath=FUSED)
def _backward(
    zn_T2H: Array, dh_TH: Array, h0_H: Array, h_TH: Array, dzn_T2H: Array, dh0_H: Array, here: slice, there: slice
) -> None:
    later = dh0_H[here]  # (1 - g_(t+1)) lambda_(t+1), which in the end is what h_0 gets
    for t in range(len(h_TH) - 1, -1, -1):
        before = h_TH[t - 1, here] if t else h0_H[here]
        z, n, dh, dz, dn = zn_T2H[t, here], zn_T2H[t, there], dh_TH[t, here], dzn_T2H[t, here], dzn_T2H[t, there]
        for i in range(len(dh)):
            g, kept = _gate(z[i])
            back = dh[i] + later[i]  # (3)
            later[i] = kept * back
            dn[i] = g * back  # (4)
            dz[i] = g * (n[i] - before[i]) * later[i]


@njit(cache=True, error_model="numpy", inline="always")
def _beside(here: slice, H: int) -> Any:
    """Where n stands whose z stands here."""
    return slice(here.start + H, here.stop + H)


@njit(cache=True, error_model="numpy", nogil=True)
def _forward_serial(zn_BT2H: Array, h0_BH: Array, h_BTH: Array) -> None:
    B, H = h0_BH.shape
    for p in range(pieces(B, H)):
        b, here = piece(p, H)
        _forward(zn_BT2H[b], h0_BH[b], h_BTH[b], here, _beside(here, H))


@parallel_njit(error_model="numpy", nogil=True)
def _forward_parallel(zn_BT2H: Array, h0_BH: Array, h_BTH: Array) -> None:
    B, H = h0_BH.shape
    for p in prange(pieces(B, H)):
        b, here = piece(p, H)
        _forward(zn_BT2H[b], h0_BH[b], h_BTH[b], here, _beside(here, H))


@njit(cache=True, error_model="numpy", nogil=True)
def _backward_serial(zn_BT2H: Array, dh_BTH: Array, h0_BH: Array, h_BTH: Array, dzn_BT2H: Array, dh0_BH: Array) -> None:
    B, H = h0_BH.shape
    for p in range(pieces(B, H)):
        b, here = piece(p, H)
        _backward(zn_BT2H[b], dh_BTH[b], h0_BH[b], h_BTH[b], dzn_BT2H[b], dh0_BH[b], here, _beside(here, H))


@parallel_njit(error_model="numpy", nogil=True)
def _backward_parallel(
    zn_BT2H: Array, dh_BTH: Array, h0_BH: Array, h_BTH: Array, dzn_BT2H: Array, dh0_BH: Array
) -> None:
    B, H = h0_BH.shape
    for p in prange(pieces(B, H)):
        b, here = piece(p, H)
        _backward(zn_BT2H[b], dh_BTH[b], h0_BH[b], h_BTH[b], dzn_BT2H[b], dh0_BH[b], here, _beside(here, H))
