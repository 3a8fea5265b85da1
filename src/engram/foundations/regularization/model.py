r"""Regularization: the same network trained with and without four regularizers, side by side.

    E(\theta) = -\frac{1}{B} \sum_b \log p_\theta(y_b | x_b)                none                                  (1)
    \theta^* = \theta_t, \quad E_v(\theta_t) = \min_s E_v(\theta_s)         early stopping of (1)                 (2)
    E(\theta) + \frac{\lambda}{2} |\theta|^2                                weight decay                          (3)
    h \gets h \cdot m / (1 - p), \quad m \sim B(1 - p)                      dropout                               (4)
    x \gets A(x)                                                            augmentation                          (5)

    Symbols:
        \theta_t      parameters at step t
        E_v           loss on the validation split
        h, m          hidden units, dropout mask: 1 with probability 1 - p, else 0
        A             random shifts and rotations
        \lambda       weight-decay coefficient
        p             dropout probability

All networks start from the same weights and see the same batches.
"""

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.foundations.mlp.model import MLP

REGULARIZERS = ("none", "early_stopping", "weight_decay", "dropout", "augmentation")


class Regularization(nn.Module):
    """One multilayer perceptron per regularizer, all with the same initial weights."""

    @dataclass(frozen=True, kw_only=True)
    class Config(MLP.Config):
        hidden: tuple[int, ...] = (256, 256)
        dropout: float = 0.5
        """dropout probability, used only by the dropout network"""

        def __post_init__(self) -> None:
            super().__post_init__()
            if not self.hidden:
                raise EngramError("hidden must have at least one layer: dropout acts on hidden units.")

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        first = MLP(replace(config, dropout=0.0))
        self.nets = nn.ModuleDict({name: copy.deepcopy(first) for name in REGULARIZERS})
        for name in REGULARIZERS:
            net: Any = self.nets[name]
            net.config = replace(config, dropout=config.dropout if name == "dropout" else 0.0)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Logits of all networks: networks × B × classes."""
        return torch.stack([self.nets[name](x_BCHW) for name in REGULARIZERS])
