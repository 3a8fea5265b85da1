r"""Input of image models: shape and normalization of images, saved with the model.

    h = (x - \mu) / \sigma     normalization of each channel     (1)

    Symbols:
        x                 pixels from 0 to 1
        h                 normalized pixels
        \mu, \sigma       mean and standard deviation of a channel over the training set
        B, C, H, W        batch, channels, height, width

Normalization is part of the model, so that a saved model takes images as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from engram.core.config import FromData, Settings
from engram.core.errors import EngramError


@dataclass(frozen=True, kw_only=True)
class ImageConfig(Settings):
    """Shape and normalization of input images."""

    ranks: ClassVar[tuple[int, ...]] = (3,)
    """numbers of axes that an input may have"""
    shape: FromData[tuple[int, ...]] = (1, 28, 28)
    """channels, height and width of an image"""
    mean: FromData[tuple[float, ...]] = (0.0,)
    """mean of the training pixels of each channel"""
    std: FromData[tuple[float, ...]] = (1.0,)
    """standard deviation of the training pixels of each channel"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.shape) not in self.ranks or min(self.shape) < 1:
            raise EngramError(f"shape must be channels, height and width, not {self.shape}.")

    def standardize(self, x_BCHW: Tensor) -> Tensor:
        """Normalize pixels from 0 to 1 (1); refuse images of another shape."""
        check_images(x_BCHW, self.shape)
        if len(self.mean) == 1:
            return x_BCHW.sub(self.mean[0]).div_(self.std[0])  # (1)
        mean_C11, std_C11 = (x_BCHW.new_tensor(value)[:, None, None] for value in (self.mean, self.std))
        return x_BCHW.sub(mean_C11).div_(std_C11)

    def check_patch(self, patch: int) -> None:
        """Refuse patches that do not tile the image."""
        if patch < 1 or self.shape[1] % patch or self.shape[2] % patch:
            raise EngramError(f"patch must divide images of {self.shape[1]} × {self.shape[2]}, and is {patch}.")


@dataclass(frozen=True, kw_only=True)
class ImageClassifierConfig(ImageConfig):
    """Input images and number of classes of an image classifier."""

    classes: FromData[int] = 10
    """number of classes (K)"""

    def check_halvings(self, stages: int) -> None:
        """Refuse images that are too small to be halved by each stage."""
        if min(self.shape[1:]) < 2**stages:
            size = f"{self.shape[1]}×{self.shape[2]}"
            raise EngramError(f"Images of {size} are too small for {stages} stages, each of which halves them.")


def check_images(x_BCHW: Tensor, shape: Sequence[int]) -> None:
    """Refuse what is not a batch of images of a shape."""
    if tuple(x_BCHW.shape[1:]) != tuple(shape):
        size = "×".join(map(str, shape))
        raise _unexpected(f"images of {size} (channels, height, width), in batches of any size", x_BCHW)


def check_width(x_BF: Tensor, width: int) -> None:
    """Refuse what is not a batch of rows of a width."""
    if x_BF.ndim != 2 or x_BF.shape[1] != width:
        raise _unexpected(f"rows of {width} numbers, in batches of any size", x_BF)


def _unexpected(wanted: str, x: Tensor) -> EngramError:
    found = "×".join(map(str, x.shape)) or "one number"
    return EngramError(f"This model takes {wanted}, and a tensor of {found} was given.")


def pixel_statistics(image_NCHW: Tensor) -> dict[str, tuple[float, ...]]:
    """Return mean and standard deviation of each channel of uint8 images, as fields of `ImageConfig`."""
    pixels = image_NCHW[:10_000].float() / 255
    mean, std = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3)).clamp(min=1e-3)
    return {"mean": tuple(mean.tolist()), "std": tuple(std.tolist())}
