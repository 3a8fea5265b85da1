"""What every model of pictures takes from its data, so that a saved model needs nothing else to see.

    h = (x - mean) / std          pixels from 0 to 1, standardised over the training set, channel by channel     (1)

Standardising is part of the model: whoever loads it gives it pictures as they are.
"""

from dataclasses import dataclass

from torch import Tensor

from engram.core.errors import EngramError
from engram.core.registry import FromData


@dataclass(frozen=True, kw_only=True)
class Pixels:
    """Shape and brightness of pictures."""

    shape: FromData[tuple[int, ...]] = (1, 28, 28)
    """channels, height and width of a picture"""
    mean: FromData[tuple[float, ...]] = (0.0,)
    """mean of the training pixels of each channel"""
    std: FromData[tuple[float, ...]] = (1.0,)
    """standard deviation of the training pixels of each channel"""

    def __post_init__(self) -> None:
        if len(self.shape) != 3 or min(self.shape) < 1:
            raise EngramError(f"shape must be channels, height and width, not {self.shape}.")

    def standardise(self, x_BCHW: Tensor) -> Tensor:
        if len(self.mean) == 1:
            return x_BCHW.sub(self.mean[0]).div_(self.std[0])  # (1)
        mean_C11, std_C11 = (x_BCHW.new_tensor(value)[:, None, None] for value in (self.mean, self.std))
        return x_BCHW.sub(mean_C11).div_(std_C11)

    def must_divide(self, patch: int) -> None:
        """Refuse patches that do not fill the picture."""
        if patch < 1 or self.shape[1] % patch or self.shape[2] % patch:
            raise EngramError(f"patch must divide pictures of {self.shape[1]} × {self.shape[2]}, and is {patch}.")


@dataclass(frozen=True, kw_only=True)
class Pictures(Pixels):
    """Pictures, and what they are to be told apart as."""

    classes: FromData[int] = 10
    """number of classes (K)"""

    def must_outlast(self, halvings: int) -> None:
        """Refuse pictures that cannot be halved so often."""
        if min(self.shape[1:]) < 2**halvings:
            size = f"{self.shape[1]}×{self.shape[2]}"
            raise EngramError(f"Pictures of {size} are too small for {halvings} stages, each of which halves them.")


def brightness(image_NCHW: Tensor) -> dict[str, tuple[float, ...]]:
    """Mean and standard deviation of each channel of some pictures (uint8), as a configuration has them."""
    pixels = image_NCHW[:10_000].float() / 255
    mean, std = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3)).clamp(min=1e-3)
    return {"mean": tuple(mean.tolist()), "std": tuple(std.tolist())}
