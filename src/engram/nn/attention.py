r"""Scaled dot-product attention, multi-head attention and the KV cache (Vaswani et al. 2017).

    \text{select}(q, K, V) = v_j,\quad j = \text{argmax}_i\, q \cdot k_i       hard selection, as in a database     (1)
    A = \text{softmax}((Q K^T / \sqrt{D} + R) / \tau + M)                   attention weights                    (2)
    \text{attention}(Q, K, V) = A V                                         soft selection; (1) for \tau \to 0    (3)
    Q = x W_q + b_q,\quad K = z W_k + b_k,\quad V = z W_v + b_v             projections; self-attention: z = x   (4)
    \text{multi-head}(x, z) = \text{concat}(\text{head}_1, ..., \text{head}_H) W_o + b_o      multi-head         (5)
    s \leftarrow c \tanh(s / c)                                            softcapping of scores s (Gemma 2)     (6)

    Symbols:
        Q, K, V            queries, keys, values
        A                  attention weights
        M                  mask: 0 where a token may be attended to, minus infinity elsewhere
        R                  bias of the scores, such as that of relative positions; none by default
        \tau               temperature
        c                  softcap: scores stay between -c and c
        x, z               tokens that attend, tokens attended to
        B, T, S, E         batch, query tokens, key tokens, model width
        H, G, D            heads, key/value heads, head width

Boolean masks are true where a token may be attended to. With G < H, groups of heads share keys and values
(grouped-query attention, GQA; Ainslie et al. 2023). With a sliding window of N tokens, a token attends to the last N
only, or, if attention is not causal, to those within N / 2. The fused kernel never forms A; with softcapping, or while
"weights" is watched, the reference form runs instead.
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.tap import is_watched, tap
from engram.nn.linear import Linear
from engram.nn.position import RotaryEmbedding

QKNorm = Literal["none", "layer-no-affine", "rms", "rms-no-affine", "rms-width"]
CacheBits = Literal[32, 16, 8]
"""bits of the keys and values of a KV cache"""


def attention(
    q_BHTD: Tensor,
    k_BGSD: Tensor,
    v_BGSD: Tensor,
    mask: Tensor | None = None,
    bias_HTS: Tensor | None = None,
    *,
    causal: bool = False,
    window: int = 0,
    scale: float = 0.0,
) -> Tensor:
    """Fused attention (2), (3): B × H × T × D. `causal` aligns the last query with the last key.

    A window of 0 tokens has no end, and a scale of 0 is 1 / sqrt(D).
    """
    T, S = q_BHTD.shape[2], k_BGSD.shape[2]
    if windowed := limits(window, S, causal):
        band_TS = window_mask(T, S, window, causal, q_BHTD.device)
        mask = band_TS if mask is None else mask & band_TS
    elif causal and T > 1 and (mask is not None or bias_HTS is not None or T != S):
        causal_TS = causal_mask(T, S, q_BHTD.device)
        mask = causal_TS if mask is None else mask & causal_TS
    is_causal = causal and mask is None and T > 1 and not windowed
    if bias_HTS is not None:
        mask = bias_HTS[None] if mask is None else torch.where(mask, bias_HTS, -math.inf)
    grouped = q_BHTD.shape[1] != k_BGSD.shape[1]
    return F.scaled_dot_product_attention(
        q_BHTD, k_BGSD, v_BGSD, mask, is_causal=is_causal, scale=scale or None, enable_gqa=grouped
    )


def reference_attention(
    q_BHTD: Tensor,
    k_BGSD: Tensor,
    v_BGSD: Tensor,
    mask: Tensor | None = None,
    bias_HTS: Tensor | None = None,
    *,
    causal: bool = False,
    window: int = 0,
    scale: float = 0.0,
    softcap: float = 0.0,
    temperature: float = 1.0,
) -> Tensor:
    """Attention (2), (3) step by step, with its weights tapped; temperature 0 is hard selection (1)."""
    group, T, S = q_BHTD.shape[1] // k_BGSD.shape[1], q_BHTD.shape[2], k_BGSD.shape[2]
    k_BHSD, v_BHSD = k_BGSD.repeat_interleave(group, 1), v_BGSD.repeat_interleave(group, 1)
    score_BHTS = q_BHTD @ k_BHSD.mT
    score_BHTS = score_BHTS * scale if scale else score_BHTS / math.sqrt(q_BHTD.shape[-1])
    if softcap:
        score_BHTS = softcap * torch.tanh(score_BHTS / softcap)  # (6)
    if bias_HTS is not None:
        score_BHTS = score_BHTS + bias_HTS
    if limits(window, S, causal):
        score_BHTS = score_BHTS.masked_fill(~window_mask(T, S, window, causal, q_BHTD.device), -math.inf)
    elif causal:
        score_BHTS = score_BHTS.masked_fill(~causal_mask(T, S, q_BHTD.device), -math.inf)
    if mask is not None:
        score_BHTS = score_BHTS.masked_fill(~mask, -math.inf)
    if temperature == 0:
        weights_BHTS = torch.zeros_like(score_BHTS).scatter(-1, score_BHTS.argmax(-1, keepdim=True), 1.0)  # (1)
    else:
        weights_BHTS = torch.softmax(score_BHTS / temperature, -1)  # (2)
    return tap("weights", weights_BHTS) @ v_BHSD  # (3)


def causal_mask(T: int, S: int, device: torch.device | None = None) -> Tensor:
    """T × S, true where a key is not in the future of the query."""
    return torch.ones(T, S, dtype=torch.bool, device=device).tril(S - T)


def window_mask(T: int, S: int, window: int, causal: bool, device: torch.device | None = None) -> Tensor:
    """T × S, true where a key is one of the last `window` tokens.

    Without `causal`, at most `window` / 2 away.
    """
    distance_TS = torch.arange(S - T, S, device=device)[:, None] - torch.arange(S, device=device)
    if causal:
        return (distance_TS >= 0) & (distance_TS < window)
    return distance_TS.abs() <= window // 2


def limits(window: int, S: int, causal: bool) -> bool:
    """Whether a window hides any of S tokens; one of 0 hides none."""
    return 0 < window < S if causal else window > 0 and window // 2 < S - 1


class KVCache:
    """Keys and values of one attention layer for the tokens so far, for autoregressive decoding.

    Memory for `capacity` tokens is allocated once, so that a new token does not copy those before it. With 16 bits they
    are rounded, and with 8 quantized, by a scale for each key and value.
    """

    def __init__(self, capacity: int, bits: CacheBits = 32) -> None:
        self.capacity, self.bits, self.length = capacity, bits, 0
        self.k_BGSD = self.v_BGSD = self.k_scale_BGS1 = self.v_scale_BGS1 = torch.empty(0)

    def allocate(self, k_BGTD: Tensor) -> None:
        """Allocate memory for rows of keys and values such as these."""
        B, G, _, D = k_BGTD.shape
        dtype = {32: k_BGTD.dtype, 16: torch.float16, 8: torch.int8}[self.bits]
        self.k_BGSD, self.v_BGSD = (k_BGTD.new_empty(B, G, self.capacity, D, dtype=dtype) for _ in range(2))
        if self.bits == 8:
            self.k_scale_BGS1, self.v_scale_BGS1 = (k_BGTD.new_empty(B, G, self.capacity, 1) for _ in range(2))

    def tensors(self) -> tuple[Tensor, ...]:
        """Keys and values as they are stored, and their scales."""
        return self.k_BGSD, self.v_BGSD, self.k_scale_BGS1, self.v_scale_BGS1

    def extend(self, k_BGTD: Tensor, v_BGTD: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values of T tokens, and return all so far."""
        if not self.length:
            self.allocate(k_BGTD)
        new = slice(self.length, self.length + k_BGTD.shape[2])
        self.length = new.stop
        for value, rows, scales in (
            (k_BGTD, self.k_BGSD, self.k_scale_BGS1),
            (v_BGTD, self.v_BGSD, self.v_scale_BGS1),
        ):
            if self.bits == 8:
                scales[:, :, new] = value.abs().amax(-1, keepdim=True) / 127
                value = (value / scales[:, :, new].clamp(min=1e-30)).round()
            rows[:, :, new] = value
        return self.read()

    def read(self) -> tuple[Tensor, Tensor]:
        """Keys and values so far."""
        k_BGSD, v_BGSD = self.k_BGSD[:, :, : self.length], self.v_BGSD[:, :, : self.length]
        if self.bits == 8:
            k_scale, v_scale = (scale[:, :, : self.length] for scale in (self.k_scale_BGS1, self.v_scale_BGS1))
            return k_BGSD * k_scale, v_BGSD * v_scale
        return (k_BGSD.float(), v_BGSD.float()) if self.bits == 16 else (k_BGSD, v_BGSD)

    def reorder(self, row_B: Tensor) -> None:
        """Reorder the cache: row i becomes a copy of row `row_B[i]` (beam search)."""
        self.k_BGSD, self.v_BGSD = self.k_BGSD[row_B], self.v_BGSD[row_B]
        if self.bits == 8:
            self.k_scale_BGS1, self.v_scale_BGS1 = self.k_scale_BGS1[row_B], self.v_scale_BGS1[row_B]


