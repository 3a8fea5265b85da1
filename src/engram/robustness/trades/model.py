r"""Strided convolutional network without normalization, for adversarial training.

    h \leftarrow \sigma(h * k)              stage: convolution of stride 2 halves height and width     (1)
    y = \sigma(h W + b) V + c               fully connected head, logits                               (2)

    Symbols:
        h               feature maps; at first the standardized image
        k               kernels of a convolution
        \sigma          ReLU
        W, b, V, c      weights and biases of the head
        y               logits
        B, C, H, W, K   batch, channels, height, width, classes

Without batch norm the prediction for an image depends on that image alone, and a pass is cheap, which PGD needs.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Le
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.tap import tap
from engram.nn.image_input import ImageClassifierConfig


class PlainCNN(nn.Module):
    """Strided convolutions, then two fully connected layers."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ImageClassifierConfig):
        channels: Annotated[tuple[int, ...], Ge(1)] = (32, 64)
        """channels of each stage, which halves height and width"""
        hidden: Annotated[int, Ge(1)] = 256
        """units of the fully connected layer"""
        outputs: Annotated[int, Ge(0), Le(1)] = 0
        """0: one logit per class; 1: a single output whose sign tells two classes apart"""

        def __post_init__(self) -> None:
            super().__post_init__()
            if not self.channels:
                raise EngramError("channels must name at least one stage.")
            self.check_halvings(len(self.channels))

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
        h_BCHW = self.config.standardize(x_BCHW).contiguous(memory_format=torch.channels_last)
        for i, stage in enumerate(self.stages):
            h_BCHW = tap(f"stage.{i}", F.relu(stage(h_BCHW)))  # (1)
        h_BD = tap("dense", F.relu(self.dense(h_BCHW.flatten(1))))
        return tap("logits", self.head(h_BD))  # (2)

    def predict_scores(self, x_BCHW: Tensor) -> Tensor:
        """Return the logits of all classes, also where a single output f tells two apart: -f/2 and f/2."""
        f_BK: Tensor = self(x_BCHW)
        return torch.cat([-f_BK, f_BK], 1) / 2 if self.config.outputs == 1 else f_BK
