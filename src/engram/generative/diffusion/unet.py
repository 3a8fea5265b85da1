r"""Denoising networks: U-Net for images, MLP for points (Ronneberger et al. 2015; Ho et al. 2020).

    \tau = g(\text{sinusoids}(t)) + e_y                           time embedding, plus the class embedding         (1)
    f(h, \tau) = k_2 * \phi((1 + a) \odot n(k_1 * \phi(n(h))) + b)    residual branch, modulated (FiLM)            (2)
    h \leftarrow h + f(h, \tau)                                   residual block                                   (3)
    h_{l+1} = \text{blocks}(\text{down}(h_l))                     encoder: downsample, then blocks                 (4)
    h \leftarrow \text{blocks}(h + h_l)                           decoder: skip connection, then blocks            (5)

    Symbols:
        t, y        time and class
        a, b        scale and shift, linear in the embedding
        n           group normalization
        \phi        SiLU
        k, *        kernels and convolution
        B, D, F     batch, width of the time embedding, sinusoids of the time
        C, H, W     channels, height and width of an image

At the lowest resolution all positions attend to each other. Large images may be split into patches first: squares of
pixels become channels (pixel unshuffle), so that convolutions run on fewer positions.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from annotated_types import Ge
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.config import FromData
from engram.core.errors import EngramError
from engram.core.tap import tap
from engram.nn.attention import Attention
from engram.nn.sample_space import SampleSpace

FEATURES = 64
"""sinusoids of the time (F)"""


@dataclass(frozen=True, kw_only=True)
class DenoiserConfig(SampleSpace):
    """Architecture of a denoising network."""

    channels: tuple[int, ...] = (24, 48, 96, 160)
    """channels at each resolution, which is halved from one to the next; multiples of 8"""
    blocks: Annotated[int, Ge(1)] = 1
    """residual blocks at each resolution, in the encoder and in the decoder"""
    patch: Annotated[int, Ge(1)] = 1
    """side of the squares of pixels that become channels; 1 disables"""
    heads: Annotated[int, Ge(0)] = 4
    """attention heads at the lowest resolution; 0 disables attention"""
    embedding: Annotated[int, Ge(1)] = 512
    """width of the time embedding (D)"""
    hidden: Annotated[int, Ge(1)] = 128
    """units of each of the three hidden layers, for points"""
    classes: FromData[int] = 0
    """number of classes to condition on; 0 is unconditional"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.channels or any(width < 8 or width % 8 for width in self.channels):
            raise EngramError(
                f"channels must name multiples of 8, which are normalized in groups, not {self.channels}."
            )
        if self.heads and self.channels[-1] % self.heads:
            raise EngramError(f"heads must divide the last of the channels, {self.channels[-1]}, and is {self.heads}.")


