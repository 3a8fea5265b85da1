r"""Sample space of a generative model: images or points, and how they are normalized.

u = (x - c) / s        normalized, what the network computes with              (1)
x = c + s u            denormalized: pixels from 0 to 1, or coordinates        (2)

Symbols:
    x       image with pixels from 0 to 1, or point
    u       normalized image or point
    c, s    center and scale of the data
"""

import math
from dataclasses import dataclass

from torch import Tensor

from engram.core.config import FromData, Settings
from engram.core.errors import EngramError
from engram.nn.image_input import check_images, check_width


@dataclass(frozen=True, kw_only=True)
class SampleSpace(Settings):
    """Shape and normalization of the samples of a generative model."""

    shape: FromData[tuple[int, ...]] = (1, 28, 28)
    """channels, height and width of an image, or the dimensions of a point"""
    center: FromData[float] = 0.5
    """value that is normalized to 0: the middle of the pixel range, or the mean of the coordinates"""
    scale: FromData[float] = 0.5
    """value that is normalized to 1: half the pixel range, or the standard deviation of the coordinates"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.shape) not in (1, 3) or min(self.shape) < 1:
            raise EngramError(f"shape must be channels, height and width, or dimensions, not {self.shape}.")

    @property
    def is_image(self) -> bool:
        return len(self.shape) == 3

    @property
    def numel(self) -> int:
        """number of pixels or coordinates of one sample"""
        return math.prod(self.shape)

    def check(self, x: Tensor) -> None:
        """Refuse samples of another shape."""
        if self.is_image:
            check_images(x, self.shape)
        else:
            check_width(x, self.shape[0])

    def normalize(self, x: Tensor) -> Tensor:
        return (x - self.center) / self.scale  # (1)

    def denormalize(self, u: Tensor) -> Tensor:
        """Invert `normalize`; pixels are clamped to 0 … 1."""
        x = self.center + self.scale * u  # (2)
        return x.clamp(0, 1) if self.is_image else x
