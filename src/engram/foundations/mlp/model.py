r"""Multi-layer perceptron (MLP): fully connected layers and activations (Rumelhart et al. 1986).

    h_0 = (x - \mu) / s                       inputs, standardized over the training set        (1)
    h_{l+1} = \sigma(h_l W_l + b_l)           hidden layers                                     (2)
    y = h_L W_L + b_L                         logits                                            (3)
    \hat{t} = \mu_t + s_t y                   regression: prediction in units of the target     (4)

    Symbols:
        x            pixels of an image, from 0 to 1, or features of a row of a table
        \mu, s       mean and standard deviation of the training pixels, or of each feature
        \mu_t, s_t   mean and standard deviation of the training targets
        \sigma       activation function
        W_l, b_l     weights and biases of layer l of L
        B, F, D, K   batch, features, units of a layer, classes

The softmax is part of the loss, which takes logits for numerical stability.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Lt
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.config import FromData
from engram.core.fit import FitMixin
from engram.core.tap import tap
from engram.nn.activation import ACTIVATIONS, ActivationName
from engram.nn.image_input import ImageClassifierConfig, check_width


class MLP(FitMixin, nn.Module):
    """Fully connected layers, from an image or a table row to the logits of classes, or to one number."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ImageClassifierConfig):
        ranks: ClassVar[tuple[int, ...]] = (1, 3)
        hidden: Annotated[tuple[int, ...], Ge(1)] = (128,)
        """units of each hidden layer (D)"""
        activation: ActivationName = "relu"
        """activation function of the hidden units"""
        dropout: Annotated[float, Ge(0), Lt(1)] = 0.0
        """dropout probability of the hidden units; 0 disables"""
        output: FromData[Literal["logits", "number"]] = "logits"
        """logits of classes, or one number (regression)"""
        target_mean: FromData[float] = 0.0
        """regression: mean of the training targets"""
        target_std: FromData[float] = 1.0
        """regression: standard deviation of the training targets"""

        def standardize(self, x: Tensor) -> Tensor:
            """Standardize each feature of rows, or the pixels of images (1)."""
            if len(self.shape) == 3:
                return super().standardize(x)
            check_width(x, self.shape[0])
            return (x - x.new_tensor(self.mean)) / x.new_tensor(self.std)  # (1)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        sizes = [math.prod(config.shape), *config.hidden, config.classes]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False))
        self.initialize()

    def initialize(self) -> None:
        """He initialization: variance 2 / fan-in for ReLU and softplus, 1 / fan-in otherwise (He et al. 2015)."""
        gain = "relu" if self.config.activation in ("relu", "softplus") else "linear"
        for layer in self.layers:
            nn.init.kaiming_normal_(layer.weight, nonlinearity=gain)  # type: ignore[arg-type]
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        sigma = ACTIVATIONS[self.config.activation].f
        h_BD = self.config.standardize(x).flatten(1)  # (1)
        for i, layer in enumerate(self.layers[:-1]):
            h_BD = tap(f"hidden.{i}", sigma(layer(h_BD)))  # (2)
            h_BD = F.dropout(h_BD, self.config.dropout, self.training) if self.config.dropout else h_BD
        y_BK = tap("logits", self.layers[-1](h_BD))  # (3)
        if self.config.output == "logits":
            return y_BK
        return self.config.target_mean + self.config.target_std * y_BK[:, 0]  # (4)
