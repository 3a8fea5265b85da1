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
from engram.training import distributed
from engram.training.learner import micro_batches

METHODS = {"hand": backprop_matrices, "graph": backprop_graph, "torch": backprop_torch}
"""functions that compute the gradients of an MLP"""


class BackpropLearner:
    """Trains an MLP with gradients by matrix products ("hand"), an expression graph or torch.autograd."""

    def __init__(self, model: MLP, method: str, lr: float, momentum: float, steps: int) -> None:
        self.model, self.method, self.lr, self.momentum, self.steps, self.done = model, method, lr, momentum, steps, 0
        self.v = [torch.zeros_like(weight) for weight in model.parameters()]

    @torch.no_grad()
    def step(self, batch: Batch) -> Metrics:
        ((batch, share),) = micro_batches(batch, 1)
        found = METHODS[self.method](self.model, batch["image"], batch["label"])
        rate = self.lr * (1 - self.done / self.steps)
        gradients = [share * one for pair in zip(found.W, found.b, strict=True) for one in pair]
        distributed.average(gradients)
        for weight, v, gradient in zip(self.model.parameters(), self.v, gradients, strict=True):
            v.mul_(self.momentum).add_(gradient)  # (1)
            weight.sub_(v, alpha=rate)  # (2)
        self.done += 1
        accuracy = (found.logits.argmax(1) == batch["label"]).float().mean()
        return {"loss": share * found.loss, "accuracy": share * accuracy}

    def state_dict(self) -> dict[str, Any]:
        return {"done": self.done, "v": self.v}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.done = state["done"]
        for v, saved in zip(self.v, state["v"], strict=True):
            v.copy_(saved)
