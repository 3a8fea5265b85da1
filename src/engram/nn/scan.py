r"""Linear recurrences by a loop, a kernel or a parallel scan (Blelloch 1990; Martin & Cundy 2018).

    h_t = a_t h_{t-1} + b_t                                                      elementwise linear recurrence      (1)
    (a_2, b_2) \circ (a_1, b_1) = (a_2 a_1, a_2 b_1 + b_2)                       composition of two steps           (2)
    \lambda_t = dL/dh_t + a_{t+1} \lambda_{t+1}                                  backward pass, a recurrence too    (3)
    dL/db_t = \lambda_t,\quad dL/da_t = \lambda_t h_{t-1},\quad dL/dh_0 = a_1 \lambda_1      gradients              (4)
    1 - a_2 a_1 = (1 - a_1) + a_1 (1 - a_2)                                      complement of a product            (5)

    Symbols:
        h, h_0       states, initial state
        a, b         gates and inputs
        \lambda      gradient of the loss with respect to a state, through all later ones
        B, T, H      batch, time, channels

Because of (2), steps can be combined in pairs, the pairs in pairs, and so on: about 2 log2 T parallel rounds instead of
T steps, for devices with thousands of cores. A CPU has few, and its kernel makes a single pass over memory: it takes
blocks of channels through time, and back by (3) and (4). There are no logarithms, so b may have any sign and a gate may
be 0 or 1. Near 1 a product of gates would be rounded in the same direction again and again, so pairs also carry (5).
"""

from typing import Any

import numpy.typing as npt
import torch
from numba import njit, prange
from torch import Tensor

from engram.core.errors import EngramError
from engram.core.threads import parallel_njit

Array = npt.NDArray[Any]
BLOCK = 256
"""channels of one block of the kernel"""
PARALLEL_SIZE = 1 << 17
"""number of values from which the kernel runs on all cores"""
FUSED = {"contract"}  # fused multiply-add is allowed


def scan(a_BTH: Tensor, b_BTH: Tensor, h0_BH: Tensor | None = None) -> Tensor:
    """All states h of (1), B × T × H, from h0 or zero; the fastest form for the device."""
    h0_BH = check_inputs(a_BTH, b_BTH, h0_BH)
    if b_BTH.dtype in (torch.float16, torch.bfloat16):  # too coarse for long sums
        return scan(a_BTH.float(), b_BTH.float(), h0_BH.float()).to(b_BTH.dtype)
    if b_BTH.is_cpu and b_BTH.dtype in (torch.float32, torch.float64) and not torch.compiler.is_compiling():
        return Scan.apply(a_BTH, b_BTH, h0_BH)
    return scan_parallel(a_BTH, b_BTH, h0_BH)


def scan_loop(a_BTH: Tensor, b_BTH: Tensor, h0_BH: Tensor | None = None) -> Tensor:
    """The recurrence (1) step by step."""
    h_BH, states = check_inputs(a_BTH, b_BTH, h0_BH), []
    for a_BH, b_BH in zip(a_BTH.unbind(1), b_BTH.unbind(1), strict=True):
        h_BH = a_BH * h_BH + b_BH  # (1)
        states.append(h_BH)
    return torch.stack(states, 1) if states else b_BTH


def scan_parallel(a_BTH: Tensor, b_BTH: Tensor, h0_BH: Tensor | None = None) -> Tensor:
    """The recurrence in about 2 log2 T parallel rounds, with derivatives of all orders; for |a| ≤ 1."""
    h0_BH = check_inputs(a_BTH, b_BTH, h0_BH)
    b_BTH = torch.cat([a_BTH[:, :1] * h0_BH[:, None] + b_BTH[:, :1], b_BTH[:, 1:]], 1)
    return scan_pairs(a_BTH, 1 - a_BTH, b_BTH)


