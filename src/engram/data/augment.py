"""Small random changes of a picture that leave its meaning as it is, drawn anew for every picture of a batch.

B batch, C channels, H height, W width. The whole batch is changed at once: no Python per picture.
"""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional

from engram.core.errors import EngramError


@dataclass(frozen=True, kw_only=True)
class Augment:
    """Which changes are made, and how large they may be."""

    shift: int = 0
    """move each picture by up to this many pixels each way, filling with black"""
    flip: bool = False
    """mirror half of the pictures left to right"""
    rotate: float = 0.0
    """turn each picture by up to this many degrees either way, filling with black"""
    zoom: float = 0.0
    """make each picture larger or smaller by up to this part, filling with black"""
    colour: float = 0.0
    """mix the colours of each picture with others by up to this part, and make it lighter or darker by as much"""
    noise: float = 0.0
    """standard deviation of Gaussian noise added to each pixel, where black is 0 and white is 1"""

    def __post_init__(self) -> None:
        if not isinstance(self.shift, int) or self.shift < 0:
            raise EngramError(f"shift is a whole number of pixels from 0, not {self.shift}.")
        if not 0 <= self.rotate <= 180:
            raise EngramError(f"rotate is an angle from 0 to 180 degrees, not {self.rotate}.")
        for name in ("zoom", "colour"):
            if not 0 <= getattr(self, name) < 1:
                raise EngramError(f"{name} is a part, at least 0 and below 1, not {getattr(self, name)}.")
        if not 0 <= self.noise < math.inf:
            raise EngramError(f"noise is a standard deviation from 0, not {self.noise}.")

    def __call__(self, image_BCHW: Tensor, generator: Generator) -> Tensor:
        """The batch (float, 0 to 1) with the changes made; all chance comes from `generator`."""
        count, device = len(image_BCHW), image_BCHW.device

        def uniform(*shape: int) -> Tensor:
            """Uniform between -1 and 1."""
            return (torch.rand(*shape, generator=generator, device=generator.device) * 2 - 1).to(device)

        if self.flip:
            image_BCHW = flip(image_BCHW, uniform(count) < 0)
        if self.rotate or self.zoom:
            larger_B = 1 + self.zoom * uniform(count) if self.zoom else None
            image_BCHW = rotate(image_BCHW, self.rotate * uniform(count), larger_B)
        if self.shift:
            most = min(self.shift, max(image_BCHW.shape[2:]))  # farther there is nothing left of a picture
            down_B, right_B = (uniform(2, count) * (most + 0.5)).round().long().clamp(-most, most)
            image_BCHW = shift(image_BCHW, down_B, right_B, most)
        if self.colour:
            image_BCHW = mixed(image_BCHW, self.colour * uniform(count, image_BCHW.shape[1], image_BCHW.shape[1]),
                               self.colour * uniform(count))  # fmt: skip
        if self.noise:
            normal = torch.randn(image_BCHW.shape, generator=generator, device=generator.device).to(image_BCHW)
            image_BCHW = (image_BCHW + self.noise * normal).clamp(0, 1)
        return image_BCHW


def flip(image_BCHW: Tensor, which_B: Tensor) -> Tensor:
    """Mirror the chosen pictures left to right."""
    return torch.where(which_B[:, None, None, None], image_BCHW.flip(-1), image_BCHW)


def shift(image_BCHW: Tensor, down_B: Tensor, right_B: Tensor, most: int) -> Tensor:
    """Move each picture by whole pixels, `most` at most; what comes in from outside is 0."""
    _, _, height, width = image_BCHW.shape
    padded = functional.pad(image_BCHW, (most,) * 4)
    window = padded.unfold(2, height, 1).unfold(3, width, 1)  # B × C × every shift down × every shift right × H × W
    picture_B = torch.arange(len(image_BCHW), device=image_BCHW.device)
    return window[picture_B, :, most - down_B, most - right_B]


def mixed(image_BCHW: Tensor, mix_BCC: Tensor, lighter_B: Tensor) -> Tensor:
    """Let some of each channel pass into the others, and the whole become lighter or darker; from 0 to 1 as before."""
    with_others = image_BCHW + torch.einsum("bdc,bchw->bdhw", mix_BCC / image_BCHW.shape[1], image_BCHW)
    return (with_others * (1 + lighter_B)[:, None, None, None]).clamp(0, 1)


def rotate(image_BCHW: Tensor, degrees_B: Tensor, larger_B: Tensor | None = None) -> Tensor:
    """Turn each picture counter-clockwise about its centre, and make it larger, interpolating between pixels."""
    angle = torch.deg2rad(degrees_B)
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    if larger_B is not None:
        cos, sin = cos / larger_B, sin / larger_B
    stretch = image_BCHW.shape[-2] / image_BCHW.shape[-1]  # grid_sample measures both axes from -1 to 1
    turn_B23 = torch.stack([cos, -sin * stretch, zero, sin / stretch, cos, zero], -1).reshape(-1, 2, 3)
    grid = functional.affine_grid(turn_B23.to(image_BCHW), list(image_BCHW.shape), align_corners=False)
    return functional.grid_sample(image_BCHW, grid, align_corners=False)
