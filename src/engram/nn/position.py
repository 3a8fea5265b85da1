r"""Position encodings: sinusoidal in two layouts, and rotary position embedding (RoPE).

    w_i = \text{base}^{-2i / E}                                        frequencies, i = 0, ..., E/2 - 1              (1)
    P_{p, 2i} = \sin(p w_i),\quad P_{p, 2i+1} = \cos(p w_i)            interleaved (Vaswani et al. 2017)             (2)
    P_{p, i} = \sin(p w_i),\quad P_{p, E/2+i} = \cos(p w_i)            halves (Marian)                               (3)
    x_{2i} + j x_{2i+1} \leftarrow e^{j p w_i} (x_{2i} + j x_{2i+1})   RoPE (Su et al. 2021): rotate pairs           (4)

    Symbols:
        p            position of a token
        P            position encoding
        j            imaginary unit
        B, T, H      batch, tokens, heads
        E, D         model width, head width

With (4) the product of a query and a key depends on the difference of their positions alone. A learned position
embedding is an ordinary nn.Embedding.
"""

from typing import Literal

import torch
from torch import Tensor, nn

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
    """Rotate the pairs (x_2i, x_2i+1) of queries or keys, each as one complex number; cos_sin is (B ×) T × D/2 × 2."""
    rotation = torch.view_as_complex(cos_sin).unsqueeze(-2)
    pairs = torch.view_as_complex(x_BTHD.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * rotation).flatten(-2)  # (4)


class RotaryEmbedding(nn.Module):
    """Rotary position embedding (RoPE): rotates queries and keys by their positions."""

    def __init__(self, head_width: int, length: int, base: float = 10_000.0) -> None:
        super().__init__()
        angle = angles(length, head_width, base)
        self.register_buffer("cos_sin_TD2", torch.stack([angle.cos(), angle.sin()], -1).float(), persistent=False)
        self.cos_sin_TD2: Tensor

    def forward(self, x_BTHD: Tensor, start: int = 0, position_ids_BT: Tensor | None = None) -> Tensor:
        """Queries or keys at positions start, start + 1, …, or at `position_ids`."""
        positions = slice(start, start + x_BTHD.shape[1]) if position_ids_BT is None else position_ids_BT
        return apply_rope(x_BTHD, self.cos_sin_TD2[positions])
