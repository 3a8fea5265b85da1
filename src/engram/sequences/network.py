r"""Recurrent network: blocks of a recurrent cell and a feed-forward network, for tokens or numbers.

    h_0 = E[x] \text{ or } x W_{in} + b_{in}                          embedding of tokens, projection of numbers     (1)
    h_l \leftarrow h_{l-1} + \text{cell}_l(\text{norm}(h_{l-1}))      recurrent cell, added to the residual stream   (2)
    h_l \leftarrow h_l + \text{ff}(\text{norm}(h_l))                  feed-forward network, at each step             (3)
    y = \text{norm}(h_L) W + c                                        logits of the next token or class, or values   (4)

    Symbols:
        x            tokens or numbers
        h_l          residual stream after layer l
        B, T, E, V   batch, time steps, model width, outputs

It is a GPT with recurrent cells (2) in place of attention, so the two are comparable. The past is summarized by the
states of the cells, one per layer, and generation continues from them without a context limit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.config import FromData, Settings
from engram.core.errors import unknown
from engram.core.tap import tap
from engram.generation.generate import LanguageModel
from engram.nn.transformer_block import BlockConfig, FeedForward
from engram.sequences.bptt import unroll
from engram.sequences.cell import Cell, State
from engram.sequences.gru.model import GRU, GatedRNN, OriginalGRU
from engram.sequences.lstm.model import LSTM
from engram.sequences.mingru.model import MinGRU, MinLSTM
from engram.sequences.rnn.model import RNN

EPS = 1e-5
CELLS: dict[str, type[Cell]] = {
    "rnn": RNN,
    "lstm": LSTM,
    "gated": GatedRNN,
    "gru": GRU,
    "original_gru": OriginalGRU,
    "mingru": MinGRU,
    "minlstm": MinLSTM,
}
CellName = Literal["rnn", "lstm", "gated", "gru", "original_gru", "mingru", "minlstm"]


class RecurrentNetwork(nn.Module, LanguageModel):
    """Stack of recurrent blocks between an embedding or input projection and a linear head."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Settings):
        cell: CellName = "gru"
        """recurrent cell: rnn, lstm, gated (a single gate), gru, original_gru (as in the paper), mingru or minlstm"""
        width: Annotated[int, Ge(1)] = 128
        """hidden units of each cell, and model width (E)"""
        layers: Annotated[int, Ge(1)] = 2
        """number of recurrent layers"""
        ff_width: Annotated[int, Ge(0)] = 0
        """hidden units of the feed-forward network; 0 means 2 × width"""
        dropout: Annotated[float, Ge(0), Lt(1)] = 0.0
        """dropout probability on the output of cells and feed-forward networks; 0 disables"""
        bptt: Annotated[int, Ge(0)] = 0
        """truncated BPTT: backpropagate through at most this many steps; 0 means the whole sequence"""
        chrono_init: Annotated[int, Ge(0)] = 0
        """longest time constant of the gates at initialization, in steps; 0 means gates half open, or the length of the
        sequence if the target comes at its end"""
        vocabulary: FromData[int] = 65
        """vocabulary size; 0 for sequences of numbers"""
        inputs: FromData[int] = 1
        """numbers per time step, without a vocabulary"""
        outputs: FromData[int] = 65
        """tokens, classes or values to predict (V)"""

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.cell not in CELLS:
                raise unknown("cell", self.cell, CELLS)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        if config.vocabulary:
            self.embedding = nn.Embedding(config.vocabulary, config.width)
        else:
            self.projection = nn.Linear(config.inputs, config.width)
        self.blocks = nn.ModuleList(RecurrentBlock(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width, EPS, elementwise_affine=False)
        self.head = nn.Linear(config.width, config.outputs)
        self.initialize()

    def initialize(self) -> None:
        """Initialize embedding and feed-forward networks; their output weights and the head start at zero."""
        if self.config.vocabulary:
            nn.init.normal_(self.embedding.weight)
        for block in self.blocks:
            nn.init.normal_(block.ff.up.weight, std=0.5 * self.config.width**-0.5)  # type: ignore[union-attr, arg-type]
            nn.init.zeros_(block.ff.down.weight)  # type: ignore[union-attr, arg-type]
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor, *, last: int = 0) -> Tensor:
        """Return the outputs of each step, B × T × V, or of the `last` steps only."""
        return self.forward_from(x, last=last)[0]

    def predict_scores(self, x: Tensor) -> Tensor:
        """Outputs at the end of images or sequences of numbers: logits B × V, or B numbers of a regressor."""
        y_BV = self(as_sequences(x), last=1)[:, 0]
        return y_BV[:, 0] if self.config.outputs == 1 else y_BV

    def forward_from(self, x: Tensor, states: list[State] | None = None, last: int = 0) -> tuple[Tensor, list[State]]:
        """Return outputs and the last state of each layer, starting from earlier states or from zero."""
        h_BTE = tap("embedding", self.embedding(x) if self.config.vocabulary else self.projection(x))  # (1)
        new_states = []
        for i, block in enumerate(self.blocks):
            h_BTE, state = block(h_BTE, states[i] if states else None)
            new_states.append(state)
        return self.logits(h_BTE[:, -last:] if last else h_BTE), new_states

    def logits(self, h_BTE: Tensor) -> Tensor:
        """Return the outputs of a residual stream; of any layer, for the logit lens."""
        return tap("logits", self.head(self.norm(h_BTE)))  # (4)

    def make_decoder(self, *, cached: bool = True) -> "RecurrentDecoder":
        return RecurrentDecoder(self, cached)


