r"""Transformer block: attention and feed-forward on the residual stream (Vaswani et al. 2017).

    h \leftarrow h + \text{attention}(\text{norm}(h))               pre-norm: attention (GPT-2, ViT)        (1)
    h \leftarrow h + \text{ff}(\text{norm}(h))                      pre-norm: feed-forward                  (2)
    h \leftarrow \text{norm}(h + \text{attention}(h))               post-norm: attention (BERT, Marian)     (3)
    h \leftarrow \text{norm}(h + \text{ff}(h))                      post-norm: feed-forward                 (4)
    \text{ff}(h) = f(h W_u + b_u) W_d + b_d                         feed-forward network                    (5)
    \text{ff}(h) = (f(h W_g) \odot h W_u) W_d                      SwiGLU, GeGLU (Shazeer 2020)            (6)
    h \leftarrow h + \text{norm}(\text{attention}(h))               output norm (OLMo 2)                    (7)
    h \leftarrow h + \text{norm}(\text{attention}(\text{norm}(h)))  sandwich norm (Gemma 2)                 (8)
    h \leftarrow h + \text{attention}(\text{norm}(h)) + \text{ff}(\text{norm}'(h))      parallel (GPT-NeoX)   (9)
    h \leftarrow h + \lambda \odot \text{ff}(\text{norm}(h))          LayerScale (DINOv2); attention likewise      (10)

    Symbols:
        h            residual stream
        f            activation function; silu in SwiGLU, GELU in GeGLU
        W_u, W_d     matrices of the feed-forward network: up, down
        W_g          matrix of the gate
        \lambda      learned gain of each channel
        B, T, E, F   batch, tokens, model width, feed-forward width

In a decoder, cross-attention to the encoder's tokens comes between attention and feed-forward. (9) has two norms.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from engram.core.config import Settings
from engram.core.errors import EngramError
from engram.core.tap import tap
from engram.nn.attention import Attention, KVCache, QKNorm, check_heads
from engram.nn.gelu import gelu_tanh
from engram.nn.linear import Linear
from engram.nn.position import RoPE, RotaryEmbedding


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
    "geglu": F.gelu,
    "geglu_tanh": gelu_tanh,  # Gemma
}
FFActivation = Literal["relu", "gelu", "gelu_tanh", "quick_gelu", "relu2", "silu", "swiglu", "geglu", "geglu_tanh"]
GATED = ("swiglu", "geglu", "geglu_tanh")
"""activation functions of a gate"""
Norm = Literal["layer", "layer-no-bias", "layer-no-affine", "rms", "rms-no-affine"]
Residual = Literal["pre-norm", "post-norm", "output-norm", "sandwich-norm", "parallel"]
PROJECTIONS = ("qkv", "out", "ff")
"""projections that may have biases: queries, keys and values; output of attention; feed-forward network"""


@dataclass(frozen=True, kw_only=True)
class BlockConfig(Settings):
    """Architecture of a stack of Transformer blocks."""

    projections: ClassVar[tuple[str, ...]] = PROJECTIONS
    """projections that `bias` may name"""
    width: Annotated[int, Ge(1)] = 128
    """model width: size of the residual stream (d_model, E)"""
    layers: Annotated[int, Ge(1)] = 4
    """number of Transformer layers"""
    heads: Annotated[int, Ge(1)] = 4
    """attention heads per layer (H); must divide the width"""
    kv_heads: Annotated[int, Ge(0)] = 0
    """key/value heads, shared by groups of heads (grouped-query attention, GQA; 1: multi-query); 0: one per head"""
    head_width: Annotated[int, Ge(0)] = 0
    """width of a head (D); 0 means width / heads"""
    ff_width: Annotated[int, Ge(0)] = 0
    """hidden units of the feed-forward network (d_ff, F); 0 means 4 × width"""
    activation: FFActivation = "gelu"
    """activation function of the feed-forward network"""
    norm: Norm = "layer"
    """LayerNorm with gain and bias or gain alone (no-bias), RMSNorm with gain, or either without both (no-affine)"""
    residual: Residual = "pre-norm"
    """how attention and feed-forward are added to the residual stream, and where they are normalized"""
    bias: tuple[str, ...] = PROJECTIONS
    """projections with biases: any of qkv (queries, keys, values), out (output of attention), ff (feed-forward)"""
    qk_norm: QKNorm = "none"
    """QK-norm: how queries and keys are normalized, by head, or over all heads together (rms-width)"""
    attention_window: Annotated[tuple[int, ...], Ge(0)] = (0,)
    """sliding window of each layer in tokens, repeated over the layers; 0 attends to all tokens"""
    attention_scale: Annotated[float, Ge(0)] = 0.0
    """factor of the attention scores; 0 means 1 / sqrt(head width)"""
    attention_softcap: Annotated[float, Ge(0)] = 0.0
    """softcap of the attention scores: they stay within ± this number; 0 disables"""
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.0
    """dropout probability on the output of attention and feed-forward; 0 disables"""
    eps: Annotated[float, Ge(0)] = 1e-5
    """constant added to the variance in LayerNorm and RMSNorm"""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_heads(self.width, self.heads, self.kv_heads, self.head_width)
        if unknown := set(self.bias) - set(self.projections):
            raise EngramError(f"bias must name some of {', '.join(self.projections)}, not {min(unknown)}.")
        if not self.attention_window:
            raise EngramError("attention_window must have a number for one layer at least.")

    @property
    def size_of_head(self) -> int:
        """Width of a head."""
        return self.head_width or self.width // self.heads

    def window(self, layer: int) -> int:
        """Sliding window of a layer; 0 attends to all tokens."""
        return self.attention_window[layer % len(self.attention_window)]


def make_norm(config: BlockConfig) -> nn.LayerNorm | nn.RMSNorm:
    """LayerNorm or RMSNorm as configured."""
    affine = not config.norm.endswith("no-affine")
    if config.norm.startswith("rms"):
        return nn.RMSNorm(config.width, config.eps, elementwise_affine=affine)
    return nn.LayerNorm(config.width, config.eps, elementwise_affine=affine, bias=config.norm != "layer-no-bias")


class FeedForward(nn.Module):
    """Feed-forward network (5), applied to each token separately; with a gate (6)."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        ff_width = config.ff_width or 4 * config.width
        self.activation, self.f = config.activation, ACTIVATIONS[config.activation]
        bias = "ff" in config.bias
        self.up = Linear(config.width, ff_width, bias)
        self.down = Linear(ff_width, config.width, bias)
        self.gate = Linear(config.width, ff_width, bias) if config.activation in GATED else None

    def forward(self, x_BTE: Tensor) -> Tensor:
        up_BTF = self.up(x_BTE)
        hidden_BTF = self.f(self.gate(x_BTE)) * up_BTF if self.gate is not None else self.f(up_BTF)
        return self.down(tap("hidden", hidden_BTF))  # (5), (6)


