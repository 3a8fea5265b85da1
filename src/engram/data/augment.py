"""Data augmentation of images.

Shift, flip, rotation, zoom, color jitter and noise, drawn anew for each image.

B batch, C channels, H height, W width. The whole batch is transformed at once.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Le, Lt
from torch import Generator, Tensor
from torch.nn import functional

from engram.core.config import Settings


@dataclass(frozen=True, kw_only=True)
class Augment(Settings):
    """Random transforms of images and their strengths; 0 disables each."""

    shift: Annotated[int, Ge(0)] = 0
    """maximal shift in pixels, horizontally and vertically; the border is filled with black; 0 disables"""
    flip: bool = False
    """flip each image horizontally with probability 1/2"""
    rotate: Annotated[float, Ge(0), Le(180)] = 0.0
    """maximal rotation in degrees, either way; the border is filled with black; 0 disables"""
    zoom: Annotated[float, Ge(0), Lt(1)] = 0.0
    """maximal relative change of scale: the factor is drawn from 1 - zoom to 1 + zoom; 0 disables"""
    color: Annotated[float, Ge(0), Lt(1)] = 0.0
    """strength of color jitter: maximal mixing between channels and change of brightness; 0 disables"""
    noise: Annotated[float, Ge(0), Lt(math.inf)] = 0.0
    """standard deviation of Gaussian noise added to pixels from 0 to 1; 0 disables"""

    def __call__(self, image_BCHW: Tensor, generator: Generator) -> Tensor:
        """Return the batch (float, 0 to 1) transformed; all random numbers come from `generator`."""
        count, device = len(image_BCHW), image_BCHW.device

        def uniform(*shape: int) -> Tensor:
            """Draw uniform numbers from -1 to 1."""
            return (torch.rand(*shape, generator=generator, device=generator.device) * 2 - 1).to(device)

        if self.flip:
            image_BCHW = flip(image_BCHW, uniform(count) < 0)
        if self.rotate or self.zoom:
            scale_B = 1 + self.zoom * uniform(count) if self.zoom else None
            image_BCHW = rotate(image_BCHW, self.rotate * uniform(count), scale_B)
        if self.shift:
            most = min(self.shift, max(image_BCHW.shape[2:]))  # farther nothing of the image is left
            down_B, right_B = (uniform(2, count) * (most + 0.5)).round().long().clamp(-most, most)
            image_BCHW = shift(image_BCHW, down_B, right_B, most)
        if self.color:
            image_BCHW = jitter_color(image_BCHW, self.color * uniform(count, image_BCHW.shape[1], image_BCHW.shape[1]),
                               self.color * uniform(count))  # fmt: skip
        if self.noise:
            normal = torch.randn(image_BCHW.shape, generator=generator, device=generator.device).to(image_BCHW)
            image_BCHW = (image_BCHW + self.noise * normal).clamp(0, 1)
        return image_BCHW


def flip(image_BCHW: Tensor, which_B: Tensor) -> Tensor:
    """Flip the chosen images horizontally."""
    return torch.where(which_B[:, None, None, None], image_BCHW.flip(-1), image_BCHW)


def shift(image_BCHW: Tensor, down_B: Tensor, right_B: Tensor, most: int) -> Tensor:
    """Shift each image by whole pixels, at most `most`; the border is filled with 0."""
    _, _, height, width = image_BCHW.shape
    padded = functional.pad(image_BCHW, (most,) * 4)
    window = padded.unfold(2, height, 1).unfold(3, width, 1)  # B × C × every shift down × every shift right × H × W
    index_B = torch.arange(len(image_BCHW), device=image_BCHW.device)
    return window[index_B, :, most - down_B, most - right_B]


def jitter_color(image_BCHW: Tensor, mix_BCC: Tensor, brightness_B: Tensor) -> Tensor:
    """Mix the channels of each image and scale its brightness; clamped to 0 to 1."""
    mixed = image_BCHW + torch.einsum("bdc,bchw->bdhw", mix_BCC / image_BCHW.shape[1], image_BCHW)
    return (mixed * (1 + brightness_B)[:, None, None, None]).clamp(0, 1)


def rotate(image_BCHW: Tensor, degrees_B: Tensor, scale_B: Tensor | None = None) -> Tensor:
    """Rotate each image counter-clockwise about its center and scale it, with bilinear interpolation."""
    angle = torch.deg2rad(degrees_B)
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    if scale_B is not None:
        cos, sin = cos / scale_B, sin / scale_B
    aspect = image_BCHW.shape[-2] / image_BCHW.shape[-1]  # grid_sample measures both axes from -1 to 1
    affine_B23 = torch.stack([cos, -sin * aspect, zero, sin / aspect, cos, zero], -1).reshape(-1, 2, 3)
    grid = functional.affine_grid(affine_B23.to(image_BCHW), list(image_BCHW.shape), align_corners=False)
    return functional.grid_sample(image_BCHW, grid, align_corners=False)
