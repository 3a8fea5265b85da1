r"""Hopfield network: energy, updates, Hebbian and other learning rules (Hopfield 1982).

    E(x) = -1/2 x W x^\top - b x^\top                          energy                                       (1)
    x_i \leftarrow \text{sign}((x W + b)_i)                    asynchronous update, one unit at a time      (2)
    x \leftarrow \text{sign}(x W + b)                          synchronous update, all units at once        (3)
    W = X^\top X / M - I                                       Hebbian learning                             (4)
    \tau dW/dt = X^\top X / M - I                              gradient descent on the energy               (5)
    W \leftarrow W + r^\top r / (r r^\top), r = x - x W        pseudo-inverse rule, one pattern at a time   (6)
    W \leftarrow W + (x^\top x - x^\top h - h^\top x) / N      Storkey rule                                 (7)
    h_{ij} = (W x^\top)_i - W_{ij} x_j                         local field of unit i without unit j

    Symbols:
        x        state, or pattern to store: units of +1 or -1, and sign(0) = +1
        X        patterns, one per row
        W        symmetric weights with a diagonal of zero
        b        biases
        \tau     time constant of learning
        B, M, N  states, patterns, units

By (2) the energy never rises; (3) may end in a cycle of two states. (6) is Greville's recursion for the projection
W = X^\top (X X^\top)^{-1} X (Personnaz et al. 1985), whose diagonal is kept apart; (7) is Storkey's (1997). In (2) a
flip updates the local fields of all units by one row of W, so a unit that stays costs nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from engram.core.config import FromData, Settings
from engram.core.errors import EngramError
from engram.core.fit import FitMixin
from engram.core.learner import Batch, Metrics
from engram.core.tap import tap

Rule = Literal["hebb", "gradient", "pseudo-inverse", "storkey"]


class Recall(NamedTuple):
    """Final states of recall, and the energies on the way."""

    x: Tensor
    """final states, B × N"""
    energy: Tensor
    """energy before the first sweep and after each, B × (sweeps + 1); constant once a state has converged"""
    sweeps: Tensor
    """sweeps until convergence, B"""
    cycle: Tensor
    """length of the limit cycle, B: 1 for a fixed point, 2 for a cycle of two states, 0 if not converged"""


class Hopfield(FitMixin, nn.Module):
    """Fully connected binary units with symmetric weights: an associative memory."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Settings):
        units: FromData[int] = 100
        """units, one per pixel (N)"""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.W = nn.Parameter(torch.zeros(config.units, config.units), requires_grad=False)
        self.b = nn.Parameter(torch.zeros(config.units), requires_grad=False)
        self.stored: Tensor
        self.register_buffer("stored", torch.zeros((), dtype=torch.long))

    def store(self, X_MN: Tensor, rule: Rule = "hebb") -> "Hopfield":
        """Store patterns in addition to those stored before, and return the network."""
        HopfieldLearner(self, rule).step({"pattern": X_MN})
        return self

    def energy(self, x_BN: Tensor) -> Tensor:
        """Return the energy of each state."""
        return -0.5 * ((x_BN @ self.W) * x_BN).sum(-1) - x_BN @ self.b  # (1)

    def forward(self, x_BN: Tensor) -> Tensor:
        """Update all units once, synchronously."""
        field_BN = tap("field", x_BN @ self.W + self.b)
        return tap("state", sign(field_BN))  # (3)

    def recall(
        self, x_BN: Tensor, generator: torch.Generator | None = None, *, synchronous: bool = False, sweeps: int = 100
    ) -> Recall:
        """Iterate until convergence: by (2) in a new random order in each sweep, or `synchronous` by (3)."""
        if x_BN.ndim != 2 or x_BN.shape[1] != self.config.units:
            raise EngramError(f"States must be rows of {self.config.units} units, not {tuple(x_BN.shape)}.")
        if synchronous:
            return self._recall_synchronous(x_BN.float(), sweeps)
        x = x_BN.float().clone().contiguous()
        key = torch.randint(2**62, (), generator=generator).item()
        field_BN = x @ self.W + self.b
        energy = np.empty((len(x), sweeps + 1))
        energy[:, 0] = self.energy(x).double().numpy()
        taken = np.zeros(len(x), np.int64)
        _recall_asynchronous(self.W.numpy(), x.numpy(), field_BN.numpy(), energy, taken, np.uint64(key))
        last = int(taken.max(initial=0))
        cycle = torch.from_numpy((taken < sweeps).astype(np.int64))
        return Recall(x, torch.from_numpy(energy[:, : last + 1]), torch.from_numpy(taken), cycle)

    def flips(
        self, x_N: Tensor, generator: torch.Generator | None = None, *, sweeps: int = 100
    ) -> Iterator[tuple[int, int]]:
        """Yield the sweep and the unit of every flip of `recall` by (2) with the same generator; slow."""
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

    def _recall_synchronous(self, x: Tensor, sweeps: int) -> Recall:
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
    """Return +1 where z is at least 0, else -1."""
    return torch.where(z >= 0, 1.0, -1.0)


