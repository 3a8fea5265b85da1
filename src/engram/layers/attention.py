"""Attention, a soft select (notes 000, 002 and 004; Vaswani et al. 2017 §3.2).

B batch, T tokens that ask, S tokens that answer, H heads, G key/value heads, D width of a head, E width of the stream

    select(q, K, V) = v_j of the key k_j that is most like q          hard, as a database does it                   (1)
    A = softmax(Q K' / (tau sqrt(D)) + M),   attention = A V          soft; as tau falls to 0 it becomes (1)        (2)
    Q = x W_q + b_q,   K = z W_k + b_k,   V = z W_v + b_v             x asks, z answers; in self-attention z = x    (3)
    multi-head = concat(head_1, ..., head_H) W_o + b_o                                                              (4)

A mask is true where a token may be seen; M is 0 there and minus infinity elsewhere. With G < H, heads share their keys
and values in groups (Ainslie et al. 2023). The fused form never makes A; who watches «weights» gets the textbook form.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.tap import tap, watched
from engram.layers.linear import Linear
from engram.layers.position import Rotary


def attention(
    q_BHTD: Tensor, k_BGSD: Tensor, v_BGSD: Tensor, mask: Tensor | None = None, *, causal: bool = False
) -> Tensor:
    """(2) in one fused kernel: B × H × T × D. `causal`: the last token that asks is the last that answers."""
    T, S = q_BHTD.shape[2], k_BGSD.shape[2]
    if causal and T > 1 and (mask is not None or T != S):
        causal_TS = causal_mask(T, S, q_BHTD.device)
        mask = causal_TS if mask is None else mask & causal_TS
    plain = causal and mask is None and T > 1
    shared = q_BHTD.shape[1] != k_BGSD.shape[1]
    return F.scaled_dot_product_attention(q_BHTD, k_BGSD, v_BGSD, mask, is_causal=plain, enable_gqa=shared)


def textbook(
    q_BHTD: Tensor,
    k_BGSD: Tensor,
    v_BGSD: Tensor,
    mask: Tensor | None = None,
    *,
    causal: bool = False,
    temperature: float = 1.0,
) -> Tensor:
    """(2) line by line, with its weights shown to whoever watches. At temperature 0 it is (1)."""
    share = q_BHTD.shape[1] // k_BGSD.shape[1]
    k_BHSD, v_BHSD = k_BGSD.repeat_interleave(share, 1), v_BGSD.repeat_interleave(share, 1)
    score_BHTS = q_BHTD @ k_BHSD.mT / math.sqrt(q_BHTD.shape[-1])
    if causal:
        score_BHTS = score_BHTS.masked_fill(~causal_mask(q_BHTD.shape[2], k_BGSD.shape[2], q_BHTD.device), -math.inf)
    if mask is not None:
        score_BHTS = score_BHTS.masked_fill(~mask, -math.inf)
    if temperature == 0:
        weights_BHTS = torch.zeros_like(score_BHTS).scatter(-1, score_BHTS.argmax(-1, keepdim=True), 1.0)  # (1)
    else:
        weights_BHTS = torch.softmax(score_BHTS / temperature, -1)
    return tap("weights", weights_BHTS) @ v_BHSD  # (2)


def causal_mask(T: int, S: int, device: torch.device | None = None) -> Tensor:
    """T × S, true where a token is not in the future of the one that asks."""
    return torch.ones(T, S, dtype=torch.bool, device=device).tril(S - T)


class KeyValues:
    """What one layer of attention has read so far: its state when text is made token by token.

    Room for `capacity` tokens is taken at once, so that a token costs no copy of those before it.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity, self.length = capacity, 0
        self.k_BGSD = self.v_BGSD = torch.empty(0)

    def extend(self, k_BGTD: Tensor, v_BGTD: Tensor) -> tuple[Tensor, Tensor]:
        """Write down T more tokens, and return all."""
        B, G, T, D = k_BGTD.shape
        if not self.length:
            self.k_BGSD, self.v_BGSD = (k_BGTD.new_empty(B, G, self.capacity, D) for _ in range(2))
        end = self.length + T
        self.k_BGSD[:, :, self.length : end] = k_BGTD
        self.v_BGSD[:, :, self.length : end] = v_BGTD
        self.length = end
        return self.read()

    def read(self) -> tuple[Tensor, Tensor]:
        return self.k_BGSD[:, :, : self.length], self.v_BGSD[:, :, : self.length]

    def reorder(self, row_B: Tensor) -> None:
        """Let each row go on from another: a beam that is dropped makes room for one that divides."""
        self.k_BGSD, self.v_BGSD = self.k_BGSD[row_B], self.v_BGSD[row_B]


