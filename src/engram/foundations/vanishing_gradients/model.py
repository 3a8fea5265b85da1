r"""Vanishing and exploding gradients in deep networks (Hochreiter 1991; Glorot and Bengio 2010).

    h \leftarrow \sigma(h W + b)                        plain                                                     (1)
    h \leftarrow \sigma(n(h W + b))                     norm: batch normalization                                 (2)
    h \leftarrow h + \sigma(h W + b) / \sqrt{L}         residual connection                                       (3)
    h \leftarrow h + \sigma(n(h W + b)) / \sqrt{L}      both                                                      (4)

    Symbols:
        h        activations of a layer
        W, b     weights and biases of a layer
        \sigma   activation function
        n        batch normalization
        L, D     hidden layers, units of each

Every layer of (1) multiplies the gradient by \sigma' and W: many factors below 1 make it vanish, many above 1 make it
explode. (2) keeps the scale of the activations, (3) passes the gradient on without factors.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt
from torch import Tensor, nn

from engram.core.tap import tap
from engram.nn.activation import ACTIVATIONS, ActivationName
from engram.nn.batch_norm import BatchNorm1d
from engram.nn.image_input import ImageClassifierConfig

Architecture = Literal["plain", "norm", "residual", "both"]
ARCHITECTURES: tuple[Architecture, ...] = ("plain", "norm", "residual", "both")


class DeepMLP(nn.Module):
    """A deep multi-layer perceptron of one architecture."""

    def __init__(self, inputs: int, outputs: int, layers: int, width: int, activation: ActivationName,
                 architecture: Architecture, gain: float = 1.0) -> None:  # fmt: skip
        super().__init__()
        self.activation, self.architecture = activation, architecture
        self.into, self.out = nn.Linear(inputs, width), nn.Linear(width, outputs)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.norms = nn.ModuleList(
            BatchNorm1d(width) if architecture in ("norm", "both") else nn.Identity() for _ in range(layers)
        )
        for layer in self.layers:
            nn.init.normal_(layer.weight, std=gain / width**0.5)  # type: ignore[arg-type]
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    def forward(self, x_BI: Tensor) -> Tensor:
        sigma, scale = ACTIVATIONS[self.activation].f, len(self.layers) ** -0.5
        h = self.into(x_BI)
        for i, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            f = sigma(norm(layer(h)))  # (1), (2)
            h = tap(f"hidden.{i}", h + scale * f if self.architecture in ("residual", "both") else f)  # (3), (4)
        return self.out(h)


class VanishingGradients(nn.Module):
    """Networks of the same depth and width, one of each architecture."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ImageClassifierConfig):
        layers: Annotated[int, Ge(1)] = 20
        """number of hidden layers (L)"""
        width: Annotated[int, Ge(1)] = 64
        """units of each hidden layer (D)"""
        activation: ActivationName = "logistic"
        """activation function of the hidden units"""
        gain: Annotated[float, Gt(0)] = 1.0
        """standard deviation of the initial weights, as a multiple of 1 / sqrt(D); above 1 gradients may explode"""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        inputs = config.shape[0] * config.shape[1] * config.shape[2]
        self.nets = nn.ModuleDict(
            {
                name: DeepMLP(inputs, config.classes, config.layers, config.width, config.activation, name, config.gain)
                for name in ARCHITECTURES
            }
        )

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Logits of all networks: architectures × B × classes."""
        x_BI = self.config.standardize(x_BCHW).flatten(1)
        return torch.stack([self.nets[name](x_BI) for name in ARCHITECTURES])
