r"""Gradient descent with momentum, with gradients that do not come from torch.autograd.

v \leftarrow \beta v + \partial E / \partial \theta      momentum               (1)
\theta \leftarrow \theta - \kappa v                      update                 (2)

Symbols:
    \theta   weights and biases
    v        velocity
    \kappa   learning rate, which falls linearly to 0
    \beta    momentum coefficient
"""

from typing import Any

import torch

from engram.core.learner import Batch, Metrics
from engram.foundations.backprop.model import backprop_graph, backprop_matrices, backprop_torch
from engram.foundations.mlp.model import MLP
from engram.training.rule_learner import RuleLearner, Updates

METHODS = {"hand": backprop_matrices, "graph": backprop_graph, "torch": backprop_torch}
"""functions that compute the gradients of an MLP"""


class BackpropLearner(RuleLearner[MLP]):
    """Trains an MLP with gradients by matrix products ("hand"), an expression graph or torch.autograd."""

    def __init__(self, model: MLP, method: str, lr: float, momentum: float, steps: int) -> None:
        super().__init__(model, steps)
        self.method, self.lr, self.momentum = method, lr, momentum
        self.v = {name: torch.zeros_like(weight) for name, weight in model.named_parameters()}

    def find_update(self, rows: Batch) -> tuple[Updates, Metrics]:
        found = METHODS[self.method](self.model, rows["image"], rows["label"])
        gradients = [one for pair in zip(found.W, found.b, strict=True) for one in pair]
        accuracy = (found.logits.argmax(1) == rows["label"]).float().mean()
        return dict(zip(self.v, gradients, strict=True)), {"loss": found.loss, "accuracy": accuracy}

    def apply_update(self, update: Updates) -> None:
        rate = self.lr * (1 - self.done / self.steps)
        for name, weight in self.model.named_parameters():
            self.v[name].mul_(self.momentum).add_(update[name])  # (1)
            weight.sub_(self.v[name], alpha=rate)  # (2)

    def state_dict(self) -> dict[str, Any]:
        return {"done": self.done, "v": self.v}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.done = state["done"]
        for name, saved in state["v"].items():
            self.v[name].copy_(saved)
