"""Convolutional network (note 003 §14–15).   B batch, C H W picture, K classes

    n(h) = gamma (h - mu) / sqrt(s^2 + eps) + beta     batch normalisation, per kernel                        (1)
    h    <- sigma(n(max over 2 × 2 of h * k))          a stage begins: many kernels, pooled to half the size  (2)
    h    <- sigma(n(h * k))                            and goes on at that size                               (3)
    y    = dropout(sigma(h W + b)) V + c               dense head                                             (4)

Pooling comes before norm and activation, which then cost a quarter.
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


class CNN(nn.Module):
    """Stages of convolution and pooling, then two dense layers."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Pictures):
        channels: tuple[int, ...] = (24, 48, 96)
        """kernels of each stage, which halves height and width"""
        convolutions: tuple[int, ...] = (1, 2, 2)
        """convolutions in each stage"""
        kernel: int = 3
        """height and width of a kernel, odd"""
        turned: bool = False
        """true convolution (the kernel turned by 180 degrees) instead of cross-correlation"""
        hidden: int = 128
        """units of the dense layer"""
        activation: ActivationName = "relu"
        """function of every hidden unit"""
        dropout: float = 0.2
        """part of the dense layer's units that is silenced at random while learning"""

        def __post_init__(self) -> None:
            super().__post_init__()
            if not self.channels or min(self.channels) < 1:
                raise EngramError(f"channels must name at least one stage of at least one kernel, not {self.channels}.")
            if self.kernel < 1 or self.kernel % 2 == 0:
                raise EngramError(f"kernel must be odd, so that it has a middle, not {self.kernel}.")
            if len(self.convolutions) != len(self.channels) or min(self.convolutions) < 1:
                stages = len(self.channels)
                raise EngramError(f"convolutions must name {stages} numbers, one per stage, not {self.convolutions}.")
            if self.hidden < 1:
                raise EngramError(f"hidden must be at least 1, not {self.hidden}.")
            self.must_outlast(len(self.channels))
            if not 0 <= self.dropout < 1:
                raise EngramError(f"dropout is a part, at least 0 and below 1, not {self.dropout}.")

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        channels, height, width = config.shape
        self.stages = nn.ModuleList()
        for outputs, depth in zip(config.channels, config.convolutions, strict=True):
            self.stages.append(Stage(channels, outputs, depth, config))
            channels, height, width = outputs, height // 2, width // 2
        self.dense = nn.Linear(channels * height * width, config.hidden)
        self.head = nn.Linear(config.hidden, config.classes)
        self.initialise()
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # the fastest layout, also on a CPU

    def initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        h_BCHW = self.config.standardise(x_BCHW).contiguous(memory_format=torch.channels_last)
        for stage in self.stages:
            h_BCHW = stage(h_BCHW)
        h_BD = ACTIVATIONS[self.config.activation].f(self.dense(h_BCHW.flatten(1)))
        h_BD = F.dropout(tap("hidden", h_BD), self.config.dropout, self.training)
        return tap("logits", self.head(h_BD))  # (4)


class Stage(nn.Module):
    """Convolutions, the first of which is pooled: before norm and activation, which then cost a quarter."""

    def __init__(self, inputs: int, outputs: int, depth: int, config: CNN.Config) -> None:
        super().__init__()
        widths = [inputs] + [outputs] * depth
        self.convolutions = nn.ModuleList(
            Convolution(a, b, config.kernel, turned=config.turned) for a, b in zip(widths, widths[1:], strict=False)
        )
        self.norms = nn.ModuleList(BatchNorm2d(outputs) for _ in range(depth))  # (1)
        self.activation = config.activation

    def forward(self, h_BCHW: Tensor) -> Tensor:
        sigma = ACTIVATIONS[self.activation].f
        for i, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            h_BCHW = convolution(h_BCHW)
            h_BCHW = F.max_pool2d(h_BCHW, 2) if i == 0 else h_BCHW
            h_BCHW = tap(f"map.{i}", sigma(norm(h_BCHW)))  # (2), (3)
        return h_BCHW
