r"""Hebbian Hopfield network without its weight matrix: patterns and states packed as bits.

    m = X x^\top                                   overlaps: N - 2 (bits that differ)              (1)
    (x W)_i = (m X)_i / M - x_i                    local field, for W = X^\top X / M - I           (2)
    W_{ik} = (M - 2 d_{ik}) / M                    weight from the bits that differ                (3)
    E(x) = -1/2 (m m^\top / M - N)                 energy, from integers                           (4)

    Symbols:
        X        patterns, one per row, units of +1 or -1
        x        state
        m        overlaps of the state with all patterns
        d_{ik}   patterns in which units i and k differ
        M, N     patterns, units

64 bits are compared at once. (2) looks up one number for eight patterns, in a table of the sums of their overlaps with
all 256 combinations of signs. W is never stored: a million units with a hundred patterns take 12 MB instead of 4 TB.
"""

from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engram.core.errors import EngramError
from engram.memory.hopfield.model import Recall, shuffle

Bits = NDArray[np.uint64]


class BitHopfield:
    """Hopfield network with Hebbian weights, bit-packed; `recall` is that of `Hopfield`."""

    def __init__(self, X_MN: Tensor) -> None:
        if X_MN.ndim != 2 or not X_MN.numel():
            raise EngramError(f"Patterns must be rows of units, not {tuple(X_MN.shape)}.")
        self.patterns, self.units = X_MN.shape
        self.pattern_bits = pack_bits(X_MN)
        self.unit_bits = np.ascontiguousarray(pack_bits(X_MN.T).T)
        self.unit_bytes = np.ascontiguousarray(pack_bits(X_MN.T).view(np.uint8)[:, : -(-self.patterns // 8)].T)

    def recall(
        self, x_BN: Tensor, generator: torch.Generator | None = None, *, synchronous: bool = False, sweeps: int = 100
    ) -> Recall:
        """Iterate until convergence: unit by unit in random order, or all units at once if `synchronous`."""
        if x_BN.ndim != 2 or x_BN.shape[1] != self.units:
            raise EngramError(f"States must be rows of {self.units} units, not {tuple(x_BN.shape)}.")
        x = torch.where(x_BN > 0, 1, -1)
        energy = np.empty((len(x), sweeps + 1))
        taken, cycle = np.zeros(len(x), np.int64), np.zeros(len(x), np.int64)
        bits = self.pattern_bits, self.unit_bytes
        if synchronous:
            _recall_synchronous(*bits, self.patterns, x.numpy(), energy, taken, cycle)
        else:
            key = torch.randint(2**62, (), generator=generator).item()
            _recall_asynchronous(*bits, self.unit_bits, self.patterns, x.numpy(), energy, taken, cycle, np.uint64(key))
        last = int(taken.max(initial=0))
        found = torch.from_numpy(energy[:, : last + 1]), torch.from_numpy(taken), torch.from_numpy(cycle)
        return Recall(x.float(), *found)


def pack_bits(X: Tensor) -> Bits:
    """Pack rows of +1 and -1 into rows of 64-bit words, padded with zeros."""
    bits = np.packbits((X > 0).numpy(), axis=1, bitorder="little")
    return np.ascontiguousarray(np.pad(bits, ((0, 0), (0, -bits.shape[1] % 8)))).view(np.uint64)


@numba.njit(cache=True)
def popcount(word: Any) -> Any:
    """Count the bits that are 1; LLVM compiles this form to one instruction."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@numba.njit(cache=True, error_model="numpy")
def _local_fields(
    pattern_bits: Bits, unit_bytes: NDArray[np.uint8], M: int, x: NDArray[np.int64], field: NDArray[np.int64]
) -> Any:
    """Write M times the local fields (2) to `field`, and return the sum of squared overlaps."""
    words, N = np.zeros(pattern_bits.shape[1], np.uint64), len(x)
    for i in range(N):
        if x[i] > 0:
            words[i >> 6] |= np.uint64(1) << np.uint64(i & 63)
    overlap = np.zeros(8 * len(unit_bytes), np.int64)
    for p in range(M):
        differ = 0
        for w in range(len(words)):
            differ += popcount(words[w] ^ pattern_bits[p, w])
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
def _recall_synchronous(
    pattern_bits: Bits, unit_bytes: NDArray[np.uint8], M: int, x: NDArray[np.int64], energy: NDArray[np.float64],
    taken: NDArray[np.int64], cycle: NDArray[np.int64],
) -> None:  # fmt: skip
    """Update all units at once until a fixed point or a cycle of two states."""
    B, N = x.shape
    most = energy.shape[1] - 1
    field, before, after = np.empty(N, np.int64), np.empty(N, np.int64), np.empty(N, np.int64)
    for s in range(B):
        now = x[s]
        energy[s, 0] = -0.5 * (_local_fields(pattern_bits, unit_bytes, M, now, field) / M - N)  # (4)
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
            energy[s, sweep] = -0.5 * (_local_fields(pattern_bits, unit_bytes, M, now, field) / M - N)
        taken[s] = sweep
        energy[s, sweep + 1 :] = energy[s, sweep]


@numba.njit(cache=True, error_model="numpy", nogil=True)
def _recall_asynchronous(
    pattern_bits: Bits, unit_bytes: NDArray[np.uint8], unit_bits: Bits, M: int, x: NDArray[np.int64],
    energy: NDArray[np.float64], taken: NDArray[np.int64], cycle: NDArray[np.int64], key: Any,
) -> None:  # fmt: skip
    """Update one unit at a time until none flips."""
    B, N = x.shape
    most = energy.shape[1] - 1
    order: Any = np.arange(N)
    field, differ = np.empty(N, np.int64), np.empty(N, np.int64)
    state: Any = key
    for s in range(B):
        e = -0.5 * (_local_fields(pattern_bits, unit_bytes, M, x[s], field) / M - N)  # (4)
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
                    own_field = field[i]
                    differ[:] = 0
                    for w in range(len(unit_bits)):
                        row = unit_bits[w]
                        for k in range(N):
                            differ[k] += popcount(row[k] ^ row[i])
                    for k in range(N):
                        field[k] += flip * (M - 2 * differ[k])  # (3)
                    field[i] = own_field  # no self-connection
                    moved = True
            if moved:
                sweep += 1
                energy[s, sweep] = e
        taken[s], cycle[s] = sweep, sweep < most
        energy[s, sweep + 1 :] = e
