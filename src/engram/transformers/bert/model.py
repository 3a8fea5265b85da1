r"""BERT: a bidirectional Transformer encoder, trained by masked language modeling (Devlin et al. 2019).

    h_0 = \text{norm}(E[x] + P[p] + S[s])                     token, position and segment embedding              (1)
    h_l = \text{block}_l(h_{l-1})                             every token attends to every other                 (2)
    p(x_t | \text{rest}) = \text{softmax}(\text{norm}(f(h_L W_t + b_t)) E^T + b)     masked language model head  (3)
    c = \tanh(h_{L,0} W_p + b_p)                              pooled vector of the whole text                    (4)
    x_t \to [MASK]\ 80\%,\ \text{random}\ 10\%,\ x_t\ 10\%    for 15 % of the tokens, which are to be predicted  (5)
    p_t = d + [x_t \ne d] \sum_{s \le t} [x_s \ne d]            positions of RoBERTa (Liu et al. 2019)            (6)

    Symbols:
        x, s, p    tokens, their segments and positions
        d          padding token
        h_l        residual stream after layer l
        E, P, S    token, position and segment embedding; E is the output matrix too (weight tying)
        f          activation function
        B, T, V    batch, tokens, vocabulary
        N          tokens without padding

With pre-norm (ModernBERT; Warner et al. 2024), a norm follows the last layer, and the first layer's attention has none:
the embedding is normalized. With rotary positions (RoPE) there is no P. Texts of unequal length are processed without
their padding: attention takes the texts one by one.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.config import FromData
from engram.core.errors import EngramError
from engram.core.fit import FitMixin
from engram.core.tap import is_watching, tap
from engram.nn.position import RoPE, RotaryEmbedding
from engram.nn.transformer_block import (
    ACTIVATIONS,
    PROJECTIONS,
    Block,
    BlockConfig,
    Residual,
    make_norm,
    rotary_by_layer,
)

MLM_PROBABILITY, MASKED, RANDOM = 0.15, 0.8, 0.1
"""fraction of tokens to predict; of these, fractions that are masked and replaced by a random token"""
IGNORE_INDEX = -100
"""label of a token that is not to be predicted"""


class BERT(FitMixin, nn.Module):
    """Transformer encoder with a masked language model head and an optional pooler."""

    embeds_texts = True
    """whether its tokens have vectors that are pooled to that of a text (hub/embedding.py)"""

    @dataclass(frozen=True, kw_only=True)
    class Config(BlockConfig):
        vocabulary: FromData[int] = 1000
        """vocabulary size (V)"""
        context: Annotated[int, Ge(1)] = 128
        """context length: largest number of tokens of a text (T)"""
        types: Annotated[int, Ge(0)] = 2
        """number of segment types (token_type_ids); 0 for none (DistilBERT)"""
        pooled: FromData[bool] = False
        """whether there is a pooler (4)"""
        masked: FromData[bool] = True
        """whether there is a masked language model head (3)"""
        pad_id: Annotated[FromData[int], Ge(-1)] = -1
        """padding token after whose id positions begin, and which has none of its own (RoBERTa); -1 begins at 0"""
        position: Literal["learned", "rotary"] = "learned"
        """position encoding: learned embedding, or rotary embedding (RoPE)"""
        rope: RoPE = field(default_factory=RoPE)
        """settings of the rotary embedding"""
        head_activation: Literal["auto", "relu", "gelu", "gelu_tanh", "quick_gelu", "relu2", "silu"] = "auto"
        """activation function of the masked language model head; auto: that of the feed-forward network"""
        projections: ClassVar[tuple[str, ...]] = (*PROJECTIONS, "transform", "head")
        bias: tuple[str, ...] = projections
        """projections with biases: any of qkv, out, ff (layers), transform, head (masked language model head)"""
        residual: Residual = "post-norm"
        eps: float = 1e-12

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.position == "rotary" and self.size_of_head % 2:
                raise EngramError(f"Rotary positions need heads of even width, not {self.size_of_head}.")

        @property
        def activation_of_head(self) -> str:
            """Activation function of the masked language model head."""
            return self.activation if self.head_activation == "auto" else self.head_activation

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        E = config.width
        self.embedding = nn.Embedding(config.vocabulary, E)
        rotary: Iterator[RotaryEmbedding | None] = itertools.repeat(None, config.layers)
        if config.position == "rotary":
            rotary = rotary_by_layer(config, config.rope, config.context)
        else:
            self.position = nn.Embedding(config.pad_id + 1 + config.context, E)
        if config.types:
            self.token_type = nn.Embedding(config.types, E)
        norm_bias = config.norm != "layer-no-bias"
        self.norm = nn.LayerNorm(E, config.eps, bias=norm_bias)
        self.blocks = nn.ModuleList(Block(config, layer=i, rotary=one) for i, one in enumerate(rotary))
        if config.residual == "pre-norm":
            self.blocks[0].attention_norm = nn.Identity()
        self.final_norm = nn.Identity() if config.residual == "post-norm" else make_norm(config)
        if config.pooled:
            self.pool = nn.Linear(E, E)
        if config.masked:
            self.transform = nn.Linear(E, E, "transform" in config.bias)
            self.transform_norm = nn.LayerNorm(E, config.eps, bias=norm_bias)
            self.head = nn.Linear(E, config.vocabulary, "head" in config.bias)
            self.head.weight = self.embedding.weight
        self.initialize()

    def initialize(self) -> None:
        """Initialize weights to a normal distribution of standard deviation 0.02, biases to zero."""
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def encode(self, x_BT: Tensor, valid_BT: Tensor | None = None, type_BT: Tensor | None = None) -> Tensor:
        """Encode each token as a vector, B × T × E; zeros for padding."""
        h_BTE = self.final_norm(self.residual_stream(x_BT, valid_BT, type_BT))
        return h_BTE if valid_BT is None else h_BTE * valid_BT[..., None]

    def residual_stream(self, x_BT: Tensor, valid_BT: Tensor | None = None, type_BT: Tensor | None = None) -> Tensor:
        """Residual stream of each token after the last layer, B × T × E; zeros for padding."""
        h_BTE = self.embed_tokens(x_BT, type_BT)
        if valid_BT is None:
            for block in self.blocks:
                h_BTE = block(h_BTE)  # (2)
            return h_BTE
        valid_BT = valid_BT.bool()
        if is_watching():  # taps have all texts of the batch at once
            mask = valid_BT[:, None, None]
            if any(self.config.attention_window):  # padding that sees no text would become NaN, and spread
                mask = mask | torch.eye(x_BT.shape[1], dtype=torch.bool, device=x_BT.device)
            for block in self.blocks:
                h_BTE = block(h_BTE, mask=mask)
            return h_BTE * valid_BT[..., None]
        lengths = [length for length in valid_BT.sum(1).tolist() if length]
        h_NE = h_BTE[valid_BT]
        for block in self.blocks:
            h_NE = block.forward_unpadded(h_NE, lengths)  # type: ignore[operator]
        return torch.zeros_like(h_BTE).masked_scatter(valid_BT[..., None], h_NE)

    def embed_tokens(self, x_BT: Tensor, type_BT: Tensor | None = None) -> Tensor:
        """Embedding (1), B × T × E."""
        h_BTE = self.embedding(x_BT)
        if self.config.position == "learned":
            h_BTE = h_BTE + self.position.weight[self.position_ids(x_BT)]
        if self.config.types:
            h_BTE = h_BTE + (self.token_type.weight[0] if type_BT is None else self.token_type(type_BT))
        h_BTE = F.dropout(self.norm(h_BTE), self.config.dropout, self.training)  # (1)
        return tap("embedding", h_BTE)

    def position_ids(self, x_BT: Tensor) -> Tensor | slice:
        """Positions of tokens, as an index of the position embedding."""
        if self.config.pad_id < 0:
            return slice(x_BT.shape[1])
        token_BT = (x_BT != self.config.pad_id).long()
        return self.config.pad_id + token_BT * token_BT.cumsum(1)  # (6)

    def pooled(self, h_BTE: Tensor) -> Tensor:
        """Pooled vector of each text, B × E."""
        if not self.config.pooled:
            raise EngramError("This BERT has no pooled vector: take encode(x)[:, 0] or the mean over the tokens.")
        return torch.tanh(self.pool(h_BTE[:, 0]))  # (4)

    def forward(self, x_BT: Tensor, valid_BT: Tensor | None = None, type_BT: Tensor | None = None) -> Tensor:
        """Logits of the token at each position, B × T × V."""
        if not self.config.masked:
            raise EngramError("This BERT was saved without its head for masked words: use encode, which gives vectors.")
        return self.logits(self.residual_stream(x_BT, valid_BT, type_BT))

    def logits(self, h_E: Tensor) -> Tensor:
        """Logits of the residual stream: after the last layer, or after any layer (logit lens), … × V."""
        f = ACTIVATIONS[self.config.activation_of_head]
        return tap("logits", self.head(self.transform_norm(f(self.transform(self.final_norm(h_E))))))  # (3)

    def loss(self, x_BT: Tensor, y_BT: Tensor, valid_BT: Tensor | None = None) -> Tensor:
        """Masked language modeling loss: cross-entropy over the tokens that `y` names.

        The head sees no others.
        """
        predicted_BT = y_BT != IGNORE_INDEX
        logits_NV = self.logits(self.residual_stream(x_BT, valid_BT)[predicted_BT])
        return F.cross_entropy(logits_NV, y_BT[predicted_BT]) if len(logits_NV) else logits_NV.sum()


@dataclass(frozen=True)
class Masking:
    """Masking of tokens for masked language modeling (5)."""

    mask: int
    """id of the mask token"""
    vocabulary: int
    excluded: tuple[int, ...] = field(default=())
    """ids that are never masked: padding and other special tokens"""

    def __call__(self, x_BT: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return masked tokens and labels, which are IGNORE_INDEX where nothing is to be predicted."""
        maskable_BT = ~torch.isin(x_BT, torch.tensor(self.excluded))
        predicted_BT = maskable_BT & (torch.rand(x_BT.shape, generator=generator) < MLM_PROBABILITY)
        uniform_BT = torch.rand(x_BT.shape, generator=generator)
        random_BT = torch.randint(self.vocabulary, x_BT.shape, generator=generator)
        masked_BT = torch.where(predicted_BT & (uniform_BT < MASKED), self.mask, x_BT)
        masked_BT = torch.where(predicted_BT & (uniform_BT >= 1 - RANDOM), random_BT, masked_BT)  # (5)
        return masked_BT, torch.where(predicted_BT, x_BT, IGNORE_INDEX)
