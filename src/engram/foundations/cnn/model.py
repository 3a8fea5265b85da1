r"""Convolutional neural network (CNN; LeCun et al. 1998), batch normalization (Ioffe & Szegedy 2015).

    n(h) = \gamma (h - \mu) / \sqrt{v + \epsilon} + \beta      batch normalization, per channel               (1)
    h \leftarrow \sigma(n(\text{maxpool}(h * k)))              first convolution of a stage, max-pooled 2 × 2  (2)
    h \leftarrow \sigma(n(h * k))                              further convolutions of a stage                (3)
    y = \text{dropout}(\sigma(h W + b)) V + c                  fully connected head, logits                   (4)

    Symbols:
        h               feature maps; at first the standardized image
        k               kernels of a convolution
        \mu, v          mean and variance of a channel over the batch
        \gamma, \beta   scale and shift of a channel
        \sigma          activation function
        B, C, H, W, K   batch, channels, height, width, classes

Pooling comes before normalization and activation, which then cost a quarter; max-pooling and ReLU commute.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.fit import FitMixin
from engram.core.tap import tap
from engram.nn.activation import ACTIVATIONS, ActivationName
from engram.nn.batch_norm import BatchNorm2d
from engram.nn.convolution import Convolution
from engram.nn.image_input import ImageClassifierConfig


class CNN(FitMixin, nn.Module):
    """Stages of convolution and pooling, then two fully connected layers."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ImageClassifierConfig):
        channels: Annotated[tuple[int, ...], Ge(1)] = (24, 48, 96)
        """output channels of each stage; a stage halves height and width"""
        convolutions: Annotated[tuple[int, ...], Ge(1)] = (1, 2, 2)
        """convolutions in each stage"""
        kernel: Annotated[int, Ge(1)] = 3
        """kernel size (height and width), odd"""
        flip_kernel: bool = False
        """true convolution (kernel rotated by 180 degrees) instead of cross-correlation"""
        hidden: Annotated[int, Ge(1)] = 128
        """units of the fully connected layer"""
        activation: ActivationName = "relu"
        """activation function of the hidden units"""
        dropout: Annotated[float, Ge(0), Lt(1)] = 0.2
        """dropout probability of the fully connected layer; 0 disables"""

        def __post_init__(self) -> None:
            super().__post_init__()
            if not self.channels:
                raise EngramError("channels must name at least one stage.")
            if self.kernel % 2 == 0:
                raise EngramError(f"kernel must be odd, so that it has a center, not {self.kernel}.")
            if len(self.convolutions) != len(self.channels):
                stages = len(self.channels)
                raise EngramError(f"convolutions must name {stages} numbers, one per stage, not {self.convolutions}.")
            self.check_halvings(len(self.channels))

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
        self.initialize()
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # the fastest layout, also on a CPU

    def initialize(self) -> None:
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        h_BCHW = self.config.standardize(x_BCHW).contiguous(memory_format=torch.channels_last)
        for stage in self.stages:
            h_BCHW = stage(h_BCHW)
        h_BD = ACTIVATIONS[self.config.activation].f(self.dense(h_BCHW.flatten(1)))
        h_BD = F.dropout(tap("hidden", h_BD), self.config.dropout, self.training)
        return tap("logits", self.head(h_BD))  # (4)


class Stage(nn.Module):
    """Convolutions with batch normalization and activation; the first one is max-pooled."""

    def __init__(self, inputs: int, outputs: int, layers: int, config: CNN.Config) -> None:
        super().__init__()
        widths = [inputs] + [outputs] * layers
        self.convolutions = nn.ModuleList(
            Convolution(a, b, config.kernel, flip_kernel=config.flip_kernel)
            for a, b in zip(widths, widths[1:], strict=False)
        )
        self.norms = nn.ModuleList(BatchNorm2d(outputs) for _ in range(layers))  # (1)
        self.activation = config.activation

    def forward(self, h_BCHW: Tensor) -> Tensor:
        sigma = ACTIVATIONS[self.activation].f
        for i, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            h_BCHW = convolution(h_BCHW)
            h_BCHW = F.max_pool2d(h_BCHW, 2) if i == 0 else h_BCHW
            h_BCHW = tap(f"map.{i}", sigma(norm(h_BCHW)))  # (2), (3)
        return h_BCHW
