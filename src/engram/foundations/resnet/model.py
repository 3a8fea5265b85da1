r"""Residual network (ResNet, He et al. 2016).

    c(h) = \sigma(n(h * k))                                      convolution, batch normalization, activation    (1)
    h \leftarrow \sigma(n(\text{maxpool}(h * k)))                first layer of a stage, max-pooled 2 × 2        (2)
    h \leftarrow h + c_2(c_1(h))                                 residual block                                  (3)
    y = \max_{H, W}(h) V + c                                     global max-pooling and linear head, logits      (4)

    Symbols:
        h                  feature maps (residual stream); at first the standardized image
        k                  kernels of a convolution
        n                  batch normalization
        \sigma             activation function
        B, C, H, W, D, K   batch, channels, height, width, channels of the last stage, classes

The residual stream passes from block to block without a nonlinearity: a block adds to it, and the head reads it.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.fit import FitMixin
from engram.core.tap import tap
from engram.nn.activation import ACTIVATIONS, ActivationName
from engram.nn.batch_norm import BatchNorm2d
from engram.nn.convolution import Convolution
from engram.nn.image_input import ImageClassifierConfig


class ResNet(FitMixin, nn.Module):
    """Stages of residual blocks, and a linear head."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ImageClassifierConfig):
        channels: Annotated[tuple[int, ...], Ge(1)] = (16, 32, 64)
        """output channels of each stage; a stage halves height and width"""
        blocks: Annotated[int, Ge(0)] = 1
        """residual blocks in each stage"""
        residual: bool = True
        """residual (skip) connections; without them the network is plain, and deep ones hardly learn"""
        activation: ActivationName = "relu"
        """activation function of the hidden units"""

        def __post_init__(self) -> None:
            super().__post_init__()
            if not self.channels:
                raise EngramError("channels must name at least one stage.")
            self.check_halvings(len(self.channels))

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.stages = nn.ModuleList()
        width = config.shape[0]
        for outputs in config.channels:
            self.stages.append(Stage(width, outputs, config))
            width = outputs
        self.head = nn.Linear(width, config.classes)
        self.initialize()
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # the fastest layout, also on a CPU

    def initialize(self) -> None:
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
        nn.init.zeros_(self.head.bias)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        h_BCHW = self.config.standardize(x_BCHW).contiguous(memory_format=torch.channels_last)
        for stage in self.stages:
            h_BCHW = stage(h_BCHW)
        h_BD = tap("hidden", h_BCHW.amax((2, 3)))
        return tap("logits", self.head(h_BD))  # (4)


class Stage(nn.Module):
    """A pooled layer that changes the number of channels, then residual blocks."""

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
    """Residual block: two layers whose output is added to their input."""

    def __init__(self, width: int, config: ResNet.Config) -> None:
        super().__init__()
        self.first, self.second = Layer(width, width, config), Layer(width, width, config)
        self.residual = config.residual

    def forward(self, h_BCHW: Tensor) -> Tensor:
        added_BCHW = tap("added", self.second(self.first(h_BCHW)))
        return tap("residual", h_BCHW + added_BCHW if self.residual else added_BCHW)  # (3)


class Layer(nn.Module):
    """Convolution, optional max-pooling, batch normalization, activation."""

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
