"""Residual network (He et al. 2016; note 001 «ResNet»).   B batch, C H W picture, D last channels, K classes

    c(h) = sigma(n(h * k))                       convolution, batch norm n, activation                 (1)
    h    <- sigma(n(max over 2 × 2 of h * k))    a stage begins: other channels, half the size         (2)
    h    <- h + f(h),  f = c_2(c_1(h))           rounds: each block adds a little to what is there     (3)
    y    = (max over the picture of h) V + c     head                                                  (4)

The stream h is never squashed on its way: what a block adds stays until the head reads it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.tap import tap
from engram.layers.activation import ACTIVATIONS, ActivationName
from engram.layers.batch_norm import BatchNorm2d
from engram.layers.convolution import Convolution
from engram.layers.pictures import Pictures


class ResNet(nn.Module):
    """Stages of residual blocks, and a linear head."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Pictures):
        channels: tuple[int, ...] = (16, 32, 64)
        """kernels of each stage, which halves height and width"""
        blocks: int = 1
        """residual blocks in each stage"""
        residual: bool = True
        """add what a block makes to what came in; without it, the net is plain, and deep ones hardly learn"""
        activation: ActivationName = "relu"
        """function of every unit"""

        def __post_init__(self) -> None:
            super().__post_init__()
            if not self.channels or min(self.channels) < 1:
                raise EngramError(f"channels must name at least one stage of at least one kernel, not {self.channels}.")
            if self.blocks < 0:
                raise EngramError(f"blocks must not be negative, and is {self.blocks}.")
            self.must_outlast(len(self.channels))

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.stages = nn.ModuleList()
        width = config.shape[0]
        for outputs in config.channels:
            self.stages.append(Stage(width, outputs, config))
            width = outputs
        self.head = nn.Linear(width, config.classes)
        self.initialise()
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # the fastest layout, also on a CPU

    def initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        nn.init.zeros_(self.head.bias)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        h_BCHW = self.config.standardise(x_BCHW).contiguous(memory_format=torch.channels_last)
        for stage in self.stages:
            h_BCHW = stage(h_BCHW)
        h_BD = tap("hidden", h_BCHW.amax((2, 3)))
        return tap("logits", self.head(h_BD))  # (4)


class Stage(nn.Module):
    """To other channels and half the size, then rounds of h + f(h)."""

    def __init__(self, inputs: int, outputs: int, config: ResNet.Config) -> None:
        super().__init__()
        self.enter = Layer(inputs, outputs, config, pool=True)
        self.blocks = nn.ModuleList(Block(outputs, config) for _ in range(config.blocks))

    def forward(self, h_BCHW: Tensor) -> Tensor:
        h_BCHW = self.enter(h_BCHW)
        for block in self.blocks:
            h_BCHW = block(h_BCHW)
        return h_BCHW


class Block(nn.Module):
    """One round."""

    def __init__(self, width: int, config: ResNet.Config) -> None:
        super().__init__()
        self.first, self.second = Layer(width, width, config), Layer(width, width, config)
        self.residual = config.residual

    def forward(self, h_BCHW: Tensor) -> Tensor:
        added_BCHW = tap("added", self.second(self.first(h_BCHW)))
        return tap("stream", h_BCHW + added_BCHW if self.residual else added_BCHW)  # (3)


class Layer(nn.Module):
    """Convolution, batch norm, activation; pooling comes before the latter two, which then cost a quarter."""

    def __init__(self, inputs: int, outputs: int, config: ResNet.Config, pool: bool = False) -> None:
        super().__init__()
        self.pool = pool
        self.convolution = Convolution(inputs, outputs, 3)
        self.norm = BatchNorm2d(outputs)
        self.activation = config.activation

    def forward(self, h_BCHW: Tensor) -> Tensor:
        h_BCHW = self.convolution(h_BCHW)
        h_BCHW = F.max_pool2d(h_BCHW, 2) if self.pool else h_BCHW
        return tap("map", ACTIVATIONS[self.activation].f(self.norm(h_BCHW)))  # (1), (2)
