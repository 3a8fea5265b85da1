"""Back-propagation twice without torch's: by hand in matrices, and by an expression graph (note 003 §8–10).

B batch, layers 1 … L of a multi-layer perceptron, T the right classes as ones among zeros

    z_l+1 = h_l W_l + b_l,   h_l+1 = sigma(z_l+1)                   forward                                        (1)
    dE/dz_L = (softmax(z_L) - T) / B                                cross-entropy and softmax together             (2)
    dE/dz_l = sigma'(z_l) * (dE/dz_l+1 W_l')                        one layer back                                 (3)
    dE/dW_l = h_l' dE/dz_l+1,   dE/db_l = sum_B dE/dz_l+1                                                          (4)
    theta <- theta - kappa v,   v <- beta v + dE/dtheta             update                                         (5)

Both learners change the weights of an ordinary `MLP`, which evaluation, reports and export then use as any other. A
weight matrix of torch is W' here.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from engram import autodiff
from engram.core import together
from engram.core.learner import Batch, Metrics, cut
from engram.layers.activation import ACTIVATIONS
from engram.models.mlp import MLP

FUNCTIONS = {
    "logistic": autodiff.logistic,
    "tanh": autodiff.tanh,
    "arctan": autodiff.arctan,
    "relu": autodiff.relu,
    "softplus": autodiff.softplus,
    "identity": lambda z: z,
}
"""activations that the expression graph knows"""


class Gradients(NamedTuple):
    """Of the loss, layer by layer."""

    loss: Tensor
    W: list[Tensor]
    """as torch keeps them, outputs × inputs"""
    b: list[Tensor]
    logits: Tensor


def by_hand(model: MLP, x_BCHW: Tensor, label_B: Tensor) -> Gradients:
    """Matrices, one layer after the other."""
    sigma = ACTIVATIONS[model.config.activation]
    layers: list[Any] = list(model.layers)
    with torch.no_grad():
        h, z = [model.config.standardise(x_BCHW).flatten(1)], []
        for i, layer in enumerate(layers):
            z.append(h[-1] @ layer.weight.T + layer.bias)  # (1)
            if i < len(layers) - 1:
                h.append(sigma.f(z[-1]))
        loss = F.cross_entropy(z[-1], label_B)
        T_BK = F.one_hot(label_B, z[-1].shape[1]).to(z[-1])
        d = (z[-1].softmax(1) - T_BK) / len(label_B)  # (2)
        dW, db = [], []
        for i in reversed(range(len(layers))):
            dW.append(d.T @ h[i])  # (4), transposed
            db.append(d.sum(0))
            if i:
                d = sigma.derivative(z[i - 1]) * (d @ layers[i].weight)  # (3)
    return Gradients(loss, dW[::-1], db[::-1], z[-1])


def by_graph(model: MLP, x_BCHW: Tensor, label_B: Tensor) -> Gradients:
    """An expression of Vars that share the weights' memory, and one walk back through it."""
    loss, logits, *variables = expression(model, x_BCHW, label_B)
    loss.backward()
    dW, db = ([torch.from_numpy(one.grad) for one in ones] for ones in variables)
    return Gradients(torch.tensor(loss.val), dW, db, torch.from_numpy(logits.val))


def expression(
    model: MLP, x_BCHW: Tensor, label_B: Tensor
) -> tuple[autodiff.Var, autodiff.Var, list[autodiff.Var], list[autodiff.Var]]:
    """The loss and the logits, and the weights and biases that they are made of."""
    layers: list[Any] = list(model.layers)
    weights = [autodiff.Var(layer.weight.detach().numpy(), f"W{i + 1}") for i, layer in enumerate(layers)]
    biases = [autodiff.Var(layer.bias.detach().numpy(), f"b{i + 1}") for i, layer in enumerate(layers)]
    sigma = FUNCTIONS[model.config.activation]
    h: Any = model.config.standardise(x_BCHW).flatten(1).numpy()
    for W, b in zip(weights, biases, strict=True):
        z = h @ W.T + b
        h = sigma(z)
    return autodiff.cross_entropy(z, np.asarray(label_B)), z, weights, biases


def by_torch(model: MLP, x_BCHW: Tensor, label_B: Tensor) -> Gradients:
    """torch.autograd, to compare with."""
    layers: list[Any] = list(model.layers)
    with torch.enable_grad():
        logits = model(x_BCHW)
        loss = F.cross_entropy(logits, label_B)
        found = torch.autograd.grad(loss, [one for layer in layers for one in (layer.weight, layer.bias)])
    return Gradients(loss.detach(), list(found[::2]), list(found[1::2]), logits.detach())


WAYS = {"hand": by_hand, "graph": by_graph, "torch": by_torch}


class Plain:
    """The learner: gradients by one of the ways, and (5)."""

    def __init__(self, model: MLP, way: str, lr: float, momentum: float, steps: int) -> None:
        self.model, self.way, self.lr, self.momentum, self.steps, self.done = model, way, lr, momentum, steps, 0
        self.v = [torch.zeros_like(weight) for weight in model.parameters()]

    @torch.no_grad()
    def step(self, batch: Batch) -> Metrics:
        ((batch, share),) = cut(batch, 1)
        found = WAYS[self.way](self.model, batch["image"], batch["label"])
        rate = self.lr * (1 - self.done / self.steps)
        gradients = [share * one for pair in zip(found.W, found.b, strict=True) for one in pair]
        together.average(gradients)
        for weight, v, gradient in zip(self.model.parameters(), self.v, gradients, strict=True):
            v.mul_(self.momentum).add_(gradient)
            weight.sub_(v, alpha=rate)  # (5)
        self.done += 1
        hits = (found.logits.argmax(1) == batch["label"]).float().mean()
        return {"loss": share * found.loss, "accuracy": share * hits}

    def state_dict(self) -> dict[str, Any]:
        return {"done": self.done, "v": self.v}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.done = state["done"]
        for v, saved in zip(self.v, state["v"], strict=True):
            v.copy_(saved)
