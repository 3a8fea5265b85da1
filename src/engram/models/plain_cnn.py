"""Convolutional network with strides and without normalisation.   B batch, C H W picture, K classes

    h <- sigma(h * k), stride 2         a stage halves height and width          (1)
    y = sigma(h W + b) V + c            dense head                               (2)

What attacks and defences are tried on: each picture's answer depends on it alone, and it is quick to go through often.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.tap import tap
from engram.layers.pictures import Pictures


class PlainCNN(nn.Module):
    """Strided convolutions, then two dense layers."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Pictures):
        channels: tuple[int, ...] = (32, 64)
        """kernels of each stage, which halves height and width"""
        hidden: int = 256
        """units of the dense layer"""
        outputs: int = 0
        """numbers that come out; 0 is one for each class, 1 is a single one whose sign tells two classes apart"""

        def __post_init__(self) -> None:
            super().__post_init__()
            if not self.channels or min(self.channels) < 1:
                raise EngramError(f"channels must name at least one stage of at least one kernel, not {self.channels}.")
            if self.hidden < 1:
                raise EngramError(f"hidden must be at least 1, not {self.hidden}.")
            if self.outputs not in (0, 1):
                raise EngramError(f"outputs must be 0, for one of each class, or 1, not {self.outputs}.")
            self.must_outlast(len(self.channels))

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        channels, height, width = config.shape
        self.stages = nn.ModuleList()
        for outputs in config.channels:
            self.stages.append(nn.Conv2d(channels, outputs, 4, stride=2, padding=1))
            channels, height, width = outputs, height // 2, width // 2
        self.dense = nn.Linear(channels * height * width, config.hidden)
        self.head = nn.Linear(config.hidden, config.outputs or config.classes)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x_BCHW: Tensor) -> Tensor:
        h_BCHW = self.config.standardise(x_BCHW).contiguous(memory_format=torch.channels_last)
        for i, stage in enumerate(self.stages):
            h_BCHW = tap(f"stage.{i}", F.relu(stage(h_BCHW)))  # (1)
        h_BD = tap("dense", F.relu(self.dense(h_BCHW.flatten(1))))
        return tap("logits", self.head(h_BD))  # (2)
