"""Multi-layer perceptron (note 003 §3.1, §8).   B batch, C H W picture, D units of a layer, K classes

    h_0   = (x - mean) / std          pixels, standardised over the training set     (1)
    h_l+1 = sigma(h_l W_l + b_l)      hidden layers                                  (2)
    y     = h_L W_L + b_L             logits                                         (3)

The softmax belongs to the loss, which takes logits so that nothing overflows.
"""

import math
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.tap import tap
from engram.layers.activation import ACTIVATIONS, ActivationName
from engram.layers.pictures import Pictures


class MLP(nn.Module):
    """Dense layers one after the other."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Pictures):
        hidden: tuple[int, ...] = (128,)
        """units of each hidden layer (D)"""
        activation: ActivationName = "relu"
        """function of every hidden unit"""
        dropout: float = 0.0
        """part of the hidden units that is silenced at random while learning"""

        def __post_init__(self) -> None:
            super().__post_init__()
            if any(units < 1 for units in self.hidden):
                raise EngramError(f"hidden must name layers of at least one unit, not {self.hidden}.")
            if not 0 <= self.dropout < 1:
                raise EngramError(f"dropout is a part, at least 0 and below 1, not {self.dropout}.")

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        sizes = [math.prod(config.shape), *config.hidden, config.classes]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False))
        self.initialise()

    def initialise(self) -> None:
        """Variance that neither grows nor shrinks with depth: 2 / fan-in for ReLU, else 1 / fan-in."""
        gain = "relu" if self.config.activation in ("relu", "softplus") else "linear"
        for layer in self.layers:
            nn.init.kaiming_normal_(layer.weight, nonlinearity=gain)  # type: ignore[arg-type]
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    def forward(self, x_BCHW: Tensor) -> Tensor:
        sigma = ACTIVATIONS[self.config.activation].f
        h_BD = self.config.standardise(x_BCHW).flatten(1)  # (1)
        for i, layer in enumerate(self.layers[:-1]):
            h_BD = tap(f"hidden.{i}", sigma(layer(h_BD)))  # (2)
            h_BD = F.dropout(h_BD, self.config.dropout, self.training) if self.config.dropout else h_BD
        return tap("logits", self.layers[-1](h_BD))  # (3)