def make_attention(
    config: BlockConfig, *, causal: bool = False, window: int = 0, rotary: RotaryEmbedding | None = None
) -> Attention:
    """Multi-head attention as configured."""
    return Attention(
        config.width, config.heads, kv_heads=config.kv_heads, head_width=config.head_width,
        qkv_bias="qkv" in config.bias, out_bias="out" in config.bias, causal=causal, window=window,
        scale=config.attention_scale, softcap=config.attention_softcap, qk_norm=config.qk_norm, eps=config.eps,
        rotary=rotary,
    )  # fmt: skip


def rotary_by_layer(config: BlockConfig, rope: RoPE, context: int) -> Iterator[RotaryEmbedding | None]:
    """Yield the rotary embedding of each layer, shared by layers of the same settings.

    None for a layer without (NoPE).

    RoPE scaling is for layers that attend to all tokens, or for all layers where every one has a window.
    """
    tables: dict[tuple[float, bool], RotaryEmbedding] = {}
    for layer in range(config.layers):
        theta = rope.theta[layer % len(rope.theta)]
        if not theta:
            yield None
            continue
        scaled = all(config.attention_window) or not config.window(layer)
        if (theta, scaled) not in tables:
            settings = rope if scaled else replace(rope, rope_scaling="none", rope_amplitude=1.0)
            tables[theta, scaled] = RotaryEmbedding(config.size_of_head, context, settings, theta)
        yield tables[theta, scaled]


class LayerScale(nn.Module):
    """LayerScale (Touvron et al. 2021): a learned gain of each channel on the output of a sublayer."""

    def __init__(self, width: int, value: float) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.full((width,), value))

    def forward(self, x_BTE: Tensor) -> Tensor:
        return self.gain * x_BTE  # (10)


