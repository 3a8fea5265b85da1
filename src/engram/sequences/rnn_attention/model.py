r"""Recurrent encoder-decoder with attention (Cho et al. 2014; Bahdanau et al. 2015; Luong et al. 2015).

    z_s = [\text{GRU}(E[x_s], z_{s-1}), \text{GRU}(E[x_s], z_{s+1})]       encoder, in both directions             (1)
    h_t = \text{GRU}(D[y_{t-1}], h_{t-1}),\quad h_0 = z_{\text{last}}      decoder: starts at the last states      (2)
    e_{ts} = h_t z_s^T                                                     dot score (Luong)                       (3)
    e_{ts} = h_t (z_s W_a)^T                                               general score (Luong)                   (4)
    e_{ts} = \tanh(h_t W_q + z_s W_k) v^T                                  additive score (Bahdanau)               (5)
    \alpha_{ts} = \exp(e_{ts}) / \sum_{s'} \exp(e_{ts'})                   alignment; padding gets 0              (6)
    c_t = \sum_s \alpha_{ts} z_s                                           context: expected state of the encoder  (7)
    \tilde{h}_t = \tanh([c_t, h_t] W_c)                                    attentional state                       (8)
    p(y_t | y_{<t}, x) = \text{softmax}(\tilde{h}_t W + b)                 without attention of h_t itself         (9)
    L = -\sum_t \log p(y_t | y_{<t}, x)                                    cross-entropy, with teacher forcing     (10)

    Symbols:
        x, y           tokens of source and target
        z, h           states of encoder and decoder
        E, D           embeddings of source and target tokens
        z_{\text{last}}  state of each direction after its last token
        B, S, T        batch, source tokens, target tokens
        E, V           width, vocabulary

Without attention the decoder knows of the source what fits into the one vector h_0. Each direction of the encoder has
half of the width. All scores ask with the decoder's new state, as in Luong et al., so that the decoder runs over a
whole target at once; Bahdanau et al. ask with the previous state and feed the context to the GRU.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.config import FromData, Settings
from engram.core.errors import EngramError
from engram.core.fit import FitMixin
from engram.core.tap import tap
from engram.generation.sampling import GREEDY, Beam, SamplingParams, beam_search, sample_token
from engram.sequences.gru.model import GRU


class Attention(nn.Module, ABC):
    """Base of attention: a score of each encoder state, and what is done with the scores."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.combine = nn.Linear(2 * width, width, bias=False)
        nn.init.xavier_uniform_(self.combine.weight)

    def keys(self, z_BSE: Tensor) -> Tensor:
        """Return what the scores need of the encoder states; it is computed once for a source."""
        return z_BSE

    @abstractmethod
    def score(self, h_BTE: Tensor, key_BSE: Tensor) -> Tensor:
        """Return the scores of all encoder states for each decoder state, B × T × S."""

    def forward(self, h_BTE: Tensor, z_BSE: Tensor, key_BSE: Tensor, valid_BS: Tensor) -> Tensor:
        """Return the attentional states, B × T × E."""
        score_BTS = self.score(h_BTE, key_BSE).masked_fill(~valid_BS[:, None], -torch.inf)
        weights_BTS = tap("weights", score_BTS.softmax(-1))  # (6)
        context_BTE = tap("context", weights_BTS @ z_BSE)  # (7)
        return torch.tanh(self.combine(torch.cat([context_BTE, h_BTE], -1)))  # (8)


class DotAttention(Attention):
    """Attention whose score is the product of the two states."""

    def score(self, h_BTE: Tensor, key_BSE: Tensor) -> Tensor:
        return h_BTE @ key_BSE.mT  # (3)


