"""Hopfield network (Hopfield 1982; note 003 §16).   B states, M patterns, N units, each +1 or -1

    E(x) = -1/2 x W x' - b x'                            energy; W is symmetric, its diagonal is zero                (1)
    x_i <- sign((x W + b)_i),  sign(0) = +1              one unit after the other, in random order: E never rises    (2)
    x   <- sign(x W + b)                                 or all at once, which may end in a cycle of two             (3)
    W = X'X / M - I                                      «hebb»: what fires together, M patterns in one formula      (4)
    tau dW/dt = X'X / M - I                              «gradient»: downhill on the energy of the patterns          (5)
    W <- W + r'r / (r r'),  r = x - x W                  «pseudo-inverse», pattern by pattern: W projects on them    (6)
    W <- W + (x'x - x'h - h'x) / N                       «storkey»: Hebb, less what is known already                 (7)
                                                         h_ij = (W x')_i - W_ij x_j: what i hears, j left out

(6) is Greville's form of W = X'(X X')^-1 X, whose diagonal is kept apart; (7) is Storkey's (1997). Each unit of (2)
knows its input: a flip changes that of all others by one row of W, so a unit that stays costs nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.learner import Batch, Metrics
from engram.core.registry import FromData
from engram.core.tap import tap

Rule = Literal["hebb", "gradient", "pseudo-inverse", "storkey"]


class Recall(NamedTuple):
    """Where states came to, and how."""

    x: Tensor
    """B × N"""
    energy: Tensor
    """B × sweeps + 1: before the first sweep and after each; a state at rest keeps its energy"""
    sweeps: Tensor
    """B: sweeps until nothing changed"""
    cycle: Tensor
    """B: 1 where a state came to rest, 2 where it went to and fro, 0 where there was not time enough"""


class Hopfield(nn.Module):
    """Units that all hear each other, and settle where their energy is low."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        units: FromData[int] = 100
        """units, one for each pixel (N)"""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.W = nn.Parameter(torch.zeros(config.units, config.units), requires_grad=False)
        self.b = nn.Parameter(torch.zeros(config.units), requires_grad=False)
        self.stored: Tensor
        self.register_buffer("stored", torch.zeros((), dtype=torch.long))

    def store(self, X_MN: Tensor, rule: Rule = "hebb") -> "Hopfield":
        """Remember patterns, beside those of before."""
        Storage(self, rule).step({"pattern": X_MN})
        return self

    def energy(self, x_BN: Tensor) -> Tensor:
        return -0.5 * ((x_BN @ self.W) * x_BN).sum(-1) - x_BN @ self.b  # (1)

    def forward(self, x_BN: Tensor) -> Tensor:
        """One round of (3)."""
        field_BN = tap("field", x_BN @ self.W + self.b)
        return tap("state", sign(field_BN))

    def recall(
        self, x_BN: Tensor, generator: torch.Generator | None = None, *, together: bool = False, sweeps: int = 100
    ) -> Recall:
        """Where states settle: by (2) in an order that is drawn anew for each sweep, or all units `together` by (3)."""
        if x_BN.ndim != 2 or x_BN.shape[1] != self.config.units:
            raise EngramError(f"States must be rows of {self.config.units} units, not {tuple(x_BN.shape)}.")
        if together:
            return self._together(x_BN.float(), sweeps)
        x = x_BN.float().clone().contiguous()
        key = torch.randint(2**62, (), generator=generator).item()
        field_BN = x @ self.W + self.b
        energy = np.empty((len(x), sweeps + 1))
        energy[:, 0] = self.energy(x).double().numpy()
        taken = np.zeros(len(x), np.int64)
        _settle(self.W.numpy(), x.numpy(), field_BN.numpy(), energy, taken, np.uint64(key))
        last = int(taken.max(initial=0))
        cycle = torch.from_numpy((taken < sweeps).astype(np.int64))
        return Recall(x, torch.from_numpy(energy[:, : last + 1]), torch.from_numpy(taken), cycle)

    def flips(
        self, x_N: Tensor, generator: torch.Generator | None = None, *, sweeps: int = 100
    ) -> Iterator[tuple[int, int]]:
        """`recall` by (2), slowly: the sweep and the unit of each flip, the same ones if the generator is the same."""
        start = x_N.float()[None]
        x, field, W = start[0].numpy().copy(), (start @ self.W + self.b)[0].numpy(), self.W.numpy()
        order, state = np.arange(len(x)), np.uint64(torch.randint(2**62, (), generator=generator).item())
        for sweep in range(sweeps):
            before = x.copy()
            state = np.uint64(shuffle(order, state))
            for i in order.tolist():
                if (field[i] >= 0) != (x[i] > 0):
                    field -= 2 * x[i] * W[i]
                    x[i] = -x[i]  # (2)
                    yield sweep, i
            if np.array_equal(x, before):
                return

    def _together(self, x: Tensor, sweeps: int) -> Recall:
        before, energies = x, [self.energy(x).double()]
        taken, cycle = torch.zeros(len(x), dtype=torch.long), torch.zeros(len(x), dtype=torch.long)
        for sweep in range(1, sweeps + 1):
            after = sign(x @ self.W + self.b)  # (3)
            still, back = (after == x).all(1), (after == before).all(1) & (sweep > 1)
            ended = (still | back) & (cycle == 0)
            cycle[ended] = torch.where(still, 1, 2)[ended]
            taken[ended] = sweep - 1
            before, x = x, torch.where((cycle == 1)[:, None], x, after)
            energies.append(self.energy(x).double())
            if (cycle > 0).all():
                break
        taken[cycle == 0] = sweeps
        return Recall(x, torch.stack(energies, 1), taken, cycle)


