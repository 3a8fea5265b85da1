"""Hebb's network without its matrix: patterns and states as bits.   B states, M patterns, N units, X is M × N of +1, -1

    m = X x'                                              overlaps; N - 2 (bits in which x and a pattern differ)     (1)
    (x W)_i = (m X)_i / M - x_i                           what a unit hears, for W = X'X / M - I                     (2)
    W_ik = (M - 2 (bits in which units i and k differ)) / M                                                          (3)
    E(x) = -1/2 (m m' / M - N)                            energy, of whole numbers                                   (4)

64 bits are compared at once. (2) has a table for every eight patterns with the sums of all 256 ways to add and subtract
their overlaps, and looks up one number for eight patterns. W, of which (3) makes what a flip changes, is never there:
a million units with a hundred patterns take 12 MB, where W would take 4 TB.
"""

from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engram.core.errors import EngramError
from engram.models.hopfield import Recall, shuffle

Bits = NDArray[np.uint64]


class HebbBits:
    """Patterns that were stored by Hebb's rule, and recall by the rules of `Hopfield`."""

    def __init__(self, X_MN: Tensor) -> None:
        if X_MN.ndim != 2 or not X_MN.numel():
            raise EngramError(f"Patterns must be rows of units, not {tuple(X_MN.shape)}.")
        self.patterns, self.units = X_MN.shape
        self.pattern_bits = packed(X_MN)
        self.unit_bits = np.ascontiguousarray(packed(X_MN.T).T)
        self.unit_bytes = np.ascontiguousarray(packed(X_MN.T).view(np.uint8)[:, : -(-self.patterns // 8)].T)

    def recall(
        self, x_BN: Tensor, generator: torch.Generator | None = None, *, together: bool = False, sweeps: int = 100
    ) -> Recall:
        """Where states settle, one unit after the other in random order, or all units `together`."""
        if x_BN.ndim != 2 or x_BN.shape[1] != self.units:
            raise EngramError(f"States must be rows of {self.units} units, not {tuple(x_BN.shape)}.")
        x = torch.where(x_BN > 0, 1, -1)
        energy = np.empty((len(x), sweeps + 1))
        taken, cycle = np.zeros(len(x), np.int64), np.zeros(len(x), np.int64)
        bits = self.pattern_bits, self.unit_bytes
        if together:
            _together(*bits, self.patterns, x.numpy(), energy, taken, cycle)
        else:
            key = torch.randint(2**62, (), generator=generator).item()
            _settle(*bits, self.unit_bits, self.patterns, x.numpy(), energy, taken, cycle, np.uint64(key))
        last = int(taken.max(initial=0))
        found = torch.from_numpy(energy[:, : last + 1]), torch.from_numpy(taken), torch.from_numpy(cycle)
        return Recall(x.float(), *found)


def packed(X: Tensor) -> Bits:
    """Rows of +1 and -1 as rows of 64-bit words; what is missing in the last word is zero."""
    bits = np.packbits((X > 0).numpy(), axis=1, bitorder="little")
    return np.ascontiguousarray(np.pad(bits, ((0, 0), (0, -bits.shape[1] % 8)))).view(np.uint64)


@numba.njit(cache=True)
def ones(word: Any) -> Any:
    """How many bits are 1: LLVM knows this form and makes one instruction of it."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@numba.njit(cache=True, error_model="numpy")
def _hear(
    pattern_bits: Bits, unit_bytes: NDArray[np.uint8], M: int, x: NDArray[np.int64], field: NDArray[np.int64]
) -> Any:
    """(2) times M, and m m'."""
    words, N = np.zeros(pattern_bits.shape[1], np.uint64), len(x)
    for i in range(N):
        if x[i] > 0:
            words[i >> 6] |= np.uint64(1) << np.uint64(i & 63)
    overlap = np.zeros(8 * len(unit_bytes), np.int64)
    for p in range(M):
        differ = 0
        for w in range(len(words)):
            differ += ones(words[w] ^ pattern_bits[p, w])
        overlap[p] = N - 2 * differ  # (1)
    for i in range(N):
        field[i] = -M * x[i]
    table = np.empty(256, np.int64)
    for g in range(len(unit_bytes)):
        table[0] = -overlap[8 * g : 8 * g + 8].sum()
        for bit in range(8):
            for way in range(1 << bit):
                table[way + (1 << bit)] = table[way] + 2 * overlap[8 * g + bit]
        row = unit_bytes[g]
        for i in range(N):
            field[i] += table[row[i]]  # (2)
    return (overlap * overlap).sum()


@numba.njit(cache=True, error_model="numpy", nogil=True)
def _together(
    pattern_bits: Bits, unit_bytes: NDArray[np.uint8], M: int, x: NDArray[np.int64], energy: NDArray[np.float64],
    taken: NDArray[np.int64], cycle: NDArray[np.int64],
) -> None:  # fmt: skip
    """All units at once, until nothing changes or the state before the last is back."""
    B, N = x.shape
    most = energy.shape[1] - 1
    field, before, after = np.empty(N, np.int64), np.empty(N, np.int64), np.empty(N, np.int64)
    for s in range(B):
        now = x[s]
        energy[s, 0] = -0.5 * (_hear(pattern_bits, unit_bytes, M, now, field) / M - N)  # (4)
        sweep = 0
        while cycle[s] == 0 and sweep < most:
            still, back = True, sweep > 0
            for i in range(N):
                after[i] = 1 if field[i] >= 0 else -1
                still &= after[i] == now[i]
                back &= after[i] == before[i]
            if still or back:
                cycle[s] = 1 if still else 2
                break
            before[:] = now
            now[:] = after
            sweep += 1
            energy[s, sweep] = -0.5 * (_hear(pattern_bits, unit_bytes, M, now, field) / M - N)
        taken[s] = sweep
        energy[s, sweep + 1 :] = energy[s, sweep]


@numba.njit(cache=True, error_model="numpy", nogil=True)
def _settle(
    pattern_bits: Bits, unit_bytes: NDArray[np.uint8], unit_bits: Bits, M: int, x: NDArray[np.int64],
    energy: NDArray[np.float64], taken: NDArray[np.int64], cycle: NDArray[np.int64], key: Any,
) -> None:  # fmt: skip
    """One unit after the other, until none flips."""
    B, N = x.shape
    most = energy.shape[1] - 1
    order: Any = np.arange(N)
    field, differ = np.empty(N, np.int64), np.empty(N, np.int64)
    state: Any = key
    for s in range(B):
        e = -0.5 * (_hear(pattern_bits, unit_bytes, M, x[s], field) / M - N)  # (4)
        energy[s, 0] = e
        sweep, moved = 0, True
        while moved and sweep < most:
            moved = False
            state = shuffle(order, state)
            for i in order:
                new = 1 if field[i] >= 0 else -1
                if new != x[s, i]:
                    flip = new - x[s, i]
                    e -= flip * field[i] / M
                    x[s, i] = new
                    heard = field[i]
                    differ[:] = 0
                    for w in range(len(unit_bits)):
                        row = unit_bits[w]
                        for k in range(N):
                            differ[k] += ones(row[k] ^ row[i])
                    for k in range(N):
                        field[k] += flip * (M - 2 * differ[k])  # (3)
                    field[i] = heard  # a unit does not hear itself
                    moved = True
            if moved:
                sweep += 1
                energy[s, sweep] = e
        taken[s], cycle[s] = sweep, sweep < most
        energy[s, sweep + 1 :] = e
