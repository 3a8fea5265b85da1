"""Linear recurrences over whole sequences (note 003 §18.4; Blelloch 1990; Martin and Cundy 2018).

B batch, T time, H channels

    h_t = a_t h_(t-1) + b_t                                                      every channel by itself            (1)
    (a_2, b_2) after (a_1, b_1) = (a_2 a_1, a_2 b_1 + b_2)                       two steps are one of the same kind (2)
    lambda_t = dL/dh_t + a_(t+1) lambda_(t+1)                                    the same recurrence, backward      (3)
    dL/db_t = lambda_t,   dL/da_t = lambda_t h_(t-1),   dL/dh_0 = a_1 lambda_1                                      (4)

Because of (2) steps can be taken in pairs, the pairs in pairs, and so on: about 2 log2 T rounds instead of T. That is
for devices with thousands of cores. A CPU has few, and one pass over memory is the least there can be: its kernel takes
the channels side by side through time, and (3) and (4) back. There are no logarithms, so b may have any sign and a gate
a may be 0 or 1. Near 1, where a product of gates would be rounded to the same side again and again, pairs also carry

    1 - a_2 a_1 = (1 - a_1) + a_1 (1 - a_2)                                      what is lost, with all its digits  (5)
"""

from typing import Any

import numpy.typing as npt
import torch
from numba import njit, prange
from torch import Tensor

from engram.core.errors import EngramError
from engram.core.threads import parallel_njit

Array = npt.NDArray[Any]
TOGETHER = 256
"""channels that a core takes through time at once"""
ENOUGH = 1 << 17
"""numbers from which a second core is worth waking"""
FUSED = {"contract"}  # a product and a sum may be one instruction


def scan(a_BTH: Tensor, b_BTH: Tensor, h0_BH: Tensor | None = None) -> Tensor:
    """All h of (1), B × T × H, beginning at h0, or at zero. The quickest form for where the tensors are."""
    h0_BH = begin(a_BTH, b_BTH, h0_BH)
    if b_BTH.dtype in (torch.float16, torch.bfloat16):  # too coarse to add up long sequences in
        return scan(a_BTH.float(), b_BTH.float(), h0_BH.float()).to(b_BTH.dtype)
    if b_BTH.is_cpu and b_BTH.dtype in (torch.float32, torch.float64) and not torch.compiler.is_compiling():
        return Scan.apply(a_BTH, b_BTH, h0_BH)
    return scan_parallel(a_BTH, b_BTH, h0_BH)


def scan_loop(a_BTH: Tensor, b_BTH: Tensor, h0_BH: Tensor | None = None) -> Tensor:
    """(1) step by step."""
    h_BH, states = begin(a_BTH, b_BTH, h0_BH), []
    for a_BH, b_BH in zip(a_BTH.unbind(1), b_BTH.unbind(1), strict=True):
        h_BH = a_BH * h_BH + b_BH  # (1)
        states.append(h_BH)
    return torch.stack(states, 1) if states else b_BTH


def scan_parallel(a_BTH: Tensor, b_BTH: Tensor, h0_BH: Tensor | None = None) -> Tensor:
    """The same in about 2 log2 T rounds, on any device and as often differentiable as one likes; for |a| up to 1."""
    h0_BH = begin(a_BTH, b_BTH, h0_BH)
    b_BTH = torch.cat([a_BTH[:, :1] * h0_BH[:, None] + b_BTH[:, :1], b_BTH[:, 1:]], 1)
    return in_pairs(a_BTH, 1 - a_BTH, b_BTH)