class Attention(nn.Module):
    """Multi-head attention: of tokens to each other, or of tokens to those of another sequence."""

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        kv_heads: int = 0,
        bias: bool = True,
        causal: bool = False,
        qk_norm: bool = False,
        rotary: Rotary | None = None,
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads or heads, width // heads
        self.causal, self.qk_norm, self.rotary = causal, qk_norm, rotary
        self.q = Linear(width, heads * self.size, bias)
        self.k = Linear(width, self.kv_heads * self.size, bias)
        self.v = Linear(width, self.kv_heads * self.size, bias)
        self.o = Linear(heads * self.size, width, bias)

    def forward(
        self,
        x_BTE: Tensor,
        z_BSE: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        place_BT: Tensor | None = None,
        cache: KeyValues | None = None,
    ) -> Tensor:
        """`z` answers, or x itself; `place` is where each token stands, if not simply one after the other."""
        start = cache.length if cache is not None else 0
        if z_BSE is not None and start:  # the same answers as at the token before
            assert cache is not None
            q_BTE, (k_BGSD, v_BGSD) = self.q(x_BTE), cache.read()
        else:
            q_BTE, k_BSE, v_BSE = self._asked(x_BTE) if z_BSE is None else (self.q(x_BTE), self.k(z_BSE), self.v(z_BSE))
            k_BGSD, v_BGSD = self._turned(k_BSE, start, place_BT), self._heads(v_BSE)  # (3)
            if cache is not None:
                k_BGSD, v_BGSD = cache.extend(k_BGSD, v_BGSD)
        q_BHTD = self._turned(q_BTE, start, place_BT)
        attend = textbook if watched("weights") else attention
        head_BHTD = tap("heads", attend(q_BHTD, k_BGSD, v_BGSD, mask, causal=self.causal))  # (2)
        return tap("out", self.o(head_BHTD.transpose(1, 2).flatten(2)))  # (4)

    def packed(self, x_NE: Tensor, lengths: list[int]) -> Tensor:
        """Self-attention within each of many sequences that stand one after the other, without padding between them."""
        place_1N = torch.cat([torch.arange(length) for length in lengths])[None] if self.rotary is not None else None
        q, k = (self._turned(project(x_NE)[None], 0, place_1N) for project in (self.q, self.k))
        parts = [whole.split(lengths, 2) for whole in (q, k, self._heads(self.v(x_NE)[None]))]  # (3)
        heads = [attention(*qkv, causal=self.causal).transpose(1, 2).flatten(2) for qkv in zip(*parts, strict=True)]
        return self.o(torch.cat(heads, 1)[0])  # (4)

    def _asked(self, x_BTE: Tensor) -> tuple[Tensor, ...]:
        """(3) of self-attention; while learning in one product, of which the gradient is one product too."""
        parts = self.q, self.k, self.v
        if not torch.is_grad_enabled() or any(type(part) is not Linear for part in parts):
            return tuple(part(x_BTE) for part in parts)
        W_OE = torch.cat([part.weight for part in parts])
        b_O = torch.cat([part.bias for part in parts]) if self.q.bias is not None else None
        return F.linear(x_BTE, W_OE, b_O).split([part.out_features for part in parts], -1)

    def _heads(self, x_BTE: Tensor) -> Tensor:
        return x_BTE.unflatten(-1, (-1, self.size)).transpose(1, 2)

    def _turned(self, x_BTE: Tensor, start: int, place_BT: Tensor | None) -> Tensor:
        """Queries or keys by head, brought to one length and turned by where they stand, where that is asked for."""
        x_BTHD = x_BTE.unflatten(-1, (-1, self.size))
        if self.qk_norm:
            x_BTHD = F.layer_norm(x_BTHD, (self.size,))
        if self.rotary is not None:
            x_BTHD = self.rotary(x_BTHD, start, place_BT)
        return x_BTHD.transpose(1, 2)


def check_heads(width: int, heads: int, kv_heads: int) -> None:
    """Refuse heads that do not divide the width, or groups that do not divide the heads."""
    if heads < 1 or width < 1 or width % heads:
        raise EngramError(f"heads must divide width, and {heads} does not divide {width}.")
    if kv_heads < 0 or (kv_heads and heads % kv_heads):
        raise EngramError(f"kv_heads must divide heads, and {kv_heads} does not divide {heads}.")
