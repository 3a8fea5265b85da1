r"""Modern Hopfield network with continuous states: recall is attention (Ramsauer et al. 2021).

    E(s) = -1/\beta \log \sum_m \exp(\beta s x_m^\top) + 1/2 s s^\top             energy                       (1)
    s \leftarrow \text{softmax}(\beta s X^\top) X                                 update                       (2)
    s \leftarrow \text{attention}(Q = \beta \sqrt{N} s, K = X, V = X)             the same as attention        (3)

    Symbols:
        s        continuous state
        x_m, X   stored pattern m; all patterns, one per row
        \beta    inverse temperature
        B, M, N  states, patterns, units

Attention divides by \sqrt{N}, which is why (3) multiplies by it. Well separated patterns are recalled in one update;
with a small beta several are mixed. The capacity grows exponentially with N.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Gt
from torch import Tensor, nn

from engram.core.config import FromData, Settings
from engram.core.errors import EngramError
from engram.core.fit import FitMixin
from engram.core.tap import is_watched, tap
from engram.memory.hopfield.model import Recall
from engram.nn.attention import attention, reference_attention


class ModernHopfield(FitMixin, nn.Module):
    """Associative memory that keeps patterns as rows and recalls them by softmax attention."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Settings):
        units: FromData[int] = 100
        """units of a pattern (N)"""
        patterns: FromData[int] = 10
        """largest number of patterns (M)"""
        beta: Annotated[float, Gt(0)] = 1.0
        """inverse temperature of the softmax: small values mix patterns, large ones pick the most similar"""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.X = nn.Parameter(torch.zeros(config.patterns, config.units), requires_grad=False)
        self.stored: Tensor
        self.register_buffer("stored", torch.zeros((), dtype=torch.long))

    @classmethod
    def from_patterns(cls, X_MN: Tensor, beta: float = 1.0) -> "ModernHopfield":
        """Create a network that has stored these patterns."""
        M, N = X_MN.shape
        return cls(cls.Config(units=N, patterns=M, beta=beta)).store(X_MN)

    def store(self, x_BN: Tensor) -> "ModernHopfield":
        """Store patterns in addition to those stored before, and return the network."""
        first = int(self.stored)
        if first + len(x_BN) > self.config.patterns:
            raise EngramError(f"There is room for {self.config.patterns} patterns, and {first} are stored already.")
        self.X[first : first + len(x_BN)] = x_BN
        self.stored += len(x_BN)
        return self

    @property
    def memory(self) -> Tensor:
        """The patterns stored so far."""
        return self.X[: int(self.stored)]

    def energy(self, s_BN: Tensor) -> Tensor:
        """Return the energy of each state."""
        beta = self.config.beta
        return -(beta * s_BN @ self.memory.T).logsumexp(-1) / beta + 0.5 * s_BN.square().sum(-1)  # (1)

    def forward(self, s_BN: Tensor) -> Tensor:
        """Update each state once: attention with states as queries and patterns as keys and values."""
        if not int(self.stored):
            raise EngramError("Nothing is stored yet.")
        q, k = self.config.beta * math.sqrt(self.config.units) * s_BN, self.memory
        attend = reference_attention if is_watched("weights") else attention
        return tap("state", attend(q[None, None], k[None, None], k[None, None])[0, 0])  # (2), (3)

    def recall(self, s_BN: Tensor, steps: int = 3, tolerance: float = 1e-4) -> Recall:
        """Iterate the update until the states change by less than `tolerance`, for at most `steps`."""
        energies, taken = [self.energy(s_BN).double()], torch.full((len(s_BN),), steps)
        cycle = torch.zeros(len(s_BN), dtype=torch.long)
        for step in range(1, steps + 1):
            after = self(s_BN)
            ended = ((after - s_BN).abs().amax(1) < tolerance) & (cycle == 0)
            taken[ended], cycle[ended] = step - 1, 1
            s_BN = after
            energies.append(self.energy(s_BN).double())
        return Recall(s_BN, torch.stack(energies, 1), taken, cycle)
