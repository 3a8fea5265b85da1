r"""Restricted Boltzmann machine (RBM): energy, free energy, Gibbs sampling (Smolensky 1986).

Training: Hinton 2002.

    E(v, h) = -v W h^\top - b v^\top - c h^\top                        energy                         (1)
    P(h_j = 1 | v) = \sigma((v W + c)_j / T)                           hidden units given visible     (2)
    P(v_i = 1 | h) = \sigma((h W^\top + b)_i / T)                      visible units given hidden     (3)
    F(v) = -b v^\top - T \sum_j \log(1 + \exp((v W + c)_j / T))        free energy                    (4)
    P(v) \propto \exp(-F(v) / T)                                       marginal of the visible units

    Symbols:
        v, h     states of the visible and the hidden units, 0 or 1
        W        weights
        b, c     visible and hidden biases
        T        temperature
        B, V, H  batch, visible units, hidden units

A step of block Gibbs sampling draws all hidden units by (2), then all visible units by (3).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Gt
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.config import FromData, Settings
from engram.core.fit import FitMixin
from engram.core.tap import tap
from engram.nn.bernoulli import sample_bernoulli
from engram.nn.image_input import check_width

Sampler = Callable[[Tensor, torch.Generator], Tensor]
"""samples Bernoulli variables from their probabilities"""


class RBM(FitMixin, nn.Module):
    """Bernoulli-Bernoulli restricted Boltzmann machine: connections only between its two layers."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Settings):
        visible: FromData[int] = 784
        """visible units, one per pixel (V)"""
        hidden: Annotated[int, Ge(1)] = 500
        """hidden units (H)"""
        temperature: Annotated[float, Gt(0)] = 1.0
        """temperature of the Boltzmann distribution (T)"""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.W = nn.Parameter(torch.empty(config.visible, config.hidden), requires_grad=False)
        self.b = nn.Parameter(torch.empty(config.visible), requires_grad=False)
        self.c = nn.Parameter(torch.empty(config.hidden), requires_grad=False)
        self.initialize()

    def initialize(self, mean_V: Tensor | None = None) -> None:
        """Small random weights, and visible biases at the log-odds of `mean_V`, the data's mean (Hinton 2010)."""
        nn.init.normal_(self.W, std=0.01)
        nn.init.zeros_(self.c)
        nn.init.zeros_(self.b)
        if mean_V is not None:
            self.b.copy_(torch.logit(mean_V.clamp(0.001, 0.999)))

    def prob_hidden(self, v_BV: Tensor) -> Tensor:
        """Return P(h = 1 | v)."""
        return self._sigmoid_(torch.addmm(self.c, v_BV, self.W))  # (2)

    def prob_visible(self, h_BH: Tensor) -> Tensor:
        """Return P(v = 1 | h)."""
        return self._sigmoid_(torch.addmm(self.b, h_BH, self.W.T))  # (3)

    def _sigmoid_(self, z: Tensor) -> Tensor:
        """Compute sigma(z / T) in place."""
        return (z if self.config.temperature == 1 else z.div_(self.config.temperature)).sigmoid_()

    def energy(self, v_BV: Tensor, h_BH: Tensor) -> Tensor:
        """Return the energy E(v, h) of each row."""
        return -((v_BV @ self.W) * h_BH).sum(-1) - v_BV @ self.b - h_BH @ self.c  # (1)

    def free_energy(self, v_BV: Tensor) -> Tensor:
        """Return the free energy F(v) of each row."""
        T = self.config.temperature
        return -v_BV @ self.b - T * F.softplus(torch.addmm(self.c, v_BV, self.W) / T).sum(-1)  # (4)

    def gibbs(
        self, v_BV: Tensor, steps: int, generator: torch.Generator, sampler: Sampler = sample_bernoulli
    ) -> Tensor:
        """Run a Gibbs chain from v for some steps and return its visible units."""
        for _ in range(steps):
            h_BH = sampler(self.prob_hidden(v_BV), generator)
            v_BV = sampler(self.prob_visible(h_BH), generator)
        return v_BV

    def inpaint(self, v_BV: Tensor, known_BV: Tensor, steps: int, generator: torch.Generator) -> Tensor:
        """Clamp the `known` units, run Gibbs sampling on the others, and return their probabilities."""
        v, p = torch.where(known_BV, v_BV, sample_bernoulli(torch.sigmoid(self.b).expand_as(v_BV), generator)), v_BV
        for _ in range(steps):
            p = self.prob_visible(sample_bernoulli(self.prob_hidden(v), generator))
            v = torch.where(known_BV, v_BV, sample_bernoulli(p, generator))
        return torch.where(known_BV, v_BV, p)

    def forward(self, v_BV: Tensor) -> Tensor:
        """Return the mean-field reconstruction of v: P(v = 1 | P(h = 1 | v))."""
        check_width(v_BV, self.config.visible)
        h_BH = tap("hidden", self.prob_hidden(v_BV))
        return tap("reconstruction", self.prob_visible(h_BH))

    def sample(self, count: int, steps: int, generator: torch.Generator) -> Tensor:
        """Run Gibbs chains from noise and return the visible probabilities of the last step, count × V."""
        v_BV = sample_bernoulli(torch.sigmoid(self.b).expand(count, -1), generator)
        v_BV = self.gibbs(v_BV, steps - 1, generator)
        return self.prob_visible(sample_bernoulli(self.prob_hidden(v_BV), generator))
