"""Networks that see something noisy and the time, and say what is noise (Ronneberger et al. 2015; Ho et al. 2020).

B batch, C H W picture, D width of the time's code, F features of the time

    tau = g(sinusoids of t) + e_label                          the time as a vector, and the class if there is one   (1)
    f(h, tau) = k_2 * sigma((1 + a) n(k_1 * sigma(n(h))) + b),   a, b = tau W                                       (2)
    h <- h + f(h, tau)                                         a block                                               (3)
    down: h_0 = x * k,  h_l+1 = blocks(h_l), halved            what is there, coarser and coarser                    (4)
    up:   h <- blocks(h doubled + h_l)                         and where exactly, from the way down                  (5)

n normalises groups of channels, sigma(z) = z / (1 + e^-z). Channels are few where places are many, and the other way
round; at the bottom each place attends to all. Large pictures may first become patches: squares of pixels lie behind
each other as channels, so that convolutions run on fewer places.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.registry import FromData
from engram.core.tap import tap
from engram.layers.attention import Attention
from engram.layers.space import Space

FEATURES = 64
"""sinusoids of the time (F)"""


@dataclass(frozen=True, kw_only=True)
class Denoising(Space):
    """What such a network looks like."""

    channels: tuple[int, ...] = (24, 48, 96, 160)
    """kernels at each size of a picture, which is halved from one to the next"""
    blocks: int = 1
    """blocks at each size, on the way down and on the way up"""
    patch: int = 1
    """side of the squares of pixels that are taken together; 1 leaves them apart"""
    heads: int = 4
    """heads of attention at the smallest size; 0 leaves it out"""
    embedding: int = 512
    """size of the time's code (D)"""
    hidden: int = 128
    """units of each of the three layers for points"""
    classes: FromData[int] = 0
    """classes that can be asked for; 0 where none can"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("blocks", "patch", "embedding", "hidden"):
            if getattr(self, name) < 1:
                raise EngramError(f"{name} must be at least 1, not {getattr(self, name)}.")
        if not self.channels or any(width < 8 or width % 8 for width in self.channels):
            raise EngramError(
                f"channels must name multiples of 8, which are normalised in groups, not {self.channels}."
            )
        if self.heads < 0 or (self.heads and self.channels[-1] % self.heads):
            raise EngramError(f"heads must divide the last of the channels, {self.channels[-1]}, and is {self.heads}.")


class Time(nn.Module):
    """(1), for times from 0 to 1."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, width), nn.Linear(width, width)
        self.label = nn.Embedding(classes + 1, width) if classes else None  # the last is for no class, which is -1
        wave = torch.exp(torch.linspace(0, math.log(1000), FEATURES // 2))
        self.wave: Tensor
        self.register_buffer("wave", wave, persistent=False)

    def forward(self, t_B: Tensor, label_B: Tensor | None) -> Tensor:
        angle_BF = t_B[:, None] * self.wave
        tau_BD = self.second(F.silu(self.first(torch.cat([angle_BF.sin(), angle_BF.cos()], -1))))
        if self.label is not None:
            last = self.label.num_embeddings - 1
            label_B = torch.full((len(t_B),), last) if label_B is None else label_B.where(label_B >= 0, last)
            tau_BD = tau_BD + self.label(label_B)  # (1)
        return F.silu(tau_BD)


class UNet(nn.Module):
    """For pictures."""

    def __init__(self, config: Denoising) -> None:
        super().__init__()
        self.config = config
        widths, pixels = config.channels, config.shape[0] * config.patch**2
        D = config.embedding
        self.time = Time(D, config.classes)
        self.into = nn.Conv2d(pixels, widths[0], 3, padding=1)
        self.down: Any = nn.ModuleList()
        self.up: Any = nn.ModuleList()
        self.halve, self.enlarge = nn.ModuleList(), nn.ModuleList()
        for i, width in enumerate(widths):
            self.down.append(nn.ModuleList(Block(width, D) for _ in range(config.blocks)))
            self.up.append(nn.ModuleList(Block(width, D) for _ in range(config.blocks)))
            if i + 1 < len(widths):
                self.halve.append(nn.Conv2d(width, widths[i + 1], 3, stride=2, padding=1))
                self.enlarge.append(nn.Conv2d(widths[i + 1], width, 1))
        self.middle = Mixing(widths[-1], config.heads) if config.heads else nn.Identity()
        self.norm = nn.GroupNorm(8, widths[0])
        self.out = nn.Conv2d(widths[0], pixels, 3, padding=1)
        self.initialise()
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def initialise(self) -> None:
        """What ends a branch begins at zero, so that at first each block hands on what it is given."""
        for module in self.modules():
            if isinstance(module, Block):
                nn.init.zeros_(module.second.weight)
            if isinstance(module, Mixing):
                nn.init.zeros_(module.attention.o.weight)
        nn.init.zeros_(self.out.weight)

    def forward(self, x_BCHW: Tensor, t_B: Tensor, label_B: Tensor | None = None) -> Tensor:
        height, width = x_BCHW.shape[2:]
        padded = F.pad(x_BCHW, (0, -width % self.config.patch, 0, -height % self.config.patch))
        tau_BD = self.time(t_B, label_B)
        h = self.into(F.pixel_unshuffle(padded, self.config.patch).contiguous(memory_format=torch.channels_last))
        ways: list[Tensor] = []
        for i, blocks in enumerate(self.down):
            h = self.halve[i - 1](h) if i else h  # (4)
            for block in blocks:
                h = block(h, tau_BD)
                ways.append(h)
            tap(f"down.{i}", h)
        h = tap("middle", self.middle(h))
        for i in reversed(range(len(self.up))):
            for block in self.up[i]:
                h = block(h + ways.pop(), tau_BD)  # (5)
            tap(f"up.{i}", h)
            h = doubled(self.enlarge[i - 1](h), ways[-1]) if i else h
        h = self.out(F.silu(self.norm(h)))
        return F.pixel_shuffle(h, self.config.patch)[..., :height, :width]


def doubled(h_BCHW: Tensor, like_BCHW: Tensor) -> Tensor:
    """Twice the height and width, cut where an odd side was halved and rounded up."""
    return F.interpolate(h_BCHW, scale_factor=2)[..., : like_BCHW.shape[2], : like_BCHW.shape[3]]


class Block(nn.Module):
    """(2) and (3)."""

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


class Mixing(nn.Module):
    """Every place attends to all places."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm, self.attention = nn.GroupNorm(8, width), Attention(width, heads)

    def forward(self, h_BCHW: Tensor) -> Tensor:
        mixed_BTC = self.attention(self.norm(h_BCHW).flatten(2).mT)
        return h_BCHW + mixed_BTC.mT.unflatten(2, h_BCHW.shape[2:])


class PointNet(nn.Module):
    """For points: dense layers that are told the time at each of them."""

    def __init__(self, config: Denoising) -> None:
        super().__init__()
        D = config.hidden
        self.time = Time(D, config.classes)
        self.into, self.out = nn.Linear(config.numbers, D), nn.Linear(D, config.numbers)
        self.layers = nn.ModuleList(nn.Linear(2 * D, D) for _ in range(3))
        nn.init.zeros_(self.out.weight)

    def forward(self, x_BN: Tensor, t_B: Tensor, label_B: Tensor | None = None) -> Tensor:
        tau_BD, h_BD = self.time(t_B, label_B), self.into(x_BN)
        for i, layer in enumerate(self.layers):
            h_BD = tap(f"hidden.{i}", h_BD + F.silu(layer(torch.cat([h_BD, tau_BD], -1))))
        return self.out(h_BD)
