r"""Activation functions and their derivatives, numerically stable for any z.

    \sigma(z) = 1 / (1 + e^{-z}),\quad \sigma' = \sigma (1 - \sigma)             logistic          (1)
    f(z) = \tanh z,\quad f' = 1 - \tanh^2 z                                      tanh              (2)
    f(z) = \arctan z,\quad f' = 1 / (1 + z^2)                                    arctan            (3)
    f(z) = [z \ge 0],\quad f' = 0                                                threshold         (4)
    f(z) = \max(0, z),\quad f' = [z > 0]                                         relu              (5)
    f(z) = \log(1 + e^z),\quad f' = \sigma(z)                                    softplus          (6)
    f(z) = z,\quad f' = 1                                                        identity          (7)

    Symbols:
        z       weighted input of a unit
        f, f'   activation function and its derivative
        [ ]     1 where the condition holds, 0 elsewhere

softmax and argmax depend on all units of a layer, and are separate functions.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Activation(NamedTuple):
    """An elementwise activation function and its derivative."""

    f: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor]


def logistic_derivative(z: Tensor) -> Tensor:
    """Derivative of the logistic function, also where 1 - sigmoid(z) would round to 0."""
    return torch.sigmoid(z) * torch.sigmoid(-z)


def tanh_derivative(z: Tensor) -> Tensor:
    """Derivative of tanh, without the cancellation of 1 - tanh^2."""
    return 4 * torch.sigmoid(2 * z) * torch.sigmoid(-2 * z)


def threshold(z: Tensor) -> Tensor:
    """1 where z is at least 0, else 0."""
    return (z >= 0).to(z.dtype)


ACTIVATIONS: dict[str, Activation] = {
    "logistic": Activation(torch.sigmoid, logistic_derivative),  # (1)
    "tanh": Activation(torch.tanh, tanh_derivative),  # (2)
    "arctan": Activation(torch.arctan, lambda z: 1 / (1 + z * z)),  # (3)
    "threshold": Activation(threshold, torch.zeros_like),  # (4)
    "relu": Activation(torch.relu, lambda z: (z > 0).to(z.dtype)),  # (5)
    "softplus": Activation(F.softplus, torch.sigmoid),  # (6)
    "identity": Activation(lambda z: z, torch.ones_like),  # (7)
}

ActivationName = Literal["logistic", "tanh", "arctan", "threshold", "relu", "softplus", "identity"]


def softmax(z: Tensor) -> Tensor:
    """Softmax over the last dimension."""
    return torch.softmax(z, -1)


def argmax(z: Tensor) -> Tensor:
    """Keep the largest value of the last dimension, and set the others to 0."""
    return torch.zeros_like(z).scatter(-1, z.argmax(-1, keepdim=True), z.amax(-1, keepdim=True))
