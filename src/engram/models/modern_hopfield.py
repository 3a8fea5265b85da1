"""Modern Hopfield network (Ramsauer et al. 2021).   B states, M patterns, N numbers of a pattern

    E(s) = -1/beta log sum_m e^(beta s x_m') + 1/2 s s'             energy of a continuous state s                 (1)
    s <- softmax(beta s X') X                                       one step downhill                              (2)
    s <- attention(Q = beta sqrt(N) s, K = X, V = X)                the same: a Transformer's attention            (3)

Attention divides by sqrt(N), which is why (3) multiplies by it. Patterns that differ enough are found in one step; with
a small beta several of them are mixed. As many can be stored as grow exponentially with N.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.learner import Batch, Metrics
from engram.core.registry import FromData
from engram.core.tap import tap, watched
from engram.layers.attention import attention, textbook
from engram.models.hopfield import Recall


class ModernHopfield(nn.Module):
    """Patterns that are kept as they are, and asked by what is like them."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        units: FromData[int] = 100
        """numbers of a pattern (N)"""
        patterns: FromData[int] = 10
        """room for patterns (M)"""
        beta: float = 1.0
        """how sharply the pattern that is most alike stands out"""

        def __post_init__(self) -> None:
            if not self.beta > 0:
                raise EngramError(f"beta must be above 0, not {self.beta}.")

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.X = nn.Parameter(torch.zeros(config.patterns, config.units), requires_grad=False)
        self.stored: Tensor
        self.register_buffer("stored", torch.zeros((), dtype=torch.long))

    @classmethod
    def of(cls, X_MN: Tensor, beta: float = 1.0) -> "ModernHopfield":
        """A network that has stored these patterns."""
        M, N = X_MN.shape
        return cls(cls.Config(units=N, patterns=M, beta=beta)).store(X_MN)

    def store(self, x_BN: Tensor) -> "ModernHopfield":
        """Remember patterns, beside those of before."""
        first = int(self.stored)
        if first + len(x_BN) > self.config.patterns:
            raise EngramError(f"There is room for {self.config.patterns} patterns, and {first} are stored already.")
        self.X[first : first + len(x_BN)] = x_BN
        self.stored += len(x_BN)
        return self

    @property
    def memory(self) -> Tensor:
        return self.X[: int(self.stored)]

    def energy(self, s_BN: Tensor) -> Tensor:
        beta = self.config.beta
        return -(beta * s_BN @ self.memory.T).logsumexp(-1) / beta + 0.5 * s_BN.square().sum(-1)  # (1)

    def forward(self, s_BN: Tensor) -> Tensor:
        """One step by the attention of Transformers: a state is a token that asks, a pattern one that answers."""
        if not int(self.stored):
            raise EngramError("Nothing is stored yet.")
        q, k = self.config.beta * math.sqrt(self.config.units) * s_BN, self.memory
        attend = textbook if watched("weights") else attention
        return tap("state", attend(q[None, None], k[None, None], k[None, None])[0, 0])  # (3)

    def recall(self, s_BN: Tensor, steps: int = 3, tolerance: float = 1e-4) -> Recall:
        """Where states settle."""
        energies, taken = [self.energy(s_BN).double()], torch.full((len(s_BN),), steps)
        cycle = torch.zeros(len(s_BN), dtype=torch.long)
        for step in range(1, steps + 1):
            after = self(s_BN)
            ended = ((after - s_BN).abs().amax(1) < tolerance) & (cycle == 0)
            taken[ended], cycle[ended] = step - 1, 1
            s_BN = after
            energies.append(self.energy(s_BN).double())
        return Recall(s_BN, torch.stack(energies, 1), taken, cycle)


class Filling:
    """The learner of a modern Hopfield network: each pattern that comes is kept; what comes again is not."""

    def __init__(self, model: ModernHopfield) -> None:
        self.model = model

    @torch.no_grad()
    def step(self, batch: Batch) -> Metrics:
        x_BN = batch["pattern"][: self.model.config.patterns - int(self.model.stored)]
        self.model.store(x_BN)
        return {"energy": self.model.energy(batch["pattern"]).mean() / self.model.config.units}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass
