r"""Spiking classifier: layers of leaky integrate-and-fire neurons, trained with surrogate gradients.

    z_0 = x                                       constant current: standardized pixels                      (1)
    z_{0,t} \sim \text{Bernoulli}(x)              or random spikes at a rate given by the pixel              (2)
    s_l = \text{LIF}(z_{l-1} W_l + b_l)           spikes of hidden layer l, z_l = s_l                        (3)
    u_t = \beta u_{t-1} + s_{L,t} W + b           membranes of the output neurons, which never spike         (4)
    y = \frac{1}{T} \sum_t u_t                    logits                                                     (5)

    Symbols:
        x             image
        s_l           spikes of layer l
        u             membrane potential of the output neurons
        \beta         decay of the membrane per time step
        T, B, D, K    time steps, batch, neurons of a layer, classes

Neftci et al. (2019), Eshraghian et al. (2023). The layers themselves are in `nn.spiking`.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Ge
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.tap import tap
from engram.nn.image_input import ImageClassifierConfig
from engram.nn.spiking import Leaky, leaky


class SpikingNet(nn.Module):
    """Linear layers of leaky integrate-and-fire neurons, and a readout of membranes."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ImageClassifierConfig, Leaky):
        hidden: tuple[int, ...] = (1000,)
        """neurons of each hidden layer (D)"""
        time: Annotated[int, Ge(1)] = 25
        """time steps per image (T)"""
        coding: Literal["current", "spikes"] = "current"
        """input coding: pixels as constant currents, or as random spikes"""

        def __post_init__(self) -> None:
            ImageClassifierConfig.__post_init__(self)
            Leaky.__post_init__(self)
            if not self.hidden or any(units < 1 for units in self.hidden):
                raise EngramError(f"hidden must name layers of at least one neuron, not {self.hidden}.")

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        sizes = [math.prod(config.shape), *config.hidden, config.classes]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False))

    def forward(self, x_BCHW: Tensor) -> Tensor:
        config = self.config
        if config.coding == "current":
            s_TBN, _ = leaky(self.layers[0](config.standardize(x_BCHW).flatten(1)), config, config.time)  # (1), (3)
        else:
            rate_BD = x_BCHW.flatten(1).clamp(0, 1)
            z_TBD = torch.bernoulli(rate_BD.expand(config.time, *rate_BD.shape))  # (2)
            s_TBN, _ = leaky(self.layers[0](tap("spikes.in", z_TBD)), config)
        s_TBN = tap("spikes.0", s_TBN)
        for i, layer in enumerate(self.layers[1:-1], 1):
            s_TBN = tap(f"spikes.{i}", leaky(layer(s_TBN), config)[0])  # (3)
        silent = Leaky(beta=config.beta, theta=1e30, surrogate="straight", truncate=config.truncate)
        u_TBK = tap("membrane", leaky(self.layers[-1](s_TBN), silent)[1])  # (4)
        return tap("logits", u_TBK.mean(0))  # (5)
