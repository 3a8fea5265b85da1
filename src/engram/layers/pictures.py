"""What every classifier of pictures takes from its data, so that a saved model needs nothing else to see.

    h = (x - mean) / std          pixels from 0 to 1, standardised over the training set     (1)

Standardising is part of the model: whoever loads it gives it pictures as they are.
"""

from dataclasses import dataclass

from torch import Tensor

from engram.core.errors import EngramError
from engram.core.registry import FromData


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """Shape and brightness of the pictures, and what they are to be told apart as."""

    shape: FromData[tuple[int, ...]] = (1, 28, 28)
    """channels, height and width of a picture"""
    classes: FromData[int] = 10
    """number of classes (K)"""
    mean: FromData[float] = 0.0
    """mean of the training pixels"""
    std: FromData[float] = 1.0
    """standard deviation of the training pixels"""

    def __post_init__(self) -> None:
        if len(self.shape) != 3 or min(self.shape) < 1:
            raise EngramError(f"shape must be channels, height and width, not {self.shape}.")

    def standardise(self, x_BCHW: Tensor) -> Tensor:
        return x_BCHW.sub(self.mean).div_(self.std)  # (1)

    def must_outlast(self, halvings: int) -> None:
        """Refuse pictures that cannot be halved so often."""
        if min(self.shape[1:]) < 2**halvings:
            size = f"{self.shape[1]}×{self.shape[2]}"
            raise EngramError(f"Pictures of {size} are too small for {halvings} stages, each of which halves them.")
