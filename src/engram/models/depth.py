"""Deep networks, and what becomes of their gradients on the way back (note 003 §11–13).   L layers of D units

    plain      h <- sigma(h W + b)                                                                                 (1)
    norm       h <- sigma(n(h W + b)),   n batch normalisation                                                     (2)
    residual   h <- h + sigma(h W + b) / sqrt(L)                                                                   (3)
    both       h <- h + sigma(n(h W + b)) / sqrt(L)                                                                (4)

Every layer of (1) multiplies the gradient by sigma' and W: many factors below one make it vanish, many above one make
it explode. (2) keeps the size of what goes forward, (3) gives the way back a lane without factors.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.tap import tap
from engram.layers.activation import ACTIVATIONS, ActivationName
from engram.layers.batch_norm import BatchNorm1d
from engram.layers.pictures import Pictures

Kind = Literal["plain", "norm", "residual", "both"]
KINDS: tuple[Kind, ...] = ("plain", "norm", "residual", "both")


class Deep(nn.Module):
    """One deep network."""

    def __init__(self, inputs: int, outputs: int, depth: int, width: int, activation: ActivationName, kind: Kind,
                 gain: float = 1.0) -> None:  # fmt: skip
        super().__init__()
        self.activation, self.kind = activation, kind
        self.into, self.out = nn.Linear(inputs, width), nn.Linear(width, outputs)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.norms = nn.ModuleList(
            BatchNorm1d(width) if kind in ("norm", "both") else nn.Identity() for _ in range(depth)
        )
        for layer in self.layers:
            nn.init.normal_(layer.weight, std=gain / width**0.5)  # type: ignore[arg-type]
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    def forward(self, x_BI: Tensor) -> Tensor:
        sigma, share = ACTIVATIONS[self.activation].f, len(self.layers) ** -0.5
        h = self.into(x_BI)
        for i, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            f = sigma(norm(layer(h)))  # (1), (2)
            h = tap(f"hidden.{i}", h + share * f if self.kind in ("residual", "both") else f)  # (3), (4)
        return self.out(h)


class Depth(nn.Module):
    """The same depth in four kinds."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Pictures):
        depth: int = 20
        """hidden layers (L)"""
        width: int = 64
        """units of each (D)"""
        activation: ActivationName = "logistic"
        """function of every hidden unit"""
        gain: float = 1.0
        """size of the weights at first, as a multiple of 1 / sqrt(D); above 1 gradients may explode"""

        def __post_init__(self) -> None:
            super().__post_init__()
            for name in ("depth", "width"):
                if getattr(self, name) < 1:
                    raise EngramError(f"{name} must be at least 1, not {getattr(self, name)}.")
            if not self.gain > 0:
                raise EngramError(f"gain must be above 0, not {self.gain}.")

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        inputs = config.shape[0] * config.shape[1] * config.shape[2]
        self.nets = nn.ModuleDict(
            {
                kind: Deep(inputs, config.classes, config.depth, config.width, config.activation, kind, config.gain)
                for kind in KINDS
            }
        )

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Logits of all kinds: kinds × B × classes."""
        x_BI = self.config.standardise(x_BCHW).flatten(1)
        return torch.stack([self.nets[kind](x_BI) for kind in KINDS])