class GeneralAttention(DotAttention):
    """Attention whose score is a bilinear form of the two states."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.key = nn.Linear(width, width, bias=False)
        nn.init.xavier_uniform_(self.key.weight)

    def keys(self, z_BSE: Tensor) -> Tensor:
        key_BSE: Tensor = self.key(z_BSE)  # (4), together with (3)
        return key_BSE


class AdditiveAttention(Attention):
    """Attention whose score is a network with one hidden layer."""

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.query, self.key = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.v = nn.Parameter(torch.empty(width))
        for layer in (self.query, self.key):
            nn.init.xavier_uniform_(layer.weight)
        nn.init.normal_(self.v, std=width**-0.5)

    def keys(self, z_BSE: Tensor) -> Tensor:
        key_BSE: Tensor = self.key(z_BSE)
        return key_BSE

    def score(self, h_BTE: Tensor, key_BSE: Tensor) -> Tensor:
        return torch.tanh(self.query(h_BTE)[:, :, None] + key_BSE[:, None]) @ self.v  # (5)


ATTENTIONS: dict[str, Callable[[int], Attention]] = {
    "additive": AdditiveAttention,
    "dot": DotAttention,
    "general": GeneralAttention,
}


class Encoded(NamedTuple):
    """An encoded source."""

    z_BSE: Tensor
    key_BSE: Tensor
    """what the attention scores need of z"""
    valid_BS: Tensor
    """false for padding"""
    last_BE: Tensor
    """state of each direction after its last token"""

    def expand(self, rows: int) -> "Encoded":
        """Return one source as many."""
        return Encoded(*(part.expand(rows, *part.shape[1:]) for part in self))


class Seq2Seq(FitMixin, nn.Module):
    """Encoder and decoder of gated recurrent units (GRU), with attention between them or without."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Settings):
        attention: Literal["none", "additive", "dot", "general"] = "additive"
        """how the decoder looks at the source: none, additive (Bahdanau), dot or general (both Luong)"""
        width: Annotated[int, Ge(1)] = 128
        """hidden units of encoder and decoder, and width of the embeddings (E)"""
        bidirectional: bool = True
        """encode the source in both directions, each with half of the width; --no-bidirectional reads forward only"""
        dropout: Annotated[float, Ge(0), Lt(1)] = 0.0
        """dropout probability on embeddings and on what the logits are computed from; 0 disables"""
        context: Annotated[int, Ge(2)] = 64
        """largest number of tokens of a text"""
        vocabulary: FromData[int] = 100
        """vocabulary size (V)"""
        pad_id: FromData[int] = 0
        """id of the padding token"""
        start_id: FromData[int] = 0
        """id of the token with which a target begins"""
        eos_id: FromData[int] = 1
        """id of the token that ends a text"""

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.bidirectional and self.width % 2:
                raise EngramError(f"width must be even for an encoder in both directions, not {self.width}.")

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config, width = config, config.width
        self.source_embedding, self.target_embedding = (nn.Embedding(config.vocabulary, width) for _ in range(2))
        directions = 2 if config.bidirectional else 1
        self.encoder = nn.ModuleList(GRU(width, width // directions) for _ in range(directions))
        self.decoder = GRU(width, width)
        self.attention = ATTENTIONS[config.attention](width) if config.attention in ATTENTIONS else None
        self.head = nn.Linear(width, config.vocabulary)
        self.initialize()

    def initialize(self) -> None:
        """Initialize the head to zero: all tokens are equally probable."""
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def encode(self, x_BS: Tensor) -> Encoded:
        """Encode sources, padded on the right."""
        valid_BS = x_BS != self.config.pad_id
        length_B = valid_BS.sum(1).clamp(min=1)
        x_BSE = tap("source", self._dropout(self.source_embedding(x_BS)))
        rows_B = torch.arange(len(x_BS), device=x_BS.device)
        states, last = [], []
        for i, cell in enumerate(self.encoder):
            state_BSH, _ = cell(reverse(x_BSE, length_B) if i else x_BSE)
            last.append(state_BSH[rows_B, length_B - 1])
            states.append(reverse(state_BSH, length_B) if i else state_BSH)
        z_BSE = tap("encoded", torch.cat(states, -1))  # (1)
        key_BSE = z_BSE if self.attention is None else self.attention.keys(z_BSE)
        return Encoded(z_BSE, key_BSE, valid_BS, torch.cat(last, -1))

    def decode(self, y_BT: Tensor, encoded: Encoded, h_BE: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits after each token of y, B × T × V, and the last state, continuing from the state h."""
        h_BTE, (h_BE,) = self.decoder(self._dropout(self.target_embedding(y_BT)), (h_BE,))  # (2)
        tap("states", h_BTE)
        if self.attention is not None:
            h_BTE = self.attention(h_BTE, *encoded[:3])
        return tap("logits", self.head(self._dropout(h_BTE))), h_BE  # (9)

    def forward(self, x_BS: Tensor, y_BT: Tensor) -> Tensor:
        """Return the logits after each token of y, B × T × V."""
        encoded = self.encode(x_BS)
        return self.decode(y_BT, encoded, encoded.last_BE)[0]

    def shift_right(self, y_BT: Tensor) -> Tensor:
        """Return what the decoder reads when it is taught y: the start token and all but the last of y."""
        return torch.cat([torch.full_like(y_BT[:, :1], self.config.start_id), y_BT[:, :-1]], 1)

    def loss(self, x_BS: Tensor, y_BT: Tensor, label_smoothing: float = 0.0) -> Tensor:
        """Return the cross-entropy over the tokens of y that are not padding, with teacher forcing."""
        logits = self(x_BS, self.shift_right(y_BT)).flatten(0, 1)
        pad_id = self.config.pad_id
        return F.cross_entropy(logits, y_BT.flatten(), ignore_index=pad_id, label_smoothing=label_smoothing)  # (10)

    @torch.no_grad()
    def translate(
        self,
        x_BS: Tensor,
        max_new_tokens: int = 0,
        params: SamplingParams = GREEDY,
        *,
        generator: torch.Generator | None = None,
    ) -> list[list[int]]:
        """Generate the target of each source, token by token; 0 tokens means up to the context length."""
        encoded = self.encode(x_BS)
        h_BE, y_BT = encoded.last_BE, x_BS.new_full((len(x_BS), 1), self.config.start_id)
        ended_B = torch.zeros(len(x_BS), dtype=torch.bool)
        for _ in range(min(max_new_tokens or self.config.context, self.config.context)):
            logits_B1V, h_BE = self.decode(y_BT[:, -1:], encoded, h_BE)
            token_B = sample_token(logits_B1V[:, 0], params, generator, y_BT)
            y_BT = torch.cat([y_BT, token_B[:, None]], 1)
            ended_B |= token_B == self.config.eos_id
            if ended_B.all():
                break
        eos_id, rows = self.config.eos_id, y_BT[:, 1:].tolist()
        return [row[: row.index(eos_id)] if eos_id in row else row for row in rows]

    @torch.no_grad()
    def beam_search(
        self, x_1S: Tensor, num_beams: int = 4, max_new_tokens: int = 0, length_penalty: float = 1.0
    ) -> list[Beam]:
        """Return the most probable targets of one source that beam search finds, best first."""
        encoded = self.encode(x_1S)
        h_BE = encoded.last_BE

        def step(token_BT: Tensor, row_B: Tensor | None) -> Tensor:
            nonlocal h_BE
            h_BE = h_BE if row_B is None else h_BE[row_B]
            logits_B1V, h_BE = self.decode(token_BT[:, -1:], encoded.expand(len(token_BT)), h_BE)
            return logits_B1V[:, 0]

        return beam_search(
            step, [self.config.start_id], num_beams=num_beams, eos_id=self.config.eos_id, length_penalty=length_penalty,
            max_new_tokens=min(max_new_tokens or self.config.context, self.config.context - 1),
        )  # fmt: skip

    def _dropout(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.config.dropout, self.training)


def reverse(x_BSH: Tensor, length_B: Tensor) -> Tensor:
    """Reverse each row within its length; padding stays where it is."""
    s_S = torch.arange(x_BSH.shape[1], device=x_BSH.device)
    index_BS = torch.where(s_S < length_B[:, None], length_B[:, None] - 1 - s_S, s_S)
    return x_BSH.gather(1, index_BS[:, :, None].expand_as(x_BSH))