class TimeEmbedding(nn.Module):
    """Embedding of the time (0 to 1) and of the class; class -1 means none."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, width), nn.Linear(width, width)
        self.label = nn.Embedding(classes + 1, width) if classes else None  # the last row means no class
        frequencies = torch.exp(torch.linspace(0, math.log(1000), FEATURES // 2))
        self.frequencies: Tensor
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(self, t_B: Tensor, label_B: Tensor | None) -> Tensor:
        angle_BF = t_B[:, None] * self.frequencies
        tau_BD = self.second(F.silu(self.first(torch.cat([angle_BF.sin(), angle_BF.cos()], -1))))
        if self.label is not None:
            last = self.label.num_embeddings - 1
            label_B = torch.full((len(t_B),), last) if label_B is None else label_B.where(label_B >= 0, last)
            tau_BD = tau_BD + self.label(label_B)  # (1)
        return F.silu(tau_BD)


class UNet(nn.Module):
    """U-Net that predicts from a noisy image and its time."""

    def __init__(self, config: DenoiserConfig) -> None:
        super().__init__()
        self.config = config
        widths, pixels = config.channels, config.shape[0] * config.patch**2
        D = config.embedding
        self.time_embedding = TimeEmbedding(D, config.classes)
        self.conv_in = nn.Conv2d(pixels, widths[0], 3, padding=1)
        self.down_blocks: Any = nn.ModuleList()
        self.up_blocks: Any = nn.ModuleList()
        self.downsample, self.upsample = nn.ModuleList(), nn.ModuleList()
        for i, width in enumerate(widths):
            self.down_blocks.append(nn.ModuleList(ResidualBlock(width, D) for _ in range(config.blocks)))
            self.up_blocks.append(nn.ModuleList(ResidualBlock(width, D) for _ in range(config.blocks)))
            if i + 1 < len(widths):
                self.downsample.append(nn.Conv2d(width, widths[i + 1], 3, stride=2, padding=1))
                self.upsample.append(nn.Conv2d(widths[i + 1], width, 1))
        self.middle = AttentionBlock(widths[-1], config.heads) if config.heads else nn.Identity()
        self.norm = nn.GroupNorm(8, widths[0])
        self.conv_out = nn.Conv2d(widths[0], pixels, 3, padding=1)
        self.initialize()
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def initialize(self) -> None:
        """Initialize the last layer of each residual branch with zeros: each block starts as the identity."""
        for module in self.modules():
            if isinstance(module, ResidualBlock):
                nn.init.zeros_(module.second.weight)
            if isinstance(module, AttentionBlock):
                nn.init.zeros_(module.attention.o.weight)
        nn.init.zeros_(self.conv_out.weight)

    def forward(self, x_BCHW: Tensor, t_B: Tensor, label_B: Tensor | None = None) -> Tensor:
        height, width = x_BCHW.shape[2:]
        padded = F.pad(x_BCHW, (0, -width % self.config.patch, 0, -height % self.config.patch))
        tau_BD = self.time_embedding(t_B, label_B)
        h = self.conv_in(F.pixel_unshuffle(padded, self.config.patch).contiguous(memory_format=torch.channels_last))
        skips: list[Tensor] = []
        for i, blocks in enumerate(self.down_blocks):
            h = self.downsample[i - 1](h) if i else h  # (4)
            for block in blocks:
                h = block(h, tau_BD)
                skips.append(h)
            tap(f"down.{i}", h)
        h = tap("middle", self.middle(h))
        for i in reversed(range(len(self.up_blocks))):
            for block in self.up_blocks[i]:
                h = block(h + skips.pop(), tau_BD)  # (5)
            tap(f"up.{i}", h)
            h = upsample_like(self.upsample[i - 1](h), skips[-1]) if i else h
        h = self.conv_out(F.silu(self.norm(h)))
        return F.pixel_shuffle(h, self.config.patch)[..., :height, :width]


def upsample_like(h_BCHW: Tensor, like_BCHW: Tensor) -> Tensor:
    """Double height and width by nearest neighbor, cropped to the size of `like`."""
    return F.interpolate(h_BCHW, scale_factor=2)[..., : like_BCHW.shape[2], : like_BCHW.shape[3]]


class ResidualBlock(nn.Module):
    """Residual block whose features are scaled and shifted by the time embedding (FiLM)."""

    def __init__(self, width: int, D: int) -> None:
        super().__init__()
        self.first_norm, self.second_norm = nn.GroupNorm(8, width), nn.GroupNorm(8, width)
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.film = nn.Linear(D, 2 * width)

    def forward(self, h_BCHW: Tensor, tau_BD: Tensor) -> Tensor:
        a_BC11, b_BC11 = self.film(tau_BD)[..., None, None].chunk(2, 1)
        f = self.second_norm(self.first(F.silu(self.first_norm(h_BCHW))))
        return h_BCHW + self.second(F.silu(torch.addcmul(b_BC11, f, 1 + a_BC11)))  # (2), (3)


class AttentionBlock(nn.Module):
    """Self-attention between all positions."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm, self.attention = nn.GroupNorm(8, width), Attention(width, heads)

    def forward(self, h_BCHW: Tensor) -> Tensor:
        attended_BTC = self.attention(self.norm(h_BCHW).flatten(2).mT)
        return h_BCHW + attended_BTC.mT.unflatten(2, h_BCHW.shape[2:])


class PointDenoiser(nn.Module):
    """Multilayer perceptron that predicts from noisy points; each layer gets the time embedding."""

    def __init__(self, config: DenoiserConfig) -> None:
        super().__init__()
        D = config.hidden
        self.time_embedding = TimeEmbedding(D, config.classes)
        self.input, self.output = nn.Linear(config.numel, D), nn.Linear(D, config.numel)
        self.layers = nn.ModuleList(nn.Linear(2 * D, D) for _ in range(3))
        nn.init.zeros_(self.output.weight)

    def forward(self, x_BN: Tensor, t_B: Tensor, label_B: Tensor | None = None) -> Tensor:
        tau_BD, h_BD = self.time_embedding(t_B, label_B), self.input(x_BN)
        for i, layer in enumerate(self.layers):
            h_BD = tap(f"hidden.{i}", h_BD + F.silu(layer(torch.cat([h_BD, tau_BD], -1))))
        return self.output(h_BD)