def as_sequences(x: Tensor) -> Tensor:
    """Return images, B × C × H × W, row by row, and rows of numbers, B × T, number by number: B × T × I."""
    return x.transpose(1, 2).flatten(2) if x.ndim == 4 else x[:, :, None]


class RecurrentBlock(nn.Module):
    """Recurrent cell and feed-forward network, each added to the residual stream."""

    def __init__(self, config: RecurrentNetwork.Config) -> None:
        super().__init__()
        ff_width = config.ff_width or 2 * config.width
        shape = BlockConfig(
            width=config.width, heads=1, ff_width=ff_width, activation="relu2", bias=(), norm="layer-no-affine"
        )
        self.bptt, self.dropout = config.bptt, config.dropout
        self.cell = CELLS[config.cell](config.width, config.width)
        if config.chrono_init:
            self.cell.chrono_init(config.chrono_init)
        self.ff = FeedForward(shape)
        self.norm = nn.LayerNorm(config.width, EPS, elementwise_affine=False)

    def forward(self, h_BTE: Tensor, state: State | None) -> tuple[Tensor, State]:
        y_BTE, state = unroll(self.cell, self.norm(h_BTE), state, self.bptt)
        h_BTE = h_BTE + self._dropout(y_BTE)  # (2)
        return tap("residual", h_BTE + self._dropout(self.ff(self.norm(h_BTE)))), state  # (3)

    def _dropout(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x


class RecurrentDecoder:
    """Decoder that caches the states of the cells: rows that grew cost only their new tokens."""

    def __init__(self, model: RecurrentNetwork, cached: bool) -> None:
        self.model, self.cached = model, cached
        self.rows: list[list[int]] = []
        self.states: list[State] = []

    @torch.no_grad()
    def __call__(self, rows: Sequence[Sequence[int]], last: int = 1) -> Tensor:
        """Return the logits of the token after each of the last `last` tokens of each row, B × last × V."""
        lengths = [len(row) for row in self.rows]
        grown = len(rows) == len(lengths) and all(
            len(row) - n == last and list(row[:n]) == old for row, n, old in zip(rows, lengths, self.rows, strict=True)
        )
        if self.cached and grown:
            new_BT = torch.tensor([list(row[n:]) for row, n in zip(rows, lengths, strict=True)])
            logits, self.states = self.model.forward_from(new_BT, self.states)
        else:  # row by row: lengths may differ, and padding would change the states
            results = [self.model.forward_from(torch.tensor([list(row)]), last=last) for row in rows]
            logits = torch.cat([row_logits for row_logits, _ in results])
            layers = zip(*(states for _, states in results), strict=True)
            self.states = [tuple(torch.cat(parts) for parts in zip(*layer, strict=True)) for layer in layers]
        self.rows = [list(row) for row in rows]
        return logits

    def reorder(self, row_B: Tensor) -> None:
        """Continue row i from row `row_B[i]`."""
        self.states = [tuple(part[row_B] for part in state) for state in self.states]
        self.rows = [self.rows[i] for i in row_B.tolist()]
