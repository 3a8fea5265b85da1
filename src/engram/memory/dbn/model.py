r"""Deep belief network (DBN): a stack of restricted Boltzmann machines (Hinton, Osindero & Teh 2006).

v_{l+1} \sim P(h_l | v_l)                   features of the layer below           (1)
v_L \sim \text{Gibbs chain of RBM } L       top-level associative memory          (2)
v_l \sim P(v_l | v_{l+1})                   ancestral sampling, top to bottom     (3)

Symbols:
    v_1     data
    v_l     visible units of RBM l
    h_l     hidden units of RBM l, the visible units of RBM l + 1
    L       number of RBMs
    B       batch
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor, nn

from engram.core.config import FromData, Settings
from engram.core.errors import EngramError
from engram.core.fit import FitMixin
from engram.core.tap import tap
from engram.memory.rbm.model import RBM
from engram.nn.bernoulli import sample_bernoulli


class DBN(FitMixin, nn.Module):
    """A stack of restricted Boltzmann machines."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Settings):
        visible: FromData[int] = 784
        """visible units, one per pixel"""
        hidden: Annotated[tuple[int, ...], Ge(1)] = (500, 500)
        """hidden units of each RBM, from the bottom to the top"""

        def __post_init__(self) -> None:
            super().__post_init__()
            if not self.hidden:
                raise EngramError("hidden must name at least one layer.")

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        sizes = [config.visible, *config.hidden]
        self.rbms = nn.ModuleList(RBM(RBM.Config(visible=a, hidden=b)) for a, b in zip(sizes, sizes[1:], strict=False))

    @property
    def layers(self) -> list[RBM]:
        """The RBMs from the bottom to the top."""
        return list(self.rbms)  # type: ignore[arg-type]

    def initialize(self, mean_V: Tensor) -> None:
        """Set the visible biases of the lowest RBM to the log-odds of the data."""
        self.layers[0].initialize(mean_V)

    def up(self, v_BV: Tensor, levels: int) -> Tensor:
        """Return the hidden probabilities of RBM number `levels`, by a mean-field pass from the bottom."""
        for i, rbm in enumerate(self.layers[:levels]):
            v_BV = tap(f"hidden.{i}", rbm.prob_hidden(v_BV))  # (1)
        return v_BV

    def down(self, h_BH: Tensor, levels: int) -> Tensor:
        """Return visible probabilities given the hidden units of RBM number `levels`, by mean field."""
        for rbm in reversed(self.layers[:levels]):
            h_BH = rbm.prob_visible(h_BH)  # (3)
        return h_BH

    def forward(self, v_BV: Tensor) -> Tensor:
        """Return the reconstruction of v by a mean-field pass up to the top and down again."""
        levels = len(self.rbms)
        return tap("reconstruction", self.down(self.up(v_BV, levels), levels))

    def sample(self, count: int, steps: int, generator: torch.Generator) -> Tensor:
        """Run Gibbs chains in the top RBM and return the visible probabilities below them, count × V."""
        h_BH = self.layers[-1].sample(count, steps, generator)  # (2)
        return self.down(sample_bernoulli(h_BH, generator), len(self.rbms) - 1)
