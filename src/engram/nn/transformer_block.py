r"""Transformer block: attention and a feed-forward network, each added to the residual stream (Vaswani et al. 2017).

    h \leftarrow h + \text{attention}(\text{norm}(h))               pre-norm: attention (GPT-2, ViT)        (1)
    h \leftarrow h + \text{ff}(\text{norm}(h))                      pre-norm: feed-forward                  (2)
    h \leftarrow \text{norm}(h + \text{attention}(h))               post-norm: attention (BERT, Marian)     (3)
    h \leftarrow \text{norm}(h + \text{ff}(h))                      post-norm: feed-forward                 (4)
    \text{ff}(h) = f(h W_u + b_u) W_d + b_d                         feed-forward network                    (5)
    \text{ff}(h) = (\text{silu}(h W_g) \odot h W_u) W_d             SwiGLU (Shazeer 2020)                   (6)

    Symbols:
        h            residual stream
        f            activation function
        W_u, W_d     matrices of the feed-forward network: up, down
        W_g          matrix of the gate
        B, T, E, F   batch, tokens, model width, feed-forward width

In a decoder a second attention, to the tokens of the encoder (cross-attention), stands between the two.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from engram.core.config import Settings
from engram.core.tap import tap
from engram.nn.attention import Attention, KVCache, check_heads
from engram.nn.gelu import gelu_tanh
from engram.nn.linear import Linear
from engram.nn.position import RotaryEmbedding


class ReLU2(torch.autograd.Function):
    """Squared ReLU (So et al. 2021) with its derivative 2 relu(z): four times as fast as autograd."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:  # type: ignore[override]
        r = torch.relu(z)
        ctx.save_for_backward(r)
        return r * r

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        (r,) = ctx.saved_tensors
        return (grad * r).mul_(2)


def relu2(z: Tensor) -> Tensor:
    """Squared ReLU."""
    return ReLU2.apply(z) if z.requires_grad else torch.relu(z).square_()


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,  # GPT-2
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),  # CLIP
    "relu2": relu2,
    "silu": F.silu,
    "swiglu": F.silu,
}
FFActivation = Literal["relu", "gelu", "gelu_tanh", "quick_gelu", "relu2", "silu", "swiglu"]


Norm = Literal["layer", "layer-no-affine"]


@dataclass(frozen=True, kw_only=True)
class BlockConfig(Settings):
    """Architecture of a stack of Transformer blocks."""

    width: Annotated[int, Ge(1)] = 128
    """model width: size of the residual stream (d_model, E)"""
    layers: Annotated[int, Ge(1)] = 4
    """number of Transformer layers"""
    heads: Annotated[int, Ge(1)] = 4
    """attention heads per layer (H); must divide the width"""
    kv_heads: Annotated[int, Ge(0)] = 0
    """key/value heads, shared by groups of heads (grouped-query attention, GQA; 1: multi-query); 0: one per head"""
    ff_width: Annotated[int, Ge(0)] = 0
    """hidden units of the feed-forward network (d_ff, F); 0 means 4 × width"""
    activation: FFActivation = "gelu"
    """activation function of the feed-forward network"""
    norm: Norm = "layer"
    """layer: LayerNorm with gain and bias; layer-no-affine: LayerNorm without them"""
    pre_norm: bool = True
    """normalize before attention and feed-forward (pre-norm) instead of after (post-norm)"""
    bias: bool = True
    """biases in attention and feed-forward layers"""
    qk_norm: bool = False
    """normalize queries and keys of each head (QK-norm)"""
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.0
    """dropout probability on the output of attention and feed-forward; 0 disables"""
    eps: Annotated[float, Ge(0)] = 1e-5
    """constant added to the variance in LayerNorm"""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self.width, self.heads, self.kv_heads)


def make_norm(config: BlockConfig) -> nn.LayerNorm:
    """LayerNorm as configured."""
    return nn.LayerNorm(config.width, config.eps, elementwise_affine=config.norm == "layer")


class FeedForward(nn.Module):
    """Feed-forward network (5), applied to each token separately; SwiGLU (6) with a gate."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        ff_width = config.ff_width or 4 * config.width
        self.activation, self.f = config.activation, ACTIVATIONS[config.activation]
        self.up = Linear(config.width, ff_width, config.bias)
        self.down = Linear(ff_width, config.width, config.bias)
        self.gate = Linear(config.width, ff_width, config.bias) if config.activation == "swiglu" else None

    def forward(self, x_BTE: Tensor) -> Tensor:
        up_BTF = self.up(x_BTE)
        hidden_BTF = self.f(self.gate(x_BTE)) * up_BTF if self.gate is not None else self.f(up_BTF)
        return self.down(tap("hidden", hidden_BTF))  # (5), (6)


class Block(nn.Module):
    """One Transformer layer; `cross` adds cross-attention to an encoder."""

    def __init__(
        self, config: BlockConfig, *, causal: bool = False, cross: bool = False, rotary: RotaryEmbedding | None = None
    ) -> None:
        super().__init__()
        self.pre_norm, self.dropout = config.pre_norm, config.dropout
        self.grad_checkpointing = False  # recompute activations in the backward pass to save memory
        heads = {"kv_heads": config.kv_heads, "bias": config.bias, "qk_norm": config.qk_norm}
        self.attention = Attention(config.width, config.heads, causal=causal, rotary=rotary, **heads)  # type: ignore[arg-type]
        self.attention_norm = make_norm(config)
        if cross:
            self.cross = Attention(config.width, config.heads, **heads)  # type: ignore[arg-type]
            self.cross_norm = make_norm(config)
        self.ff = FeedForward(config)
        self.ff_norm = make_norm(config)

    def forward(
        self,
        h_BTE: Tensor,
        *,
        mask: Tensor | None = None,
        position_ids_BT: Tensor | None = None,
        cache: KVCache | None = None,
        encoded_BSE: Tensor | None = None,
        encoded_mask: Tensor | None = None,
        cross_cache: KVCache | None = None,
    ) -> Tensor:
        """The residual stream after this layer, B × T × E; `encoded` are the tokens of an encoder."""
        h_BTE = self._add(
            h_BTE,
            self.attention_norm,
            lambda x: self.attention(x, mask=mask, position_ids_BT=position_ids_BT, cache=cache),
        )
        if encoded_BSE is not None:
            h_BTE = self._add(
                h_BTE, self.cross_norm, lambda x: self.cross(x, encoded_BSE, mask=encoded_mask, cache=cross_cache)
            )
        return tap("residual", self._add(h_BTE, self.ff_norm, self.ff))

    def forward_unpadded(self, h_NE: Tensor, lengths: list[int]) -> Tensor:
        """The same for concatenated sequences of variable length, without padding."""
        h_NE = self._add(h_NE, self.attention_norm, lambda x: self.attention.forward_unpadded(x, lengths))
        return self._add(h_NE, self.ff_norm, self.ff)

    def _add(self, h: Tensor, norm: nn.Module, part: Callable[[Tensor], Tensor]) -> Tensor:
        """Add the output of a sublayer to the residual stream."""
        if self.grad_checkpointing and self.training:
            return checkpoint(self._residual, h, norm, part, use_reentrant=False)  # type: ignore[no-any-return]
        return self._residual(h, norm, part)

    def _residual(self, h: Tensor, norm: nn.Module, part: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre_norm:
            return h + self._dropout(part(norm(h)))  # (1), (2)
        return norm(h + self._dropout(part(h)))  # (3), (4)

    def _dropout(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x
