r"""GPT: a causal Transformer, trained to predict the next token (Radford et al. 2018, 2019).

    h_0 = E[x] + P                                        token and position embedding; RoPE rotates q and k     (1)
    h_l = \text{block}_l(h_{l-1})                         causal: a token attends to itself and the past         (2)
    p(x_{t+1} | x_{\le t}) = \text{softmax}(\text{norm}(h_L) W)      W is E^T with weight tying                      (3)
    L = -\sum_t \log p(x_{t+1} | x_{\le t})               cross-entropy                                          (4)
    z \leftarrow c \tanh(z / c)                            softcapping of logits z (Gemma 2)                      (5)

    Symbols:
        x          tokens
        h_l        residual stream after layer l
        E, P       token embedding, position embedding
        W          output matrix
        c          softcap: logits stay between -c and c
        B, T, V    batch, tokens, vocabulary

The defaults train fastest on a CPU: rotary position embedding (RoPE), LayerNorm without gain and bias, QK-norm, ReLU²,
output projections initialized to zero. `gpt2` returns the classic architecture: learned positions, biases, GELU, affine
LayerNorm, weight tying.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, Gt
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.config import FromData
from engram.core.errors import EngramError
from engram.core.fit import FitMixin
from engram.core.tap import is_watching, tap
from engram.generation import generate
from engram.nn.attention import CacheBits, KVCache, QKNorm
from engram.nn.linear import Linear
from engram.nn.position import RoPE, RotaryEmbedding, sinusoidal
from engram.nn.transformer_block import PROJECTIONS, Block, BlockConfig, FFActivation, Norm, make_norm, rotary_by_layer


class GPT(FitMixin, nn.Module, generate.LanguageModel):
    """Causal Transformer language model."""

    embeds_texts = True
    """whether its tokens have vectors that are pooled to that of a text (hub/embedding.py)"""
    cache_bits: CacheBits = 32
    """bits of keys and values in the KV cache of generation"""

    @dataclass(frozen=True, kw_only=True)
    class Config(BlockConfig):
        vocabulary: FromData[int] = 65
        """vocabulary size (V)"""
        context: Annotated[int, Ge(1)] = 64
        """context length in tokens (T)"""
        position: Literal["rotary", "learned", "sinusoidal"] = "rotary"
        """position encoding: rotary embedding (RoPE), learned embedding, or sinusoidal"""
        tie_embeddings: bool = False
        """weight tying: the token embedding is the output matrix too"""
        activation: FFActivation = "relu2"
        norm: Norm = "layer-no-affine"
        bias: tuple[str, ...] = ()
        qk_norm: QKNorm = "layer-no-affine"
        rope: RoPE = field(default_factory=RoPE)
        """settings of the rotary embedding"""
        embedding_scale: Annotated[float, Gt(0)] = 1.0
        """factor by which the token embedding is multiplied"""
        logit_softcap: Annotated[float, Ge(0)] = 0.0
        """softcap of the logits: they stay within ± this number; 0 disables"""

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.position == "rotary" and self.size_of_head % 2:
                raise EngramError(f"Rotary positions need heads of even width, not {self.size_of_head}.")

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        if config.position == "learned":
            self.position = nn.Embedding(config.context, config.width)
        elif config.position == "sinusoidal":
            self.register_buffer("sinusoid_TE", sinusoidal(config.context, config.width), persistent=False)
        rotary: Iterator[RotaryEmbedding | None] = itertools.repeat(None, config.layers)
        if config.position == "rotary":
            rotary = rotary_by_layer(config, config.rope, config.context)
        self.blocks = nn.ModuleList(Block(config, layer=i, causal=True, rotary=one) for i, one in enumerate(rotary))
        self.norm = make_norm(config)
        self.head = Linear(config.width, config.vocabulary, bias=False)
        if config.tie_embeddings:
            self.head.weight = self.embedding.weight
        self.initialize()

    def initialize(self) -> None:
        """Initialize output projections to zero, so that every block is the identity at first."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.5 * module.in_features**-0.5)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=1.0 if self.config.norm.endswith("no-affine") else 0.02)
        for block in self.blocks:
            nn.init.zeros_(block.attention.o.weight)  # type: ignore[union-attr, arg-type]
            nn.init.zeros_(block.ff.down.weight)  # type: ignore[union-attr, arg-type]
        if not self.config.tie_embeddings:
            nn.init.zeros_(self.head.weight)

    def forward(
        self,
        x_BT: Tensor,
        *,
        cache: list[KVCache] | None = None,
        mask: Tensor | None = None,
        position_ids_BT: Tensor | None = None,
        last: int = 0,
    ) -> Tensor:
        """Logits of the next token after each token, B × T × V, or after the `last` ones only.

        With a KV cache, x continues where the cache ends. `mask` and `position_ids` are for left-padded rows.
        """
        h_BTE = self.embed_tokens(x_BT, cache[0].length if cache else 0, position_ids_BT)  # (1)
        for i, block in enumerate(self.blocks):
            h_BTE = block(h_BTE, mask=mask, position_ids_BT=position_ids_BT, cache=cache[i] if cache else None)  # (2)
        return self.logits(h_BTE[:, -last:] if last else h_BTE)

    def encode(self, x_BT: Tensor, valid_BT: Tensor | None = None) -> Tensor:
        """Encode each token as a vector, B × T × E, after the last norm.

        Zeros for padding, which follows a text.
        """
        if valid_BT is None or is_watching():  # a causal model never looks at what follows
            h_BTE = self.embed_tokens(x_BT)
            for block in self.blocks:
                h_BTE = block(h_BTE)
            return self.norm(h_BTE) if valid_BT is None else self.norm(h_BTE) * valid_BT[..., None]
        lengths = [length for length in valid_BT.sum(1).tolist() if length]
        position_ids_1N = torch.cat([torch.arange(length) for length in lengths])[None]
        h_NE = self.embed_tokens(x_BT[valid_BT][None], position_ids_BT=position_ids_1N)[0]
        for block in self.blocks:
            h_NE = block.forward_unpadded(h_NE, lengths)  # type: ignore[operator]
        zeros_BTE = h_NE.new_zeros(*x_BT.shape, h_NE.shape[1])
        return zeros_BTE.masked_scatter(valid_BT[..., None], self.norm(h_NE))

    def embed_tokens(self, x_BT: Tensor, start: int = 0, position_ids_BT: Tensor | None = None) -> Tensor:
        """Token embedding plus position, B × T × E."""
        h_BTE = self.embedding(x_BT)
        if self.config.embedding_scale != 1:
            h_BTE = h_BTE * self.config.embedding_scale
        positions = slice(start, start + x_BT.shape[1]) if position_ids_BT is None else position_ids_BT
        if self.config.position == "learned":
            h_BTE = h_BTE + self.position.weight[positions]
        elif self.config.position == "sinusoidal":
            h_BTE = h_BTE + self.sinusoid_TE[positions]  # type: ignore[index]
        if self.config.norm == "layer-no-affine":
            h_BTE = F.layer_norm(h_BTE, (self.config.width,), eps=self.config.eps)
        elif self.config.norm == "rms-no-affine":
            h_BTE = F.rms_norm(h_BTE, (self.config.width,), eps=self.config.eps)
        return tap("embedding", h_BTE)

    def logits(self, h_BTE: Tensor) -> Tensor:
        """Logits of the residual stream: after the last layer, or after any layer (logit lens)."""
        logits_BTV = self.head(self.norm(h_BTE))  # (3)
        if cap := self.config.logit_softcap:
            logits_BTV = cap * torch.tanh(logits_BTV / cap)  # (5)
        return tap("logits", logits_BTV)

    def loss(self, x_BT: Tensor, y_BT: Tensor) -> Tensor:
        """Cross-entropy (4), averaged over all tokens."""
        logits_BTV = self(x_BT)
        return F.cross_entropy(logits_BTV.flatten(0, 1), y_BT.flatten())  # (4)

    def make_decoder(self, *, cached: bool = True) -> generate.TransformerDecoder:
        return generate.TransformerDecoder(self, cached=cached, cache_bits=self.cache_bits)


def gpt2(**changes: Any) -> GPT.Config:
    """Return the configuration of GPT-2, by default the small one."""
    classic: dict[str, Any] = {
        "vocabulary": 50257, "context": 1024, "width": 768, "layers": 12, "heads": 12, "position": "learned",
        "norm": "layer", "activation": "gelu_tanh", "bias": PROJECTIONS, "qk_norm": "none", "tie_embeddings": True,
    }  # fmt: skip
    return GPT.Config(**(classic | changes))
