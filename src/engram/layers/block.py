"""One round of a Transformer: attention, then each token for itself (note 001 «One round»; Vaswani et al. 2017 §3.1).

B batch, T tokens, E width of the stream, F width inside

    pre-norm    h <- h + attention(norm(h)),    h <- h + ff(norm(h))                                        (1)
    post-norm   h <- norm(h + attention(h)),    h <- norm(h + ff(h))          as in the paper, BERT, Marian  (2)
    ff(h) = f(h W_up + b_up) W_down + b_down                                                                 (3)
    SwiGLU(h) = (silu(h W_gate) * (h W_up)) W_down                            Shazeer 2020                   (4)

In a decoder a second attention, to the encoder's tokens, stands between the two.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from engram.core.errors import EngramError
from engram.core.tap import tap
from engram.layers.attention import Attention, KeyValues, check_heads
from engram.layers.gelu import gelu_tanh
from engram.layers.linear import Linear
from engram.layers.position import Rotary


class ReLU2(torch.autograd.Function):
    """relu(z)^2 (So et al. 2021) with its derivative 2 relu(z): four times as quick as autograd's own way."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:  # type: ignore[override]
        r = torch.relu(z)
        ctx.save_for_backward(r)
        return r * r

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:  # type: ignore[override]
        (r,) = ctx.saved_tensors
        return (slope * r).mul_(2)


def relu2(z: Tensor) -> Tensor:
    return ReLU2.apply(z) if z.requires_grad else torch.relu(z).square_()


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,  # GPT-2
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),  # CLIP
    "relu2": relu2,
    "silu": F.silu,
    "swiglu": F.silu,
}
Function = Literal["relu", "gelu", "gelu_tanh", "quick_gelu", "relu2", "silu", "swiglu"]


@dataclass(frozen=True, kw_only=True)
class BlockConfig:
    """What every Transformer is made of."""

    width: int = 128
    """width of the stream (E)"""
    layers: int = 4
    """rounds of attention and feed-forward, one after the other"""
    heads: int = 4
    """heads of attention in each round (H)"""
    kv_heads: int = 0
    """heads of keys and values, which the heads share in groups; 0 means as many as heads"""
    inside: int = 0
    """units of the feed-forward part (F); 0 means four times the width"""
    function: Function = "gelu"
    """function of the units of the feed-forward part"""
    norm: Literal["layer", "plain"] = "layer"
    """what keeps the stream at its size: layer norm with gain and bias, or plain, without them"""
    pre: bool = True
    """norm before attention and feed-forward instead of after"""
    bias: bool = True
    """biases in attention and feed-forward"""
    qk_norm: bool = False
    """bring queries and keys to the same length"""
    dropout: float = 0.0
    """part of what enters the stream that is silenced at random while learning"""
    eps: float = 1e-5
    """smallest variance of a norm"""

    def __post_init__(self) -> None:
        check_heads(self.width, self.heads, self.kv_heads)
        if self.layers < 1:
            raise EngramError(f"layers must be at least 1, not {self.layers}.")
        if self.inside < 0:
            raise EngramError(f"inside must not be negative, and is {self.inside}.")
        if not 0 <= self.dropout < 1:
            raise EngramError(f"dropout is a part, at least 0 and below 1, not {self.dropout}.")


def norm(config: BlockConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.width, config.eps, elementwise_affine=config.norm == "layer")


class FeedForward(nn.Module):
    """Each token for itself through a hidden layer."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        inside = config.inside or 4 * config.width
        self.function, self.f = config.function, FUNCTIONS[config.function]
        self.up = Linear(config.width, inside, config.bias)
        self.down = Linear(inside, config.width, config.bias)
        self.gate = Linear(config.width, inside, config.bias) if config.function == "swiglu" else None

    def forward(self, x_BTE: Tensor) -> Tensor:
        up_BTF = self.up(x_BTE)
        inside_BTF = self.f(self.gate(x_BTE)) * up_BTF if self.gate is not None else self.f(up_BTF)
        return self.down(tap("inside", inside_BTF))  # (3), (4)


class Block(nn.Module):
    """One round."""

    def __init__(
        self, config: BlockConfig, *, causal: bool = False, cross: bool = False, rotary: Rotary | None = None
    ) -> None:
        super().__init__()
        self.pre, self.dropout = config.pre, config.dropout
        self.recomputed = False  # whether what happens inside is forgotten, and computed again on the way back
        heads = {"kv_heads": config.kv_heads, "bias": config.bias, "qk_norm": config.qk_norm}
        self.attention = Attention(config.width, config.heads, causal=causal, rotary=rotary, **heads)  # type: ignore[arg-type]
        self.attention_norm = norm(config)
        if cross:
            self.cross = Attention(config.width, config.heads, **heads)  # type: ignore[arg-type]
            self.cross_norm = norm(config)
        self.ff = FeedForward(config)
        self.ff_norm = norm(config)

    def forward(
        self,
        h_BTE: Tensor,
        *,
        mask: Tensor | None = None,
        place_BT: Tensor | None = None,
        cache: KeyValues | None = None,
        memory_BSE: Tensor | None = None,
        memory_mask: Tensor | None = None,
        memory_cache: KeyValues | None = None,
    ) -> Tensor:
        h_BTE = self._add(
            h_BTE, self.attention_norm, lambda x: self.attention(x, mask=mask, place_BT=place_BT, cache=cache)
        )
        if memory_BSE is not None:
            h_BTE = self._add(
                h_BTE, self.cross_norm, lambda x: self.cross(x, memory_BSE, mask=memory_mask, cache=memory_cache)
            )
        return tap("stream", self._add(h_BTE, self.ff_norm, self.ff))

    def packed(self, h_NE: Tensor, lengths: list[int]) -> Tensor:
        """The same on sequences without padding, one after the other."""
        h_NE = self._add(h_NE, self.attention_norm, lambda x: self.attention.packed(x, lengths))
        return self._add(h_NE, self.ff_norm, self.ff)

    def _add(self, h: Tensor, norm: nn.Module, part: Callable[[Tensor], Tensor]) -> Tensor:
        """What a part makes of the stream, added to it."""
        if self.recomputed and self.training:
            return checkpoint(self._added, h, norm, part, use_reentrant=False)  # type: ignore[no-any-return]
        return self._added(h, norm, part)

    def _added(self, h: Tensor, norm: nn.Module, part: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre:
            return h + self._dropped(part(norm(h)))  # (1)
        return norm(h + self._dropped(part(h)))  # (2)

    def _dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x
