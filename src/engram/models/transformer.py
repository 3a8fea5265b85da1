"""Transformer: one sequence is read, another is written (note 004; Vaswani et al. 2017).

B batch, S tokens of the source, T tokens of the target, E width, V vocabulary

    z_0 = sqrt(E) E[x] + P;   z_l = block_l(z_{l-1})                    encoder: every token sees every other     (1)
    h_0 = sqrt(E) E[y] + P;   h_l = block_l(h_{l-1}, z)                 decoder: the past, and the whole source   (2)
    p(y_t | y_<t, x) = softmax(h_L E' + c)                                                                        (3)
    loss = -sum_t log p(y_t | y_<t, x)                                                                            (4)

Source and target share one vocabulary and one embedding, which is the output matrix too.
"""

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.registry import FromData
from engram.core.tap import tap
from engram.layers.attention import KeyValues
from engram.layers.block import Block, BlockConfig, Function, norm
from engram.layers.decoding import GREEDY, Beam, Choice, beam_search, choose
from engram.layers.position import Layout, sinusoidal


class Transformer(nn.Module):
    """Encoder and decoder."""

    @dataclass(frozen=True, kw_only=True)
    class Config(BlockConfig):
        vocabulary: FromData[int] = 100
        """different tokens (V)"""
        padding: FromData[int] = 0
        """the token that fills up rows, and that a target begins with"""
        end: FromData[int] = 1
        """the token that ends a text"""
        context: int = 128
        """tokens of a text at most"""
        decoder_layers: int = 0
        """rounds of the decoder; 0 means as many as the encoder has"""
        layout: Layout = "halves"
        """how sines and cosines of a position are arranged"""
        function: Function = "relu"
        scaled: FromData[bool] = True
        """multiply embeddings by the square root of the width"""

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.context < 2:
                raise EngramError(f"context must be at least 2, not {self.context}.")
            if self.decoder_layers < 0:
                raise EngramError(f"decoder_layers must not be negative, and is {self.decoder_layers}.")

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.register_buffer("place_TE", sinusoidal(config.context, config.width, config.layout), persistent=False)
        self.place_TE: Tensor
        self.encoder = nn.ModuleList(Block(config) for _ in range(config.layers))
        decoder_layers = config.decoder_layers or config.layers
        self.decoder = nn.ModuleList(Block(config, causal=True, cross=True) for _ in range(decoder_layers))
        self.encoder_norm = norm(config) if config.pre else nn.Identity()
        self.decoder_norm = norm(config) if config.pre else nn.Identity()
        self.head_bias = nn.Parameter(torch.zeros(config.vocabulary))
        self.initialise()

    def initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        nn.init.normal_(self.embedding.weight, std=self.config.width**-0.5)

    def embed(self, x_BT: Tensor, start: int = 0) -> Tensor:
        scale = math.sqrt(self.config.width) if self.config.scaled else 1.0
        h_BTE = self.embedding(x_BT) * scale + self.place_TE[start : start + x_BT.shape[1]]
        return F.dropout(h_BTE, self.config.dropout, self.training)

    def encode(self, x_BS: Tensor) -> tuple[Tensor, Tensor]:
        """The source as vectors, B × S × E, and which of its tokens are not padding."""
        valid_B11S = (x_BS != self.config.padding)[:, None, None]
        z_BSE = tap("source", self.embed(x_BS))
        for block in self.encoder:
            z_BSE = block(z_BSE, mask=valid_B11S)  # (1)
        return self.encoder_norm(z_BSE), valid_B11S

    def decode(
        self, y_BT: Tensor, z_BSE: Tensor, valid_B11S: Tensor, cache: list[tuple[KeyValues, KeyValues]] | None = None
    ) -> Tensor:
        """Logits of the next token after each of y, B × T × V; with a cache, y goes on where the cache ends."""
        h_BTE = tap("target", self.embed(y_BT, cache[0][0].length if cache else 0))
        for i, block in enumerate(self.decoder):
            own, other = cache[i] if cache else (None, None)
            h_BTE = block(h_BTE, cache=own, memory_BSE=z_BSE, memory_mask=valid_B11S, memory_cache=other)  # (2)
        return tap("logits", F.linear(self.decoder_norm(h_BTE), self.embedding.weight, self.head_bias))  # (3)

    def forward(self, x_BS: Tensor, y_BT: Tensor) -> Tensor:
        return self.decode(y_BT, *self.encode(x_BS))

    def loss(self, x_BS: Tensor, y_BT: Tensor, smoothing: float = 0.0) -> Tensor:
        """Mean over the tokens of y that are not padding; the decoder sees y moved on by one."""
        before_BT = torch.cat([torch.full_like(y_BT[:, :1], self.config.padding), y_BT[:, :-1]], 1)
        logits = self(x_BS, before_BT).flatten(0, 1)
        padding = self.config.padding
        return F.cross_entropy(logits, y_BT.flatten(), ignore_index=padding, label_smoothing=smoothing)  # (4)

    @torch.no_grad()
    def translate(
        self,
        x_BS: Tensor,
        most: int = 0,
        choice: Choice = GREEDY,
        *,
        generator: torch.Generator | None = None,
        cached: bool = True,
    ) -> list[list[int]]:
        """The target of each source, token by token, up to its end."""
        most = min(most or self.config.context, self.config.context)
        z_BSE, valid_B11S = self.encode(x_BS)
        cache = self.memory() if cached else None
        y_BT = x_BS.new_full((len(x_BS), 1), self.config.padding)
        ended_B = torch.zeros(len(x_BS), dtype=torch.bool)
        for _ in range(most):
            logits_BV = self.decode(y_BT[:, -1:] if cached else y_BT, z_BSE, valid_B11S, cache)[:, -1]
            token_B = choose(logits_BV, choice, generator, y_BT)
            y_BT = torch.cat([y_BT, token_B[:, None]], 1)
            ended_B |= token_B == self.config.end
            if ended_B.all():
                break
        return [until(row, self.config.end) for row in y_BT[:, 1:].tolist()]

    @torch.no_grad()
    def beams(self, x_1S: Tensor, count: int = 4, most: int = 0, length_penalty: float = 1.0) -> list[Beam]:
        """The most probable targets of one source that beam search finds, best first."""
        most = min(most or self.config.context, self.config.context - 1)
        z_1SE, valid = self.encode(x_1S)
        cache = self.memory()

        def step(token_BT: Tensor, row_B: Tensor | None) -> Tensor:
            if row_B is not None:
                for layer in itertools.chain(*cache):
                    layer.reorder(row_B)
            B = len(token_BT)
            return self.decode(token_BT, z_1SE.expand(B, -1, -1), valid.expand(B, -1, -1, -1), cache)[:, -1]

        end, start = self.config.end, [self.config.padding]
        return beam_search(step, start, beams=count, most=most, end=end, length_penalty=length_penalty)

    def memory(self) -> list[tuple[KeyValues, KeyValues]]:
        """An empty state: what each layer of the decoder has read of its own tokens and of the source."""
        length = self.config.context
        return [(KeyValues(length), KeyValues(length)) for _ in self.decoder]


def until(tokens: list[int], end: int) -> list[int]:
    return tokens[: tokens.index(end)] if end in tokens else tokens
