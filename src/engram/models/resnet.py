"""Residual network (He et al. 2016; note 001 «ResNet»).   B batch, C H W picture, K classes

f(h) = n(sigma(n(h * k_1)) * k_2)             two convolutions, each batch-normalised              (1)
h    <- sigma(h + f(h))                       a round: the block adds to what is there             (2)
h    <- sigma(h * k_s + f_s(h))               first block of a stage: half the size, 1 × 1 kernel  (3)
y    = mean over the picture of h, V + c      head                                                 (4)
"""

from dataclasses import dataclass

from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.registry import FromData
from engram.core.tap import tap
from engram.layers.activation import ACTIVATIONS, ActivationName
from engram.layers.convolution import Convolution


class ResNet(nn.Module):
    """A stem, stages of residual blocks, and a linear head on the mean."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        shape: FromData[tuple[int, ...]] = (1, 28, 28)
        """channels, height and width of a picture"""
        classes: FromData[int] = 10
        """number of classes (K)"""
        mean: FromData[float] = 0.0
        """mean of the training pixels"""
        std: FromData[float] = 1.0
        """standard deviation of the training pixels"""
        channels: tuple[int, ...] = (32, 64, 128)
        """kernels of each stage; all but the first halve height and width"""
        blocks: int = 1
        """residual blocks in each stage"""
        residual: bool = True
        """add what a block makes to what came in; without it, the net is plain, and deep ones hardly learn"""
        activation: ActivationName = "relu"
        """function of every unit"""

        def __post_init__(self) -> None:
            if not self.channels or min(self.channels) < 1:
                raise EngramError(f"channels must name at least one stage of at least one kernel, not {self.channels}.")
            if self.blocks < 1:
                raise EngramError(f"blocks must be at least 1, not {self.blocks}.")

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        width = config.channels[0]
        self.stem = Convolution(config.shape[0], width, 3, stride=2)
        self.norm = nn.BatchNorm2d(width)
        self.blocks = nn.ModuleList()
        for stage, outputs in enumerate(config.channels):
            for block in range(config.blocks):
                stride = 2 if stage and not block else 1
                self.blocks.append(Block(width, outputs, stride, config))
                width = outputs
        self.head = nn.Linear(width, config.classes)
        self.initialise()

    def initialise(self) -> None:
        """Every block begins as nothing added: the gain of its last norm is zero, so that the net begins shallow."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if isinstance(module, Block) and self.config.residual:
                nn.init.zeros_(module.norm2.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        sigma = ACTIVATIONS[self.config.activation].f
        h_BCHW = (x_BCHW - self.config.mean) / self.config.std
        h_BCHW = tap("stem", sigma(self.norm(self.stem(h_BCHW))))
        for block in self.blocks:
            h_BCHW = block(h_BCHW)
        return tap("logits", self.head(tap("mean", h_BCHW.mean((2, 3)))))  # (4)


class Block(nn.Module):
    """One round of h + f(h)."""

    def __init__(self, inputs: int, outputs: int, stride: int, config: ResNet.Config) -> None:
        super().__init__()
        self.conv1 = Convolution(inputs, outputs, 3, stride=stride)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = Convolution(outputs, outputs, 3)
        self.norm2 = nn.BatchNorm2d(outputs)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else Convolution(inputs, outputs, 1, stride=stride)
        self.residual, self.activation = config.residual, config.activation

    def forward(self, h_BCHW: Tensor) -> Tensor:
        sigma = ACTIVATIONS[self.activation].f
        f_BCHW = self.norm2(self.conv2(sigma(self.norm1(self.conv1(h_BCHW)))))  # (1)
        if self.residual:
            f_BCHW = self.shortcut(h_BCHW) + tap("added", f_BCHW)  # (2), (3)
        return tap("map", sigma(f_BCHW))
