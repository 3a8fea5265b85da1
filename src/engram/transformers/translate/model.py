r"""Encoder-decoder Transformer for sequence-to-sequence tasks (Vaswani et al. 2017).

    z_0 = \sqrt{E} E[x] + P,\quad z_l = \text{block}_l(z_{l-1})          encoder: bidirectional attention           (1)
    h_0 = \sqrt{E} E[y] + P,\quad h_l = \text{block}_l(h_{l-1}, z)       decoder: causal, with cross-attention      (2)
    p(y_t | y_{<t}, x) = \text{softmax}(s h_L W + c)                     W is E^T with weight tying                 (3)
    L = -\sum_t \log p(y_t | y_{<t}, x)                                  cross-entropy                              (4)

    Symbols:
        x, y       tokens of source and target
        z, h       residual stream of encoder and decoder
        E, P       token embedding (and its width), position encoding
        W, s, c    output matrix, scale of the logits, output bias
        B, S, T    batch, source tokens, target tokens
        V          vocabulary

Source and target share one vocabulary and one embedding. With relative positions (Raffel et al. 2020) there is no P:
all layers of the encoder share a bias of the scores of self-attention, and those of the decoder another.
"""

import itertools
import math
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.config import FromData
from engram.core.fit import FitMixin
from engram.core.tap import tap
from engram.generation.sampling import GREEDY, Beam, SamplingParams, beam_search, sample_token
from engram.nn.attention import KVCache, check_heads
from engram.nn.linear import Linear
from engram.nn.position import Layout, RelativePosition, RelativePositionBias, sinusoidal
from engram.nn.transformer_block import Block, BlockConfig, FFActivation, make_norm


