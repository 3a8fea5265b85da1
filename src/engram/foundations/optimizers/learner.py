r"""Moves every optimizer on the surface.

    x \gets x - \kappa g                                                         gradient descent (gd)            (1)
    x \gets x - \kappa (g + \xi)                                                 stochastic (sgd)                 (2)
    v \gets \beta v + g, \quad x \gets x - \kappa v                              momentum                         (3)
    u \gets \rho u + (1 - \rho) g^2, \quad x \gets x - \kappa g / (\sqrt{u} + \epsilon)      rmsprop              (4)
    x \gets x - \kappa \hat m / (\sqrt{\hat u} + \epsilon)                       adam                             (5)
    v \gets \beta v + g, \quad x \gets x - \kappa v / |v|                        muon                             (6)

    Symbols:
        x, g          position on the surface, gradient of E(x)
        \kappa        learning rate
        \xi           gradient noise, the same for all optimizers but gd
        \hat m, \hat u  bias-corrected averages of g and g^2

In (6), v / |v| is the orthogonal factor of a matrix of one row. The steps are those of torch.optim and
`engram.training.muon`.
"""

from typing import Any

import torch
from torch import Tensor

from engram.core.learner import Batch, Metrics
from engram.foundations.optimizers.model import OPTIMIZERS, OptimizerRace
from engram.training.muon import Muon
from engram.training.optimizer import load_optimizer_state

DIVERGED = 1e6
"""coordinate at which an optimizer has diverged and stops"""


class RaceLearner:
    """Takes one step of every optimizer."""

    def __init__(self, model: OptimizerRace, start: Tensor, lr: float, adaptive_lr: float, beta: float) -> None:
        self.model, self.path = model, [start.expand(len(OPTIMIZERS), 2).clone()]
        for position in model.positions.values():
            position.data.copy_(start)
        x = model.positions
        self.optimizers: dict[str, torch.optim.Optimizer] = {
            "gd": torch.optim.SGD([x["gd"]], lr),  # (1)
            "sgd": torch.optim.SGD([x["sgd"]], lr),  # (2)
            "momentum": torch.optim.SGD([x["momentum"]], lr, momentum=beta),  # (3)
            "rmsprop": torch.optim.RMSprop([x["rmsprop"]], adaptive_lr),  # (4)
            "adam": torch.optim.Adam([x["adam"]], adaptive_lr, betas=(beta, 0.999)),  # (5)
            "muon": Muon([x["muon"]], lr=adaptive_lr, momentum=beta, weight_decay=0.0),  # (6)
        }

    def step(self, batch: Batch) -> Metrics:
        values = {}
        for name, optimizer in self.optimizers.items():
            position = self.model.positions[name]
            value, g = self.model.value_and_gradient(position.detach())
            if position.abs().max() < DIVERGED and g.isfinite().all():
                position.grad = g + (batch["noise"] if name != "gd" else 0)
                optimizer.step()
            values[name] = torch.tensor(value)
        self.path.append(torch.cat([self.model.positions[name].detach() for name in OPTIMIZERS]))
        return values

    def state_dict(self) -> dict[str, Any]:
        states = {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()}
        return {"path": torch.stack(self.path), "optimizers": states}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.path = list(state["path"].unbind(0))
        for name, optimizer in self.optimizers.items():
            load_optimizer_state(optimizer, state["optimizers"][name])
