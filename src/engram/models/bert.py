"""BERT: a Transformer that reads in both directions and fills in masked words (note 001 «Masked language modeling»;
Devlin et al. 2019).   B batch, T tokens, N tokens without padding, E width, V vocabulary

    h_0 = norm(E[x] + P + S[type])                        word, position, and which of two sentences              (1)
    h_l = block_l(h_{l-1})                                every token sees every other                            (2)
    p(x_t | the rest) = softmax(norm(f(h_L W_t + b_t)) E' + b)      of the masked words                           (3)
    pooled = tanh(h_L[0] W_p + b_p)                       the whole text in one vector                            (4)

15 % of the tokens are to be guessed: of these 80 % are masked, 10 % replaced by a random token, 10 % left      (5)

Texts of unequal length are passed without their padding: tokens for themselves need none, and attention takes the
texts one by one.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.registry import FromData
from engram.core.tap import tap, watching
from engram.layers.block import FUNCTIONS, Block, BlockConfig

GUESSED, MASKED, RANDOM = 0.15, 0.8, 0.1
IGNORED = -100
"""label of a token that is not to be guessed"""


class BERT(nn.Module):
    """An encoder with a head for masked words, and a pooled vector where it was trained with one."""

    @dataclass(frozen=True, kw_only=True)
    class Config(BlockConfig):
        vocabulary: FromData[int] = 1000
        """different tokens (V)"""
        context: int = 128
        """tokens of a text at most (T)"""
        types: int = 2
        """kinds of sentences that are told apart; 0 for none (DistilBERT)"""
        pooled: FromData[bool] = False
        """whether there is a pooled vector (4)"""
        masked: FromData[bool] = True
        """whether there is a head for masked words (3)"""
        pre: bool = False
        eps: float = 1e-12

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.context < 1:
                raise EngramError(f"context must be at least 1, not {self.context}.")
            if self.types < 0:
                raise EngramError(f"types must not be negative, and is {self.types}.")

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        E = config.width
        self.embedding = nn.Embedding(config.vocabulary, E)
        self.position = nn.Embedding(config.context, E)
        if config.types:
            self.sentence = nn.Embedding(config.types, E)
        self.norm = nn.LayerNorm(E, config.eps)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        if config.pooled:
            self.pool = nn.Linear(E, E)
        if config.masked:
            self.transform = nn.Linear(E, E)
            self.transform_norm = nn.LayerNorm(E, config.eps)
            self.head = nn.Linear(E, config.vocabulary)
            self.head.weight = self.embedding.weight
        self.initialise()

    def initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def encode(self, x_BT: Tensor, valid_BT: Tensor | None = None, type_BT: Tensor | None = None) -> Tensor:
        """A vector for each token, B × T × E; padding gets zeros."""
        h_BTE = self.embed(x_BT, type_BT)
        if valid_BT is None:
            for block in self.blocks:
                h_BTE = block(h_BTE)  # (2)
            return h_BTE
        valid_BT = valid_BT.bool()
        if watching():  # whoever looks wants to see all texts of the batch at once
            for block in self.blocks:
                h_BTE = block(h_BTE, mask=valid_BT[:, None, None])
            return h_BTE * valid_BT[..., None]
        lengths = [length for length in valid_BT.sum(1).tolist() if length]
        h_NE = h_BTE[valid_BT]
        for block in self.blocks:
            h_NE = block.packed(h_NE, lengths)  # type: ignore[operator]
        return torch.zeros_like(h_BTE).masked_scatter(valid_BT[..., None], h_NE)

    def embed(self, x_BT: Tensor, type_BT: Tensor | None = None) -> Tensor:
        h_BTE = self.embedding(x_BT) + self.position.weight[: x_BT.shape[1]]
        if self.config.types:
            h_BTE = h_BTE + (self.sentence.weight[0] if type_BT is None else self.sentence(type_BT))
        h_BTE = F.dropout(self.norm(h_BTE), self.config.dropout, self.training)  # (1)
        return tap("embedding", h_BTE)

    def pooled(self, h_BTE: Tensor) -> Tensor:
        """One vector for each text, B × E."""
        if not self.config.pooled:
            raise EngramError("This BERT has no pooled vector: take encode(x)[:, 0] or the mean over the tokens.")
        return torch.tanh(self.pool(h_BTE[:, 0]))  # (4)

    def forward(self, x_BT: Tensor, valid_BT: Tensor | None = None, type_BT: Tensor | None = None) -> Tensor:
        """Logits of the word at each place, B × T × V."""
        if not self.config.masked:
            raise EngramError("This BERT was saved without its head for masked words: use encode, which gives vectors.")
        return self.logits(self.encode(x_BT, valid_BT, type_BT))

    def logits(self, h_E: Tensor) -> Tensor:
        """What vectors, in any number of dimensions, say of the word in their place."""
        f = FUNCTIONS[self.config.function]
        return tap("logits", self.head(self.transform_norm(f(self.transform(h_E)))))  # (3)

    def loss(self, x_BT: Tensor, y_BT: Tensor, valid_BT: Tensor | None = None) -> Tensor:
        """Mean over the tokens to be guessed, which `y` names; the head is not even asked about the others."""
        guessed_BT = y_BT != IGNORED
        logits_NV = self.logits(self.encode(x_BT, valid_BT)[guessed_BT])
        return F.cross_entropy(logits_NV, y_BT[guessed_BT]) if len(logits_NV) else logits_NV.sum()


@dataclass(frozen=True)
class Masking:
    """Which tokens are hidden, and behind what."""

    mask: int
    """the token that hides another"""
    vocabulary: int
    spared: tuple[int, ...] = field(default=())
    """tokens that are never hidden: padding, beginnings and ends"""

    def __call__(self, x_BT: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Tokens to show and tokens to guess, where IGNORED is none."""
        candidate_BT = ~torch.isin(x_BT, torch.tensor(self.spared))
        guess_BT = candidate_BT & (torch.rand(x_BT.shape, generator=generator) < GUESSED)
        lot_BT = torch.rand(x_BT.shape, generator=generator)
        other_BT = torch.randint(self.vocabulary, x_BT.shape, generator=generator)
        shown_BT = torch.where(guess_BT & (lot_BT < MASKED), self.mask, x_BT)
        shown_BT = torch.where(guess_BT & (lot_BT >= 1 - RANDOM), other_BT, shown_BT)  # (5)
        return shown_BT, torch.where(guess_BT, x_BT, IGNORED)