def in_pairs(a_BTH: Tensor, lost_BTH: Tensor, b_BTH: Tensor) -> Tensor:
    """(1) from zero: the states after every second step from a scan of pairs, and from these the others."""
    T = b_BTH.shape[1]
    if T < 2:
        return b_BTH
    (a_1, a_2, a_3), (lost_1, lost_2, _), (b_1, b_2, b_3) = map(by_pairs, (a_BTH, lost_BTH, b_BTH))
    lost = lost_1 + a_1 * lost_2  # (5)
    a = torch.where(lost < 0.5, 1 - lost, a_2 * a_1)
    h_2 = in_pairs(a, lost, a_2 * b_1 + b_2)  # (2)
    h_3 = a_3 * h_2[:, : (T - 1) // 2] + b_3  # (1)
    h_1 = torch.cat([b_BTH[:, :1], h_3], 1)
    both = torch.stack([h_1[:, : T // 2], h_2], 2).flatten(1, 2)
    return torch.cat([both, h_1[:, T // 2 :]], 1) if T % 2 else both


def by_pairs(x_BTH: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The first of each pair of steps, the second, and what comes after the second."""
    return x_BTH[:, : x_BTH.shape[1] - 1 : 2], x_BTH[:, 1::2], x_BTH[:, 2::2]


def begin(a_BTH: Tensor, b_BTH: Tensor, h0_BH: Tensor | None) -> Tensor:
    """What the recurrence begins with, zero if nothing is said; refuses what does not fit together."""
    h0_BH = b_BTH.new_zeros(len(b_BTH), b_BTH.shape[-1]) if h0_BH is None else h0_BH
    shapes = tuple(a_BTH.shape), tuple(b_BTH.shape), tuple(h0_BH.shape)
    if b_BTH.ndim != 3 or shapes[0] != shapes[1] or shapes[2] != (*shapes[1][:1], *shapes[1][2:]):
        raise EngramError(f"A scan takes a and b of B × T × H and h0 of B × H, not {', '.join(map(str, shapes))}.")
    if not a_BTH.dtype == b_BTH.dtype == h0_BH.dtype:
        raise EngramError(f"A scan takes one type of number, not {a_BTH.dtype}, {b_BTH.dtype} and {h0_BH.dtype}.")
    return h0_BH


class Scan(torch.autograd.Function):
    """(1) in one kernel, (3) and (4) in another, or in scans where the slopes themselves are to be differentiated."""

    @staticmethod
    def forward(ctx: Any, a_BTH: Tensor, b_BTH: Tensor, h0_BH: Tensor) -> Tensor:  # type: ignore[override]
        h_BTH = new(b_BTH)
        run(_forward_serial, _forward_parallel, a_BTH, b_BTH, h0_BH, h_BTH)
        ctx.save_for_backward(a_BTH, h0_BH, h_BTH)
        return h_BTH

    @staticmethod
    def backward(ctx: Any, dh_BTH: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]
        a_BTH, h0_BH, h_BTH = ctx.saved_tensors
        if torch.is_grad_enabled():
            back_BTH = scan_back(a_BTH, dh_BTH)
            return back_BTH * previous(h0_BH, h_BTH), back_BTH, (a_BTH * back_BTH)[:, :1].sum(1)  # (4)
        da_BTH, db_BTH, dh0_BH = new(h_BTH), new(h_BTH), new(h0_BH).zero_()
        run(_backward_serial, _backward_parallel, dh_BTH, a_BTH, h0_BH, h_BTH, da_BTH, db_BTH, dh0_BH)
        return da_BTH, db_BTH, dh0_BH


def scan_back(a_BTH: Tensor, dh_BTH: Tensor) -> Tensor:
    """All lambda of (3): the scan from the end, in which each step has the gate of the one after it."""
    after_BTH = torch.cat([a_BTH[:, 1:], torch.zeros_like(a_BTH[:, :1])], 1)
    return scan(after_BTH.flip(1), dh_BTH.flip(1)).flip(1)


def previous(h0_BH: Tensor, h_BTH: Tensor) -> Tensor:
    """The state before each step."""
    return torch.cat([h0_BH[:, None], h_BTH], 1)[:, :-1]


def new(like: Tensor) -> Tensor:
    return torch.empty_like(like, memory_format=torch.contiguous_format)


def run(serial: Any, parallel: Any, *tensors: Tensor) -> None:
    """A kernel on the memory of tensors, on all cores where the first of them is large enough.

    What it writes must be contiguous; what it reads is made so.
    """
    arrays = [x.detach().contiguous().numpy() for x in tensors]
    if tensors[0].numel() < ENOUGH or torch.get_num_threads() == 1:
        return serial(*arrays)
    return parallel(*arrays)


@njit(cache=True, error_model="numpy", nogil=True, inline="always")
def piece(p: int, H: int) -> Any:
    """Which sequence and which of its channels are the p-th piece of work."""
    per_sequence = (H + TOGETHER - 1) // TOGETHER
    first = p % per_sequence * TOGETHER
    return p // per_sequence, slice(first, min(first + TOGETHER, H))


@njit(cache=True, error_model="numpy", inline="always")
def pieces(B: int, H: int) -> int:
    """How many there are."""
    return B * ((H + TOGETHER - 1) // TOGETHER)


@njit(cache=True, error_model="numpy", nogil=True, fastmath=FUSED)
def _forward(a_TH: Array, b_TH: Array, h0_H: Array, h_TH: Array, here: slice) -> None:
    before = h0_H[here]
    for t in range(len(h_TH)):
        a, b, h = a_TH[t, here], b_TH[t, here], h_TH[t, here]
        for i in range(len(h)):
            h[i] = a[i] * before[i] + b[i]  # (1)
        before = h


@njit(cache=True, error_model="numpy", nogil=True, fastmath=FUSED)
def _backward(
    dh_TH: Array, a_TH: Array, h0_H: Array, h_TH: Array, da_TH: Array, db_TH: Array, dh0_H: Array, here: slice
) -> None:
    later = dh0_H[here]  # a_(t+1) lambda_(t+1), which in the end is what h_0 gets
    for t in range(len(h_TH) - 1, -1, -1):
        before = h_TH[t - 1, here] if t else h0_H[here]
        dh, a, da, db = dh_TH[t, here], a_TH[t, here], da_TH[t, here], db_TH[t, here]
        for i in range(len(dh)):
            back = dh[i] + later[i]  # (3)
            db[i] = back  # (4)
            da[i] = back * before[i]
            later[i] = a[i] * back


@njit(cache=True, error_model="numpy", nogil=True)
def _forward_serial(a_BTH: Array, b_BTH: Array, h0_BH: Array, h_BTH: Array) -> None:
    B, H = h0_BH.shape
    for p in range(pieces(B, H)):
        b, here = piece(p, H)
        _forward(a_BTH[b], b_BTH[b], h0_BH[b], h_BTH[b], here)


@parallel_njit(error_model="numpy", nogil=True)
def _forward_parallel(a_BTH: Array, b_BTH: Array, h0_BH: Array, h_BTH: Array) -> None:
    B, H = h0_BH.shape
    for p in prange(pieces(B, H)):
        b, here = piece(p, H)
        _forward(a_BTH[b], b_BTH[b], h0_BH[b], h_BTH[b], here)


@njit(cache=True, error_model="numpy", nogil=True)
def _backward_serial(
    dh_BTH: Array, a_BTH: Array, h0_BH: Array, h_BTH: Array, da_BTH: Array, db_BTH: Array, dh0_BH: Array
) -> None:
    B, H = h0_BH.shape
    for p in range(pieces(B, H)):
        b, here = piece(p, H)
        _backward(dh_BTH[b], a_BTH[b], h0_BH[b], h_BTH[b], da_BTH[b], db_BTH[b], dh0_BH[b], here)


@parallel_njit(error_model="numpy", nogil=True)
def _backward_parallel(
    dh_BTH: Array, a_BTH: Array, h0_BH: Array, h_BTH: Array, da_BTH: Array, db_BTH: Array, dh0_BH: Array
) -> None:
    B, H = h0_BH.shape
    for p in prange(pieces(B, H)):
        b, here = piece(p, H)
        _backward(dh_BTH[b], a_BTH[b], h0_BH[b], h_BTH[b], da_BTH[b], db_BTH[b], dh0_BH[b], here)