class Block(nn.Module):
    """One Transformer layer, the `layer`-th; `cross` adds cross-attention to an encoder.

    `layer_scale` is the initial gain of LayerScale; 0 has none.
    """

    def __init__(
        self,
        config: BlockConfig,
        *,
        layer: int = 0,
        causal: bool = False,
        cross: bool = False,
        rotary: RotaryEmbedding | None = None,
        layer_scale: float = 0.0,
    ) -> None:
        super().__init__()
        self.residual, self.dropout = config.residual, config.dropout
        self.grad_checkpointing = False  # recompute activations in the backward pass to save memory
        self.attention = make_attention(config, causal=causal, window=config.window(layer), rotary=rotary)
        self.attention_norm = make_norm(config)
        if cross:
            self.cross = make_attention(config)
            self.cross_norm = make_norm(config)
        self.ff = FeedForward(config)
        self.ff_norm = make_norm(config)
        if config.residual == "sandwich-norm":
            self.attention_out_norm, self.ff_out_norm = make_norm(config), make_norm(config)
        if layer_scale:
            self.attention_layer_scale, self.ff_layer_scale = (LayerScale(config.width, layer_scale) for _ in range(2))

    def forward(
        self,
        h_BTE: Tensor,
        *,
        mask: Tensor | None = None,
        bias_HTS: Tensor | None = None,
        position_ids_BT: Tensor | None = None,
        cache: KVCache | None = None,
        encoded_BSE: Tensor | None = None,
        encoded_mask: Tensor | None = None,
        cross_cache: KVCache | None = None,
    ) -> Tensor:
        """The residual stream after this layer, B × T × E; `encoded` are the tokens of an encoder."""

        def attend(x: Tensor) -> Tensor:
            out = self.attention(x, mask=mask, bias_HTS=bias_HTS, position_ids_BT=position_ids_BT, cache=cache)
            return self._scale("attention", out)

        if self.residual == "parallel":
            return tap("residual", self._add(h_BTE, None, lambda h: self._both(h, attend)))
        h_BTE = self._add(h_BTE, self.attention_norm, attend)
        if encoded_BSE is not None:
            h_BTE = self._add(
                h_BTE, self.cross_norm, lambda x: self.cross(x, encoded_BSE, mask=encoded_mask, cache=cross_cache)
            )
        return tap("residual", self._add(h_BTE, self.ff_norm, self._feed_forward))

    def forward_unpadded(self, h_NE: Tensor, lengths: list[int]) -> Tensor:
        """The same for concatenated sequences of variable length, without padding."""

        def attend(x: Tensor) -> Tensor:
            return self._scale("attention", self.attention.forward_unpadded(x, lengths))

        if self.residual == "parallel":
            return self._add(h_NE, None, lambda h: self._both(h, attend))
        return self._add(self._add(h_NE, self.attention_norm, attend), self.ff_norm, self._feed_forward)

    def _both(self, h: Tensor, attend: Callable[[Tensor], Tensor]) -> Tensor:
        """Attention and feed-forward of the same residual stream (9)."""
        return attend(self.attention_norm(h)) + self._feed_forward(self.ff_norm(h))

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self._scale("ff", self.ff(x))

    def _scale(self, part: str, x: Tensor) -> Tensor:
        """Apply the LayerScale of a sublayer, if it has one."""
        scale = getattr(self, f"{part}_layer_scale", None)
        return x if scale is None else scale(x)

    def _add(self, h: Tensor, norm: nn.Module | None, part: Callable[[Tensor], Tensor]) -> Tensor:
        """Add the output of a sublayer to the residual stream; a part without a norm has its own."""
        if self.grad_checkpointing and self.training:
            return checkpoint(self._residual, h, norm, part, use_reentrant=False)  # type: ignore[no-any-return]
        return self._residual(h, norm, part)

    def _residual(self, h: Tensor, norm: nn.Module | None, part: Callable[[Tensor], Tensor]) -> Tensor:
        if norm is None:
            return h + self._dropout(part(h))  # (9)
        if self.residual == "pre-norm":
            return h + self._dropout(part(norm(h)))  # (1), (2)
        if self.residual == "output-norm":
            return h + self._dropout(norm(part(h)))  # (7)
        if self.residual == "sandwich-norm":
            out_norm = self.attention_out_norm if norm is self.attention_norm else self.ff_out_norm
            return h + self._dropout(out_norm(part(norm(h))))  # (8)
        return norm(h + self._dropout(part(h)))  # type: ignore[no-any-return]  # (3), (4)

    def _dropout(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x
