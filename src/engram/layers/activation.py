"""Activation functions and their derivatives (note 003 §2.3), stable for any size of z.

    logistic   s = 1 / (1 + e^-z)     s (1 - s)              (1)
    tanh       tanh z                 1 - tanh^2 z           (2)
    arctan     arctan z               1 / (1 + z^2)          (3)
    threshold  0 if z < 0 else 1      0                      (4)
    relu       max(0, z)              0 if z <= 0 else 1     (5)
    softplus   log(1 + e^z)           logistic(z)            (6)
    identity   z                      1                      (7)

softmax and argmax look at all units together, and stand apart.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class Activation(NamedTuple):
    """A function of each unit by itself, and its derivative."""

    f: Callable[[Tensor], Tensor]
    derivative: Callable[[Tensor], Tensor]


def logistic_derivative(z: Tensor) -> Tensor:
    return torch.sigmoid(z) * torch.sigmoid(-z)  # 1 - s would be 0 as soon as s rounds to 1


def tanh_derivative(z: Tensor) -> Tensor:
    return 4 * torch.sigmoid(2 * z) * torch.sigmoid(-2 * z)  # 1 - tanh^2, without its cancellation


def threshold(z: Tensor) -> Tensor:
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
    """A distribution over the last dimension."""
    return torch.softmax(z, -1)


def argmax(z: Tensor) -> Tensor:
    """The largest of the last dimension keeps its value, the rest become 0."""
    return torch.zeros_like(z).scatter(-1, z.argmax(-1, keepdim=True), z.amax(-1, keepdim=True))
