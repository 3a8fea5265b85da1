r"""Position encodings: sinusoidal, rotary position embedding (RoPE), and relative position bias.

    w_i = \text{base}^{-2i / E}                                        frequencies, i = 0, ..., E/2 - 1              (1)
    P_{p, 2i} = \sin(p w_i),\quad P_{p, 2i+1} = \cos(p w_i)            interleaved (Vaswani et al. 2017)             (2)
    P_{p, i} = \sin(p w_i),\quad P_{p, E/2+i} = \cos(p w_i)            halves (Marian)                               (3)
    x_{2i} + j x_{2i+1} \leftarrow e^{j p w_i} (x_{2i} + j x_{2i+1})   RoPE (Su et al. 2021): rotate pairs           (4)
    w_i \leftarrow w_i / s                                            linear scaling (Chen et al. 2023)             (5)
    r_i = w_i L / 2 \pi                                               rotations over the original context           (6)
    w_i \leftarrow g_i w_i + (1 - g_i) w_i / s                        llama3 and YaRN: only slow pairs are scaled   (7)
    g_i = (r_i - a) / (b - a)                                         llama3, within 0 and 1                        (8)
    g_i = 1 - (i - i_b) / (i_a - i_b)                                 YaRN (Peng et al. 2024), within 0 and 1       (9)
    R_{h,t,s} = W_{b(t - s),\, h}                                     relative position bias (Raffel et al. 2020)   (10)
    b(d) = d\ \text{for}\ 0 \le d < m,\quad m = n / 2                 buckets of one distance each                  (11)
    b(d) = \min(m + \lfloor (n - m) \ln(d / m) / \ln(d_{max} / m) \rfloor, n - 1)    buckets of growing size       (12)

    Symbols:
        p            position of a token
        P            position encoding
        j            imaginary unit
        s, L         scaling factor, original context
        a, b         rotations below which a pair is scaled, and above which it is not
        i_a, i_b     pairs that make so many rotations
        R, W         bias of the attention scores, and its learned values
        d, b         distance from query t back to key s, and its bucket
        n            buckets: all, where attention is causal; half of them for either direction, where it is not
        d_max        distance from which on all share the last bucket
        B, T, H      batch, tokens, heads
        S            key tokens
        E, D         model width, head width

With (4) the product of a query and a key depends on the difference of their positions alone. A learned position
embedding is an ordinary nn.Embedding. (5) to (9) let a model read more tokens than it was trained on. (10) is the same
in all layers. Bidirectional attention has the buckets n + b(s - t) for the keys after a query, which causal attention
masks.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor, nn

from engram.core.config import Settings
from engram.core.errors import EngramError
from engram.core.tap import tap

Layout = Literal["interleaved", "halves"]


def angles(length: int, width: int, base: float = 10_000.0) -> Tensor:
    """Angles p w_i, T × E/2, in double precision."""
    w = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)  # (1)
    return torch.arange(length, dtype=torch.float64)[:, None] * w


def sinusoidal(length: int, width: int, layout: Layout = "interleaved") -> Tensor:
    """Sinusoidal encoding of positions 0 … length - 1, T × E; an odd width has one sine more than cosines."""
    angle = angles(length, width)
    sin, cos = angle.sin(), angle.cos()[:, : width // 2]
    if layout == "halves":
        return torch.cat([sin, cos], 1).float()  # (3)
    P = torch.empty(length, width)
    P[:, 0::2], P[:, 1::2] = sin, cos  # (2)
    return P


def apply_rope(x_BTHD: Tensor, cos_sin: Tensor) -> Tensor:
    """Rotate the pairs (x_2i, x_2i+1) of queries or keys, each as one complex number.

    cos_sin is (B ×) T × D/2 × 2.
    """
    rotation = torch.view_as_complex(cos_sin).unsqueeze(-2)
    pairs = torch.view_as_complex(x_BTHD.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * rotation).flatten(-2)  # (4)


@dataclass(frozen=True, kw_only=True)
class RoPE(Settings):
    """Settings of the rotary position embedding."""

    theta: Annotated[tuple[float, ...], Ge(0)] = (10_000.0,)
    """RoPE base of each layer, repeated over the layers; 0 rotates nothing in a layer (NoPE)"""
    rotary_fraction: Annotated[float, Gt(0), Le(1)] = 1.0
    """fraction of each head that is rotated (partial RoPE)"""
    rope_scaling: Literal["none", "linear", "llama3", "yarn"] = "none"
    """RoPE scaling, to extend the context; skips layers with a window, unless all layers have one"""
    rope_factor: Annotated[float, Ge(1)] = 1.0
    """factor by which RoPE scaling lengthens the context"""
    original_context: Annotated[int, Ge(1)] = 8192
    """context length before RoPE scaling by llama3 or yarn"""
    low_rotations: Annotated[float, Gt(0)] = 1.0
    """pairs with fewer rotations than this over the original context are scaled in full (llama3, yarn)"""
    high_rotations: Annotated[float, Gt(0)] = 4.0
    """pairs with more rotations than this over the original context are not scaled (llama3, yarn)"""
    rope_amplitude: Annotated[float, Ge(0)] = 1.0
    """factor of queries and keys after the rotation (yarn)"""


def rope_frequencies(rope: RoPE, width: int, theta: float) -> Tensor:
    """Frequencies w of `width` / 2 pairs, scaled as configured."""
    w = theta ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)  # (1)
    if rope.rope_scaling == "none":
        return w
    scaled = w / rope.rope_factor  # (5)
    if rope.rope_scaling == "linear":
        return scaled
    if rope.rope_scaling == "llama3":
        rotations = w * rope.original_context / (2 * math.pi)  # (6)
        g = (rotations - rope.low_rotations) / (rope.high_rotations - rope.low_rotations)  # (8)
    else:
        low, high = (
            width * math.log(rope.original_context / (rotations * 2 * math.pi)) / (2 * math.log(theta))
            for rotations in (rope.high_rotations, rope.low_rotations)
        )
        low, high = max(math.floor(low), 0), min(math.ceil(high), width - 1)
        g = 1 - (torch.arange(width // 2, dtype=torch.float64) - low) / max(high - low, 1e-3)  # (9)
    g = g.clamp(0, 1)
    return g * w + (1 - g) * scaled  # (7)


class RotaryEmbedding(nn.Module):
    """Rotary position embedding (RoPE): rotates queries and keys by their positions."""

    def __init__(self, head_width: int, length: int, rope: RoPE = RoPE(), theta: float = 0.0) -> None:
        """`theta` is the base; 0 takes the first of the settings."""
        super().__init__()
        rotated = 2 * int(head_width * rope.rotary_fraction / 2)
        w = rope_frequencies(rope, rotated, theta or rope.theta[0])
        angle = torch.arange(length, dtype=torch.float64)[:, None] * w
        cos_sin_TR2 = torch.stack([angle.cos(), angle.sin()], -1) * rope.rope_amplitude
        self.register_buffer("cos_sin_TR2", cos_sin_TR2.float(), persistent=False)
        self.cos_sin_TR2: Tensor

    def forward(self, x_BTHD: Tensor, start: int = 0, position_ids_BT: Tensor | None = None) -> Tensor:
        """Queries or keys at positions start, start + 1, …, or at `position_ids`."""
        positions = slice(start, start + x_BTHD.shape[1]) if position_ids_BT is None else position_ids_BT
        rotated = 2 * self.cos_sin_TR2.shape[1]
        if rotated == x_BTHD.shape[-1]:
            return apply_rope(x_BTHD, self.cos_sin_TR2[positions])
        x_BTHR, rest = x_BTHD[..., :rotated], x_BTHD[..., rotated:]
        return torch.cat([apply_rope(x_BTHR.contiguous(), self.cos_sin_TR2[positions]), rest], -1)


@dataclass(frozen=True, kw_only=True)
class RelativePosition(Settings):
    """Settings of the relative position bias."""

    num_buckets: Annotated[int, Ge(4)] = 32
    """buckets of distances in the relative position bias; bidirectional attention has half of them for a direction"""
    max_distance: Annotated[int, Ge(3)] = 128
    """distance in tokens from which on all share the last bucket of the relative position bias"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_distance <= self.num_buckets // 2:
            half = self.num_buckets // 2
            raise EngramError(f"max_distance must be above half of num_buckets, {half}, not {self.max_distance}.")


