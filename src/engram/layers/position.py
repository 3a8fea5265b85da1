"""Where a token stands: sinusoidal (both layouts) and rotary positions (note 004; Vaswani et al. 2017 §3.5, Su et al.
2021). A learned position is an ordinary embedding.   B batch, T tokens, H heads, E width, D width of a head

    w_i = base^(-2i / E)                                     from quick to slow, i = 0 ... E/2 - 1                  (1)
    interleaved  P[p, 2i] = sin(p w_i),  P[p, 2i + 1] = cos(p w_i)            Vaswani et al.                        (2)
    halves       P[p, i]  = sin(p w_i),  P[p, E/2 + i] = cos(p w_i)           note 004, Marian                      (3)
    rotary       (x_2i, x_2i+1) turned by the angle p w_i                     so q_p . k_r depends on p - r alone   (4)
"""

from typing import Literal

import torch
from torch import Tensor, nn

Layout = Literal["interleaved", "halves"]


def angles(length: int, width: int, base: float = 10_000.0) -> Tensor:
    """p w_i, as T × E/2, in double precision."""
    w = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)  # (1)
    return torch.arange(length, dtype=torch.float64)[:, None] * w


def sinusoidal(length: int, width: int, layout: Layout = "interleaved") -> Tensor:
    """The positions 0 … length - 1, as T × E. An odd width has one sine more than cosines."""
    turn = angles(length, width)
    sin, cos = turn.sin(), turn.cos()[:, : width // 2]
    if layout == "halves":
        return torch.cat([sin, cos], 1).float()  # (3)
    P = torch.empty(length, width)
    P[:, 0::2], P[:, 1::2] = sin, cos  # (2)
    return P


class Rotary(nn.Module):
    """Turns queries and keys by where they stand."""

    def __init__(self, size: int, length: int, base: float = 10_000.0) -> None:
        super().__init__()
        turn = angles(length, size, base)
        self.register_buffer("turn_TD2", torch.stack([turn.cos(), turn.sin()], -1).float(), persistent=False)
        self.turn_TD2: Tensor

    def forward(self, x_BTHD: Tensor, start: int = 0, place_BT: Tensor | None = None) -> Tensor:
        """Tokens that stand at start, start + 1 …, or at `place`. A pair is turned as one complex number."""
        where = slice(start, start + x_BTHD.shape[1]) if place_BT is None else place_BT
        turn = torch.view_as_complex(self.turn_TD2)[where].unsqueeze(-2)
        pairs = torch.view_as_complex(x_BTHD.unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * turn).flatten(-2)  # (4)