def scan_pairs(a_BTH: Tensor, complement_BTH: Tensor, b_BTH: Tensor) -> Tensor:
    """The recurrence from zero: states after every second step by a scan of pairs, then the others."""
    T = b_BTH.shape[1]
    if T < 2:
        return b_BTH
    (a_1, a_2, a_3), (complement_1, complement_2, _), (b_1, b_2, b_3) = map(split_pairs, (a_BTH, complement_BTH, b_BTH))
    complement = complement_1 + a_1 * complement_2  # (5)
    a = torch.where(complement < 0.5, 1 - complement, a_2 * a_1)
    h_2 = scan_pairs(a, complement, a_2 * b_1 + b_2)  # (2)
    h_3 = a_3 * h_2[:, : (T - 1) // 2] + b_3  # (1)
    h_1 = torch.cat([b_BTH[:, :1], h_3], 1)
    both = torch.stack([h_1[:, : T // 2], h_2], 2).flatten(1, 2)
    return torch.cat([both, h_1[:, T // 2 :]], 1) if T % 2 else both


def split_pairs(x_BTH: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The first step of each pair, the second, and the one after the second."""
    return x_BTH[:, : x_BTH.shape[1] - 1 : 2], x_BTH[:, 1::2], x_BTH[:, 2::2]


def check_inputs(a_BTH: Tensor, b_BTH: Tensor, h0_BH: Tensor | None) -> Tensor:
    """Return the initial state, zero by default; refuse tensors that do not fit together."""
    h0_BH = b_BTH.new_zeros(len(b_BTH), b_BTH.shape[-1]) if h0_BH is None else h0_BH
    shapes = tuple(a_BTH.shape), tuple(b_BTH.shape), tuple(h0_BH.shape)
    if b_BTH.ndim != 3 or shapes[0] != shapes[1] or shapes[2] != (*shapes[1][:1], *shapes[1][2:]):
        raise EngramError(f"A scan takes a and b of B × T × H and h0 of B × H, not {', '.join(map(str, shapes))}.")
    if not a_BTH.dtype == b_BTH.dtype == h0_BH.dtype:
        raise EngramError(f"A scan takes one type of number, not {a_BTH.dtype}, {b_BTH.dtype} and {h0_BH.dtype}.")
    return h0_BH


class Scan(torch.autograd.Function):
    """Kernels of (1) and of (3), (4); scans of torch where gradients are differentiated again."""

    @staticmethod
    def forward(ctx: Any, a_BTH: Tensor, b_BTH: Tensor, h0_BH: Tensor) -> Tensor:  # type: ignore[override]
        h_BTH = empty_like(b_BTH)
        run_kernel(_forward_serial, _forward_parallel, a_BTH, b_BTH, h0_BH, h_BTH)
        ctx.save_for_backward(a_BTH, h0_BH, h_BTH)
        return h_BTH

    @staticmethod
    def backward(ctx: Any, dh_BTH: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]
        a_BTH, h0_BH, h_BTH = ctx.saved_tensors
        if torch.is_grad_enabled():
            lambda_BTH = reverse_scan(a_BTH, dh_BTH)
            return lambda_BTH * previous_states(h0_BH, h_BTH), lambda_BTH, (a_BTH * lambda_BTH)[:, :1].sum(1)  # (4)
        da_BTH, db_BTH, dh0_BH = empty_like(h_BTH), empty_like(h_BTH), empty_like(h0_BH).zero_()
        run_kernel(_backward_serial, _backward_parallel, dh_BTH, a_BTH, h0_BH, h_BTH, da_BTH, db_BTH, dh0_BH)
        return da_BTH, db_BTH, dh0_BH


def reverse_scan(a_BTH: Tensor, dh_BTH: Tensor) -> Tensor:
    """All lambda of (3): a scan from the end, each step with the gate of the next."""
    next_BTH = torch.cat([a_BTH[:, 1:], torch.zeros_like(a_BTH[:, :1])], 1)
    return scan(next_BTH.flip(1), dh_BTH.flip(1)).flip(1)


def previous_states(h0_BH: Tensor, h_BTH: Tensor) -> Tensor:
    """States before each step, B × T × H."""
    return torch.cat([h0_BH[:, None], h_BTH], 1)[:, :-1]


def empty_like(x: Tensor) -> Tensor:
    """Contiguous tensor of the same shape, not initialized."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def run_kernel(serial: Any, parallel: Any, *tensors: Tensor) -> None:
    """Run a kernel on tensors, on all cores if the first of them is large enough.

    Outputs must be contiguous; inputs are made so.
    """
    arrays = [x.detach().contiguous().numpy() for x in tensors]
    if tensors[0].numel() < PARALLEL_SIZE or torch.get_num_threads() == 1:
        return serial(*arrays)
    return parallel(*arrays)


@njit(cache=True, error_model="numpy", nogil=True, inline="always")
def get_block(p: int, H: int) -> Any:
    """Sequence and channels of the p-th block."""
    per_sequence = (H + BLOCK - 1) // BLOCK
    first = p % per_sequence * BLOCK
    return p // per_sequence, slice(first, min(first + BLOCK, H))


@njit(cache=True, error_model="numpy", inline="always")
def count_blocks(B: int, H: int) -> int:
    """Number of blocks."""
    return B * ((H + BLOCK - 1) // BLOCK)


@njit(cache=True, error_model="numpy", nogil=True, fastmath=FUSED)
def _forward(a_TH: Array, b_TH: Array, h0_H: Array, h_TH: Array, block: slice) -> None:
    previous = h0_H[block]
    for t in range(len(h_TH)):
        a, b, h = a_TH[t, block], b_TH[t, block], h_TH[t, block]
        for i in range(len(h)):
            h[i] = a[i] * previous[i] + b[i]  # (1)
        previous = h


@njit(cache=True, error_model="numpy", nogil=True, fastmath=FUSED)
def _backward(
    dh_TH: Array, a_TH: Array, h0_H: Array, h_TH: Array, da_TH: Array, db_TH: Array, dh0_H: Array, block: slice
) -> None:
    carried = dh0_H[block]  # a_{t+1} lambda_{t+1}; in the end the gradient of h_0
    for t in range(len(h_TH) - 1, -1, -1):
        previous = h_TH[t - 1, block] if t else h0_H[block]
        dh, a, da, db = dh_TH[t, block], a_TH[t, block], da_TH[t, block], db_TH[t, block]
        for i in range(len(dh)):
            lambda_t = dh[i] + carried[i]  # (3)
            db[i] = lambda_t  # (4)
            da[i] = lambda_t * previous[i]
            carried[i] = a[i] * lambda_t


@njit(cache=True, error_model="numpy", nogil=True)
def _forward_serial(a_BTH: Array, b_BTH: Array, h0_BH: Array, h_BTH: Array) -> None:
    B, H = h0_BH.shape
    for p in range(count_blocks(B, H)):
        b, block = get_block(p, H)
        _forward(a_BTH[b], b_BTH[b], h0_BH[b], h_BTH[b], block)


@parallel_njit(error_model="numpy", nogil=True)
def _forward_parallel(a_BTH: Array, b_BTH: Array, h0_BH: Array, h_BTH: Array) -> None:
    B, H = h0_BH.shape
    for p in prange(count_blocks(B, H)):
        b, block = get_block(p, H)
        _forward(a_BTH[b], b_BTH[b], h0_BH[b], h_BTH[b], block)


@njit(cache=True, error_model="numpy", nogil=True)
def _backward_serial(
    dh_BTH: Array, a_BTH: Array, h0_BH: Array, h_BTH: Array, da_BTH: Array, db_BTH: Array, dh0_BH: Array
) -> None:
    B, H = h0_BH.shape
    for p in range(count_blocks(B, H)):
        b, block = get_block(p, H)
        _backward(dh_BTH[b], a_BTH[b], h0_BH[b], h_BTH[b], da_BTH[b], db_BTH[b], dh0_BH[b], block)


@parallel_njit(error_model="numpy", nogil=True)
def _backward_parallel(
    dh_BTH: Array, a_BTH: Array, h0_BH: Array, h_BTH: Array, da_BTH: Array, db_BTH: Array, dh0_BH: Array
) -> None:
    B, H = h0_BH.shape
    for p in prange(count_blocks(B, H)):
        b, block = get_block(p, H)
        _backward(dh_BTH[b], a_BTH[b], h0_BH[b], h_BTH[b], da_BTH[b], db_BTH[b], dh0_BH[b], block)
