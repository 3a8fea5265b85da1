r"""Backpropagation by matrix products and by an expression graph (Rumelhart et al. 1986).

    z_{l+1} = h_l W_l + b_l                                                      forward, h_l = \sigma(z_l)          (1)
    \partial E / \partial z_L = (\text{softmax}(z_L) - T) / B                    softmax and cross-entropy           (2)
    \partial E / \partial z_l = \sigma'(z_l) \odot (\partial E / \partial z_{l+1}) W_l^\top      one layer back      (3)
    \partial E / \partial W_l = h_l^\top \partial E / \partial z_{l+1}           weights                             (4)
    \partial E / \partial b_l = \sum_B \partial E / \partial z_{l+1}             biases                              (5)

    Symbols:
        E          cross-entropy, averaged over the batch
        z_l, h_l   pre-activations and activations of layer l of L
        W_l, b_l   weights and biases
        T          one-hot labels
        \sigma     activation function
        B          batch size

The gradients are those of an ordinary `MLP`, which evaluation, reports and export use as any other. `nn.Linear` keeps
W^T, outputs × inputs.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from engram.foundations import autodiff
from engram.foundations.mlp.model import MLP
from engram.nn.activation import ACTIVATIONS

FUNCTIONS = {
    "logistic": autodiff.logistic,
    "tanh": autodiff.tanh,
    "arctan": autodiff.arctan,
    "relu": autodiff.relu,
    "softplus": autodiff.softplus,
    "identity": lambda z: z,
}
"""activation functions of the expression graph"""


class Gradients(NamedTuple):
    """Loss, logits and the gradients of every layer."""

    loss: Tensor
    W: list[Tensor]
    """gradients of the weights, outputs × inputs"""
    b: list[Tensor]
    """gradients of the biases"""
    logits: Tensor


def backprop_matrices(model: MLP, x_BCHW: Tensor, label_B: Tensor) -> Gradients:
    """Gradients by matrix products, layer by layer."""
    sigma = ACTIVATIONS[model.config.activation]
    layers: list[Any] = list(model.layers)
    with torch.no_grad():
        h, z = [model.config.standardize(x_BCHW).flatten(1)], []
        for i, layer in enumerate(layers):
            z.append(h[-1] @ layer.weight.T + layer.bias)  # (1)
            if i < len(layers) - 1:
                h.append(sigma.f(z[-1]))
        loss = F.cross_entropy(z[-1], label_B)
        T_BK = F.one_hot(label_B, z[-1].shape[1]).to(z[-1])
        d = (z[-1].softmax(1) - T_BK) / len(label_B)  # (2)
        dW, db = [], []
        for i in reversed(range(len(layers))):
            dW.append(d.T @ h[i])  # (4)
            db.append(d.sum(0))  # (5)
            if i:
                d = sigma.derivative(z[i - 1]) * (d @ layers[i].weight)  # (3)
    return Gradients(loss, dW[::-1], db[::-1], z[-1])


def backprop_graph(model: MLP, x_BCHW: Tensor, label_B: Tensor) -> Gradients:
    """Gradients by reverse-mode automatic differentiation of an expression graph in NumPy."""
    loss, logits, *variables = loss_expression(model, x_BCHW, label_B)
    loss.backward()
    dW, db = ([torch.from_numpy(one.grad) for one in ones] for ones in variables)
    return Gradients(torch.tensor(loss.val), dW, db, torch.from_numpy(logits.val))


def loss_expression(
    model: MLP, x_BCHW: Tensor, label_B: Tensor
) -> tuple[autodiff.Var, autodiff.Var, list[autodiff.Var], list[autodiff.Var]]:
    """Loss, logits, weights and biases as Vars, which share the memory of the model's weights."""
    layers: list[Any] = list(model.layers)
    weights = [autodiff.Var(layer.weight.detach().numpy(), f"W{i + 1}") for i, layer in enumerate(layers)]
    biases = [autodiff.Var(layer.bias.detach().numpy(), f"b{i + 1}") for i, layer in enumerate(layers)]
    sigma = FUNCTIONS[model.config.activation]
    h: Any = model.config.standardize(x_BCHW).flatten(1).numpy()
    for W, b in zip(weights, biases, strict=True):
        z = h @ W.T + b
        h = sigma(z)
    return autodiff.cross_entropy(z, np.asarray(label_B)), z, weights, biases


def backprop_torch(model: MLP, x_BCHW: Tensor, label_B: Tensor) -> Gradients:
    """Gradients by torch.autograd, for comparison."""
    layers: list[Any] = list(model.layers)
    with torch.enable_grad():
        logits = model(x_BCHW)
        loss = F.cross_entropy(logits, label_B)
        found = torch.autograd.grad(loss, [one for layer in layers for one in (layer.weight, layer.bias)])
    return Gradients(loss.detach(), list(found[::2]), list(found[1::2]), logits.detach())