def distance_bucket(distance: Tensor, buckets: int, max_distance: int) -> Tensor:
    """Bucket of each distance, which is not negative (11), (12)."""
    exact = buckets // 2
    growth = torch.log(distance.clamp(min=exact).float() / exact) / math.log(max_distance / exact)
    far = (exact + (growth * (buckets - exact)).long()).clamp(max=buckets - 1)  # (12)
    return torch.where(distance < exact, distance, far)  # (11)


class RelativePositionBias(nn.Module):
    """Relative position bias: a learned number per head and bucket of distances, added to the scores."""

    def __init__(self, heads: int, relative: RelativePosition, *, bidirectional: bool) -> None:
        super().__init__()
        self.relative, self.bidirectional = relative, bidirectional
        self.embedding = nn.Embedding(relative.num_buckets, heads)

    def forward(self, T: int, S: int) -> Tensor:
        """Bias of T queries and S keys, H × T × S; the last query is at the last key."""
        token_S = torch.arange(S, device=self.embedding.weight.device)
        distance_TS = token_S[S - T :, None] - token_S
        buckets, max_distance = self.relative.num_buckets, self.relative.max_distance
        if self.bidirectional:
            bucket_TS = distance_bucket(distance_TS.abs(), buckets // 2, max_distance)
            bucket_TS = bucket_TS + (distance_TS < 0) * (buckets // 2)
        else:
            bucket_TS = distance_bucket(distance_TS.clamp(min=0), buckets, max_distance)
        return tap("bias", self.embedding(bucket_TS).permute(2, 0, 1))  # (10)
