"""Overfitting and four remedies, side by side (note 003 §12).

nothing        the same network that the others are, and nothing against it                                    (1)
stopped        (1) as it was when the loss on held-out data was lowest: early stopping                         (2)
decay          E + lambda/2 |theta|^2: weight decay                                                            (3)
dropout        hidden units silenced at random while learning                                                  (4)
augment        pictures shifted and turned while learning                                                      (5)
"""

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.learner import Batch, Gradient, Metrics
from engram.core.side_by_side import SideBySide
from engram.models.mlp import MLP

REMEDIES = ("nothing", "stopped", "decay", "dropout", "augment")


class Remedies(nn.Module):
    """The same perceptron five times."""

    @dataclass(frozen=True, kw_only=True)
    class Config(MLP.Config):
        hidden: tuple[int, ...] = (256, 256)
        dropout: float = 0.5
        """part of the hidden units that is silenced at random while learning, in the network that has this remedy"""

        def __post_init__(self) -> None:
            super().__post_init__()
            if not self.hidden:
                raise EngramError("hidden must name at least one layer: there is nothing to silence otherwise.")

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        first = MLP(replace(config, dropout=0.0))
        self.nets = nn.ModuleDict({name: copy.deepcopy(first) for name in REMEDIES})
        for name in REMEDIES:
            net: Any = self.nets[name]
            net.config = replace(config, dropout=config.dropout if name == "dropout" else 0.0)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Logits of all networks: networks × B × classes."""
        return torch.stack([self.nets[name](x_BCHW) for name in REMEDIES])


class Remedying(SideBySide):
    """The learner: four networks learn, and a fifth keeps the best that the first has been."""

    def __init__(self, model: Remedies, learners: dict[str, Gradient], held: Batch, look: int) -> None:
        super().__init__(learners, model)
        self.held, self.look, self.done, self.lowest = held, look, 0, float("inf")

    def step(self, batch: Batch) -> Metrics:
        metrics = super().step(batch)
        self.done += 1
        if self.done % self.look == 0:
            self.keep_if_better()
        return metrics

    @torch.no_grad()
    def keep_if_better(self) -> None:
        """(2)"""
        loss = F.cross_entropy(self.model.nets["nothing"].eval()(self.held["image"]), self.held["label"]).item()
        if loss < self.lowest:
            self.lowest = loss
            self.model.nets["stopped"].load_state_dict(self.model.nets["nothing"].state_dict())

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"done": self.done, "lowest": self.lowest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.done, self.lowest = state["done"], state["lowest"]
