"""Spiking classifier: leaky neurons that fire, taught by surrogate gradients (note 003 §2.5; Neftci et al. 2019,
Eshraghian et al. 2023).   T time steps, B batch, C H W picture, D units of a layer, K classes

    z_0 = x                                                 the picture as a current that stays, or             (1)
    z_0,t ~ Bernoulli(x)                                    as spikes, each pixel as often as it is bright      (2)
    s_l = spikes of leaky neurons with current z_(l-1) W_l + b_l                 layers/spiking                 (3)
    u = membranes of leaky neurons that never fire, with current s_L W + b                                      (4)
    y = mean over t of u_t                                  logits                                              (5)
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.tap import tap
from engram.layers.pictures import Pictures
from engram.layers.spiking import Leaky, leaky


class SpikingNet(nn.Module):
    """Dense layers of spiking neurons."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Pictures, Leaky):
        hidden: tuple[int, ...] = (1000,)
        """neurons of each hidden layer (D)"""
        time: int = 25
        """time steps for which a picture is shown (T)"""
        coding: Literal["current", "spikes"] = "current"
        """how a picture enters: as a current that stays, or as random spikes"""

        def __post_init__(self) -> None:
            Pictures.__post_init__(self)
            Leaky.__post_init__(self)
            if not self.hidden or any(units < 1 for units in self.hidden):
                raise EngramError(f"hidden must name layers of at least one neuron, not {self.hidden}.")
            if self.time < 1:
                raise EngramError(f"time must be at least 1, not {self.time}.")

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        sizes = [math.prod(config.shape), *config.hidden, config.classes]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False))

    def forward(self, x_BCHW: Tensor) -> Tensor:
        config = self.config
        if config.coding == "current":
            s_TBN, _ = leaky(self.layers[0](config.standardise(x_BCHW).flatten(1)), config, config.time)  # (1), (3)
        else:
            chance_BD = x_BCHW.flatten(1).clamp(0, 1)
            z_TBD = torch.bernoulli(chance_BD.expand(config.time, *chance_BD.shape))  # (2)
            s_TBN, _ = leaky(self.layers[0](tap("spikes.in", z_TBD)), config)
        s_TBN = tap("spikes.0", s_TBN)
        for i, layer in enumerate(self.layers[1:-1], 1):
            s_TBN = tap(f"spikes.{i}", leaky(layer(s_TBN), config)[0])  # (3)
        never = Leaky(beta=config.beta, theta=1e30, surrogate="straight", truncate=config.truncate)
        u_TBK = tap("membrane", leaky(self.layers[-1](s_TBN), never)[1])  # (4)
        return tap("logits", u_TBK.mean(0))  # (5)