def sign(z: Tensor) -> Tensor:
    return torch.where(z >= 0, 1.0, -1.0)


@numba.njit(cache=True)
def shuffle(order: NDArray[np.int64], state: Any) -> Any:
    """Fisher and Yates, by splitmix64; returns its next state."""
    for i in range(len(order) - 1, 0, -1):
        state += np.uint64(0x9E3779B97F4A7C15)
        z = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
        j = np.int64(((z >> np.uint64(32)) * np.uint64(i + 1)) >> np.uint64(32))
        order[i], order[j] = order[j], order[i]
    return state


@numba.njit(cache=True, error_model="numpy", nogil=True)
def _settle(
    W: NDArray[np.float32], x: NDArray[np.float32], field: NDArray[np.float32], energy: NDArray[np.float64],
    taken: NDArray[np.int64], key: Any,
) -> None:  # fmt: skip
    """(2) until no unit flips; `field` is what each unit hears, and is kept up to date."""
    B, N = x.shape
    most = energy.shape[1] - 1
    order: Any = np.arange(N)
    state: Any = key
    for s in range(B):
        e, moved = energy[s, 0], True
        sweep = 0
        while moved and sweep < most:
            moved = False
            state = shuffle(order, state)
            for i in order:
                new = np.float32(1.0) if field[s, i] >= 0 else np.float32(-1.0)  # (2)
                if new != x[s, i]:
                    flip = new - x[s, i]
                    e -= flip * field[s, i]
                    x[s, i] = new
                    for k in range(N):
                        field[s, k] += flip * W[i, k]
                    moved = True
            if moved:
                sweep += 1
                energy[s, sweep] = e
        taken[s] = sweep
        energy[s, sweep + 1 :] = e


# ---------------------------------------------------------------------- storing


class Storage:
    """The learner of a Hopfield network: patterns come in, and each is stored as it comes."""

    def __init__(self, model: Hopfield, rule: Rule, rate: float = 0.1) -> None:
        self.model, self.rule, self.rate = model, rule, rate
        self.diagonal_N = torch.zeros(model.config.units)

    @torch.no_grad()
    def step(self, batch: Batch) -> Metrics:
        x_BN = batch["pattern"].float()
        W, N = self.model.W, self.model.config.units
        if self.rule == "hebb":
            share = len(x_BN) / (int(self.model.stored) + len(x_BN))
            W.lerp_(x_BN.T @ x_BN / len(x_BN), share).fill_diagonal_(0)  # (4)
        elif self.rule == "gradient":
            W.add_(x_BN.T @ x_BN / len(x_BN), alpha=self.rate).fill_diagonal_(0)  # (5)
        else:
            for x_N in x_BN:
                self._one(x_N, W, N)
        self.model.stored += len(x_BN)
        stable = (self.model(x_BN) == x_BN).all(1).float().mean()
        return {"energy": self.model.energy(x_BN).mean() / N, "stable": stable}

    def _one(self, x_N: Tensor, W: Tensor, N: int) -> None:
        if self.rule == "pseudo-inverse":
            W.diagonal().copy_(self.diagonal_N)
            r_N = x_N - x_N @ W
            if r_N @ r_N > 1e-4 * N:  # otherwise it is made of patterns that are known
                W.add_(torch.outer(r_N, r_N) / (r_N @ r_N))  # (6)
            self.diagonal_N = W.diagonal().clone()
        else:
            h_NN = (W @ x_N)[:, None] - W * x_N
            heard = x_N[:, None] * h_NN.T
            W.add_((torch.outer(x_N, x_N) - heard - heard.T) / N)  # (7)
        W.fill_diagonal_(0)

    def state_dict(self) -> dict[str, Any]:
        return {"diagonal": self.diagonal_N}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.diagonal_N = state["diagonal"]
