"""Where generated things live: pictures, or points of a space.

u = (x - centre) / scale          what a model computes with, of the size of one                             (1)
x = centre + scale u              what it is given and what it makes: pixels from 0 to 1, or coordinates     (2)
"""

import math
from dataclasses import dataclass

from torch import Tensor

from engram.core.errors import EngramError
from engram.core.registry import FromData


@dataclass(frozen=True, kw_only=True)
class Space:
    """Shape and size of what is made."""

    shape: FromData[tuple[int, ...]] = (1, 28, 28)
    """channels, height and width of a picture, or the dimensions of a point"""
    centre: FromData[float] = 0.5
    """the middle of the data"""
    scale: FromData[float] = 0.5
    """half the width of pixels, or the standard deviation of coordinates"""

    def __post_init__(self) -> None:
        if len(self.shape) not in (1, 3) or min(self.shape) < 1:
            raise EngramError(f"shape must be channels, height and width, or dimensions, not {self.shape}.")

    @property
    def pictures(self) -> bool:
        return len(self.shape) == 3

    @property
    def numbers(self) -> int:
        """how many make up one thing"""
        return math.prod(self.shape)

    def inside(self, x: Tensor) -> Tensor:
        return (x - self.centre) / self.scale  # (1)

    def outside(self, u: Tensor) -> Tensor:
        """Pixels are held between 0 and 1."""
        x = self.centre + self.scale * u  # (2)
        return x.clamp(0, 1) if self.pictures else x