@numba.njit(cache=True)
def shuffle(order: NDArray[np.int64], state: Any) -> Any:
    """Fisher-Yates shuffle in place with splitmix64; return its next state."""
    for i in range(len(order) - 1, 0, -1):
        state += np.uint64(0x9E3779B97F4A7C15)
        z = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
        j = np.int64(((z >> np.uint64(32)) * np.uint64(i + 1)) >> np.uint64(32))
        order[i], order[j] = order[j], order[i]
    return state


@numba.njit(cache=True, error_model="numpy", nogil=True)
def _recall_asynchronous(
    W: NDArray[np.float32], x: NDArray[np.float32], field: NDArray[np.float32], energy: NDArray[np.float64],
    taken: NDArray[np.int64], key: Any,
) -> None:  # fmt: skip
    """Iterate (2) in place until no unit flips; `field` holds the local fields x W + b."""
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


# ---------------------------------------------------------------------- learning


class HopfieldLearner:
    """Learner of a Hopfield network: stores the patterns of every batch by a learning rule."""

    def __init__(self, model: Hopfield, rule: Rule, lr: float = 0.1) -> None:
        self.model, self.rule, self.lr = model, rule, lr
        self.diagonal_N = torch.zeros(model.config.units)

    @torch.no_grad()
    def step(self, batch: Batch) -> Metrics:
        x_BN = batch["pattern"].float()
        W, N = self.model.W, self.model.config.units
        if self.rule == "hebb":
            share = len(x_BN) / (int(self.model.stored) + len(x_BN))
            W.lerp_(x_BN.T @ x_BN / len(x_BN), share).fill_diagonal_(0)  # (4)
        elif self.rule == "gradient":
            W.add_(x_BN.T @ x_BN / len(x_BN), alpha=self.lr).fill_diagonal_(0)  # (5)
        else:
            for x_N in x_BN:
                self._store_one(x_N, W, N)
        self.model.stored += len(x_BN)
        stable = (self.model(x_BN) == x_BN).all(1).float().mean()
        return {"energy": self.model.energy(x_BN).mean() / N, "stable": stable}

    def _store_one(self, x_N: Tensor, W: Tensor, N: int) -> None:
        """Store one pattern by the pseudo-inverse or the Storkey rule."""
        if self.rule == "pseudo-inverse":
            W.diagonal().copy_(self.diagonal_N)
            r_N = x_N - x_N @ W
            if r_N @ r_N > 1e-4 * N:  # otherwise it depends linearly on stored patterns
                W.add_(torch.outer(r_N, r_N) / (r_N @ r_N))  # (6)
            self.diagonal_N = W.diagonal().clone()
        else:
            h_NN = (W @ x_N)[:, None] - W * x_N
            product_NN = x_N[:, None] * h_NN.T
            W.add_((torch.outer(x_N, x_N) - product_NN - product_NN.T) / N)  # (7)
        W.fill_diagonal_(0)

    def state_dict(self) -> dict[str, Any]:
        return {"diagonal": self.diagonal_N}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.diagonal_N = state["diagonal"]