class Attention(nn.Module):
    """Multi-head attention: self-attention, or cross-attention to the tokens of another sequence."""

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        kv_heads: int = 0,
        head_width: int = 0,
        qkv_bias: bool = True,
        out_bias: bool = True,
        causal: bool = False,
        window: int = 0,
        scale: float = 0.0,
        softcap: float = 0.0,
        qk_norm: QKNorm = "none",
        eps: float = 1e-5,
        rotary: RotaryEmbedding | None = None,
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_width = heads, kv_heads or heads, head_width or width // heads
        self.causal, self.window, self.scale, self.softcap = causal, window, scale, softcap
        self.qk_norm, self.eps, self.rotary = qk_norm, eps, rotary
        self.q = Linear(width, heads * self.head_width, qkv_bias)
        self.k = Linear(width, self.kv_heads * self.head_width, qkv_bias)
        self.v = Linear(width, self.kv_heads * self.head_width, qkv_bias)
        self.o = Linear(heads * self.head_width, width, out_bias)
        if qk_norm in ("rms", "rms-width"):
            whole = qk_norm == "rms-width"
            self.q_norm = nn.RMSNorm(self.q.out_features if whole else self.head_width, eps)
            self.k_norm = nn.RMSNorm(self.k.out_features if whole else self.head_width, eps)

    def forward(
        self,
        x_BTE: Tensor,
        z_BSE: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        bias_HTS: Tensor | None = None,
        position_ids_BT: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Attention of x to z, or to x itself; `position_ids` where tokens do not simply follow each other."""
        start = cache.length if cache is not None else 0
        if z_BSE is not None and start:  # keys and values of the encoder are cached
            assert cache is not None
            q_BTE, (k_BGSD, v_BGSD) = self.q(x_BTE), cache.read()
        else:
            q_BTE, k_BSE, v_BSE = self._qkv(x_BTE) if z_BSE is None else (self.q(x_BTE), self.k(z_BSE), self.v(z_BSE))
            k_BGSD, v_BGSD = self._split_keys(k_BSE, start, position_ids_BT), self._split_heads(v_BSE)  # (4)
            if cache is not None:
                k_BGSD, v_BGSD = cache.extend(k_BGSD, v_BGSD)
        q_BHTD = self._split_queries(q_BTE, start, position_ids_BT)
        head_BHTD = tap("heads", self.attend(q_BHTD, k_BGSD, v_BGSD, mask, bias_HTS))  # (3)
        return tap("out", self.o(head_BHTD.transpose(1, 2).flatten(2)))  # (5)

    def attend(
        self,
        q_BHTD: Tensor,
        k_BGSD: Tensor,
        v_BGSD: Tensor,
        mask: Tensor | None = None,
        bias_HTS: Tensor | None = None,
    ) -> Tensor:
        """Attention (3) of each head, as configured."""
        settings = {"causal": self.causal, "window": self.window, "scale": self.scale}
        if self.softcap or is_watched("weights"):
            return reference_attention(q_BHTD, k_BGSD, v_BGSD, mask, bias_HTS, softcap=self.softcap, **settings)  # type: ignore[arg-type]
        return attention(q_BHTD, k_BGSD, v_BGSD, mask, bias_HTS, **settings)  # type: ignore[arg-type]

    def forward_unpadded(self, x_NE: Tensor, lengths: list[int]) -> Tensor:
        """Self-attention within each of several concatenated sequences of variable length, without padding."""
        position_ids_1N = (
            torch.cat([torch.arange(length) for length in lengths])[None] if self.rotary is not None else None
        )
        q = self._split_queries(self.q(x_NE)[None], 0, position_ids_1N)
        k = self._split_keys(self.k(x_NE)[None], 0, position_ids_1N)
        parts = [whole.split(lengths, 2) for whole in (q, k, self._split_heads(self.v(x_NE)[None]))]  # (4)
        heads = [self.attend(*qkv).transpose(1, 2).flatten(2) for qkv in zip(*parts, strict=True)]
        return self.o(torch.cat(heads, 1)[0])  # (5)

    def _qkv(self, x_BTE: Tensor) -> tuple[Tensor, ...]:
        """Projections (4) of self-attention.

        In training as one matrix product, which makes one in backward too.
        """
        parts = self.q, self.k, self.v
        if not torch.is_grad_enabled() or any(type(part) is not Linear for part in parts):
            return tuple(part(x_BTE) for part in parts)
        W_OE = torch.cat([part.weight for part in parts])
        b_O = torch.cat([part.bias for part in parts]) if self.q.bias is not None else None
        return F.linear(x_BTE, W_OE, b_O).split([part.out_features for part in parts], -1)

    def _split_heads(self, x_BTE: Tensor) -> Tensor:
        return x_BTE.unflatten(-1, (-1, self.head_width)).transpose(1, 2)

    def _split_queries(self, q_BTE: Tensor, start: int, position_ids_BT: Tensor | None) -> Tensor:
        return self._split_rope(q_BTE, self.q_norm if hasattr(self, "q_norm") else None, start, position_ids_BT)

    def _split_keys(self, k_BTE: Tensor, start: int, position_ids_BT: Tensor | None) -> Tensor:
        return self._split_rope(k_BTE, self.k_norm if hasattr(self, "k_norm") else None, start, position_ids_BT)

    def _split_rope(self, x_BTE: Tensor, norm: nn.Module | None, start: int, position_ids_BT: Tensor | None) -> Tensor:
        """Queries or keys by head, with QK-norm and rotary position embedding (RoPE) where configured."""
        if norm is not None and self.qk_norm == "rms-width":
            x_BTE = norm(x_BTE)
        x_BTHD = x_BTE.unflatten(-1, (-1, self.head_width))
        if norm is not None and self.qk_norm == "rms":
            x_BTHD = norm(x_BTHD)
        elif self.qk_norm == "layer-no-affine":
            x_BTHD = F.layer_norm(x_BTHD, (self.head_width,))
        elif self.qk_norm == "rms-no-affine":
            x_BTHD = F.rms_norm(x_BTHD, (self.head_width,), eps=self.eps)
        if self.rotary is not None:
            x_BTHD = self.rotary(x_BTHD, start, position_ids_BT)
        return x_BTHD.transpose(1, 2)


def check_heads(width: int, heads: int, kv_heads: int, head_width: int = 0) -> None:
    """Refuse heads that do not divide the width (without their own), kv_heads that do not divide heads."""
    if heads < 1 or width < 1 or (width % heads and not head_width):
        raise EngramError(f"heads must divide width, and {heads} does not divide {width}.")
    if kv_heads < 0 or (kv_heads and heads % kv_heads):
        raise EngramError(f"kv_heads must divide heads, and {kv_heads} does not divide {heads}.")