class Transformer(FitMixin, nn.Module):
    """Encoder-decoder Transformer."""

    @dataclass(frozen=True, kw_only=True)
    class Config(BlockConfig):
        vocabulary: FromData[int] = 100
        """vocabulary size (V)"""
        pad_id: FromData[int] = 0
        """id of the padding token, with which a target begins"""
        eos_id: FromData[int] = 1
        """id of the token that ends a text"""
        context: Annotated[int, Ge(2)] = 128
        """largest number of tokens of a text"""
        decoder_layers: Annotated[int, Ge(0)] = 0
        """number of decoder layers; 0 means as many as encoder layers"""
        decoder_heads: Annotated[int, Ge(0)] = 0
        """attention heads of a decoder layer; 0 means as many as in an encoder layer"""
        decoder_ff_width: Annotated[int, Ge(0)] = 0
        """hidden units of the feed-forward network of a decoder layer; 0 means as many as in an encoder layer"""
        position: Literal["sinusoidal", "relative"] = "sinusoidal"
        """position encoding: sinusoidal, or a bias of the attention scores by relative position (T5)"""
        layout: Layout = "halves"
        """layout of the sinusoidal position encoding: sines and cosines interleaved, or in halves"""
        relative: RelativePosition = field(default_factory=RelativePosition)
        """settings of the relative position bias"""
        activation: FFActivation = "relu"
        scale_embedding: FromData[bool] = True
        """multiply embeddings by the square root of the width"""
        tie_embeddings: bool = True
        """weight tying: the token embedding is the output matrix too"""
        logit_scale: Annotated[float, Gt(0)] = 1.0
        """factor by which the logits are multiplied, before their bias"""
        head_bias: FromData[bool] = True
        """whether the logits have a bias"""

        def __post_init__(self) -> None:
            super().__post_init__()
            check_heads(self.width, self.decoder_heads or self.heads, self.kv_heads, self.head_width)

        @property
        def decoder_blocks(self) -> "Transformer.Config":
            """Architecture of the decoder's blocks."""
            layers, heads = self.decoder_layers or self.layers, self.decoder_heads or self.heads
            return replace(self, layers=layers, heads=heads, ff_width=self.decoder_ff_width or self.ff_width)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        blocks = config.decoder_blocks
        self.encoder_position: RelativePositionBias | None = None
        self.decoder_position: RelativePositionBias | None = None
        if config.position == "relative":
            self.encoder_position = RelativePositionBias(config.heads, config.relative, bidirectional=True)
            self.decoder_position = RelativePositionBias(blocks.heads, config.relative, bidirectional=False)
        else:
            position_TE = sinusoidal(config.context, config.width, config.layout)
            self.register_buffer("position_TE", position_TE, persistent=False)
        self.position_TE: Tensor
        self.encoder = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.decoder = nn.ModuleList(Block(blocks, causal=True, cross=True) for _ in range(blocks.layers))
        normalized = config.residual == "post-norm"
        self.encoder_norm = nn.Identity() if normalized else make_norm(config)
        self.decoder_norm = nn.Identity() if normalized else make_norm(config)
        self.head = None if config.tie_embeddings else Linear(config.width, config.vocabulary, bias=False)
        self.head_bias = nn.Parameter(torch.zeros(config.vocabulary)) if config.head_bias else None
        self.initialize()

    def initialize(self) -> None:
        """Initialize matrices by Glorot's uniform rule, biases to zero, embeddings to a normal distribution."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=self.config.width**-0.5)

    def embed_tokens(self, x_BT: Tensor, start: int = 0) -> Tensor:
        """Token embedding plus position encoding, B × T × E; relative positions are in the attention instead."""
        scale = math.sqrt(self.config.width) if self.config.scale_embedding else 1.0
        h_BTE = self.embedding(x_BT) * scale
        if self.config.position == "sinusoidal":
            h_BTE = h_BTE + self.position_TE[start : start + x_BT.shape[1]]
        return F.dropout(h_BTE, self.config.dropout, self.training)

    def encode(self, x_BS: Tensor) -> tuple[Tensor, Tensor]:
        """Encode the source, B × S × E; also return the mask that is false for padding."""
        valid_B11S = (x_BS != self.config.pad_id)[:, None, None]
        z_BSE, S = tap("source", self.embed_tokens(x_BS)), x_BS.shape[1]
        bias_HSS = self.encoder_position(S, S) if self.encoder_position is not None else None
        for block in self.encoder:
            z_BSE = block(z_BSE, mask=valid_B11S, bias_HTS=bias_HSS)  # (1)
        return self.encoder_norm(z_BSE), valid_B11S

    def decode(
        self, y_BT: Tensor, z_BSE: Tensor, valid_B11S: Tensor, cache: list[tuple[KVCache, KVCache]] | None = None
    ) -> Tensor:
        """Logits of the next token after each of y, B × T × V.

        With a KV cache, y continues where the cache ends.
        """
        start, T = cache[0][0].length if cache else 0, y_BT.shape[1]
        h_BTE = tap("target", self.embed_tokens(y_BT, start))
        bias_HTT = self.decoder_position(T, start + T) if self.decoder_position is not None else None
        for i, block in enumerate(self.decoder):
            self_cache, cross_cache = cache[i] if cache else (None, None)
            encoded = {"encoded_BSE": z_BSE, "encoded_mask": valid_B11S, "cross_cache": cross_cache}
            h_BTE = block(h_BTE, bias_HTS=bias_HTT, cache=self_cache, **encoded)  # (2)
        h_BTE = self.decoder_norm(h_BTE) * self.config.logit_scale
        W_VE = self.embedding.weight if self.head is None else self.head.weight
        return tap("logits", F.linear(h_BTE, W_VE, self.head_bias))  # (3)

    def forward(self, x_BS: Tensor, y_BT: Tensor) -> Tensor:
        """Logits of the next token after each of y, B × T × V."""
        return self.decode(y_BT, *self.encode(x_BS))

    def shift_right(self, y_BT: Tensor) -> Tensor:
        """What the decoder reads while it is taught to write y: the padding token and all but the last of y."""
        return torch.cat([torch.full_like(y_BT[:, :1], self.config.pad_id), y_BT[:, :-1]], 1)

    def loss(self, x_BS: Tensor, y_BT: Tensor, label_smoothing: float = 0.0) -> Tensor:
        """Cross-entropy over the tokens of y that are not padding; the decoder reads y shifted by one."""
        logits = self(x_BS, self.shift_right(y_BT)).flatten(0, 1)
        pad_id = self.config.pad_id
        return F.cross_entropy(logits, y_BT.flatten(), ignore_index=pad_id, label_smoothing=label_smoothing)  # (4)

    @torch.no_grad()
    def translate(
        self,
        x_BS: Tensor,
        max_new_tokens: int = 0,
        params: SamplingParams = GREEDY,
        *,
        generator: torch.Generator | None = None,
        cached: bool = True,
    ) -> list[list[int]]:
        """Generate the target of each source, token by token; 0 tokens means up to the context length."""
        max_new_tokens = min(max_new_tokens or self.config.context, self.config.context)
        z_BSE, valid_B11S = self.encode(x_BS)
        cache = self.make_cache(x_BS.shape[1]) if cached else None
        y_BT = x_BS.new_full((len(x_BS), 1), self.config.pad_id)
        ended_B = torch.zeros(len(x_BS), dtype=torch.bool)
        for _ in range(max_new_tokens):
            logits_BV = self.decode(y_BT[:, -1:] if cached else y_BT, z_BSE, valid_B11S, cache)[:, -1]
            token_B = sample_token(logits_BV, params, generator, y_BT)
            y_BT = torch.cat([y_BT, token_B[:, None]], 1)
            ended_B |= token_B == self.config.eos_id
            if ended_B.all():
                break
        return [cut_at(row, self.config.eos_id) for row in y_BT[:, 1:].tolist()]

    @torch.no_grad()
    def beam_search(
        self, x_1S: Tensor, num_beams: int = 4, max_new_tokens: int = 0, length_penalty: float = 1.0
    ) -> list[Beam]:
        """Return the most probable targets of one source that beam search finds, best first."""
        max_new_tokens = min(max_new_tokens or self.config.context, self.config.context - 1)
        z_1SE, valid = self.encode(x_1S)
        cache = self.make_cache(x_1S.shape[1])

        def step(token_BT: Tensor, row_B: Tensor | None) -> Tensor:
            if row_B is not None:
                for layer in itertools.chain(*cache):
                    layer.reorder(row_B)
            B = len(token_BT)
            return self.decode(token_BT, z_1SE.expand(B, -1, -1), valid.expand(B, -1, -1, -1), cache)[:, -1]

        return beam_search(
            step, [self.config.pad_id], num_beams=num_beams, max_new_tokens=max_new_tokens,
            eos_id=self.config.eos_id, length_penalty=length_penalty,
        )  # fmt: skip

    def make_cache(self, source_tokens: int) -> list[tuple[KVCache, KVCache]]:
        """Make empty KV caches for self-attention and cross-attention of each decoder layer."""
        return [(KVCache(self.config.context), KVCache(source_tokens)) for _ in self.decoder]


def cut_at(tokens: list[int], eos_id: int) -> list[int]:
    """Return the tokens before the first `eos_id`."""
    return tokens[: tokens.index(eos_id)] if eos_id in tokens else tokens
