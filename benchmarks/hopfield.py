"""Recall from a Hopfield network: with its matrix, and from bits without it."""

from collections.abc import Callable

import numpy as np
import torch

from engram.cli.bench import Contestant
from engram.core.seeding import generator
from engram.memory.hopfield.bits import BitHopfield
from engram.memory.hopfield.model import Hopfield, sign

UNITS, PATTERNS, STATES, FLIPPED = 2000, 200, 400, 0.1
WORK = (
    f"{PATTERNS} patterns in {UNITS} units by Hebb's rule; recall from {STATES} states with {FLIPPED:.0%} of the units "
    "flipped"
)
UNIT = "states/s"


def contestants() -> dict[str, Contestant]:
    random = generator(0)
    X_MN = sign(torch.randn(PATTERNS, UNITS, generator=random))
    x_BN = X_MN[torch.arange(STATES) % PATTERNS]
    x_BN = torch.where(torch.rand(x_BN.shape, generator=random) < FLIPPED, -x_BN, x_BN)

    def numpy() -> Callable[[], float]:
        X, begin = X_MN.numpy(), x_BN.numpy()
        W = X.T @ X / len(X)
        np.fill_diagonal(W, 0)

        def work() -> float:
            before, x = begin, np.where(begin @ W >= 0, np.float32(1), np.float32(-1))
            for _ in range(100):
                after = np.where(x @ W >= 0, np.float32(1), np.float32(-1))
                if np.array_equal(after, x) or np.array_equal(after, before):  # at rest, or to and fro for ever
                    break
                before, x = x, after
            return STATES

        return work

    def engram(memory: Hopfield | BitHopfield, synchronous: bool) -> Callable[[], float]:
        def work() -> float:
            memory.recall(x_BN, generator(1), synchronous=synchronous)
            return STATES

        return work

    def matrix() -> Hopfield:
        return Hopfield(Hopfield.Config(units=UNITS)).store(X_MN)

    return {
        "NumPy, all at once": numpy,
        "engram, matrix, all at once": lambda: engram(matrix(), True),
        "engram, bits, all at once": lambda: engram(BitHopfield(X_MN), True),
        "engram, matrix, one by one": lambda: engram(matrix(), False),
        "engram, bits, one by one": lambda: engram(BitHopfield(X_MN), False),
    }
