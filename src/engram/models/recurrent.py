"""A network around recurrent cells (note 003 §17, §18), for symbols and for numbers.

B batch, T time, E width, V outputs

    h_0 = E[x]  or  x W_in + b_in                         symbols are embedded, numbers projected                 (1)
    h_l <- h_{l-1} + cell_l(norm(h_{l-1}))                what is remembered, added to the stream                 (2)
    h_l <- h_l + ff(norm(h_l))                            each step for itself                                    (3)
    y = norm(h_L) W + c                                   what comes next, a class, a value                       (4)

(2) is the only way from one step to another: a GPT with attention in its place is otherwise the same, so the two are
comparable. All that the past has left is the cells' states, one per layer, and reading goes on from them for ever.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.registry import FromData
from engram.core.tap import tap
from engram.layers.block import BlockConfig, FeedForward
from engram.layers.recurrent import CELLS, CellName, State
from engram.layers.through_time import unroll
from engram.models.writing import Writer

EPS = 1e-5


class Recurrent(nn.Module, Writer):
    """Cells in layers, with an entrance for symbols or numbers and an exit."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        cell: CellName = "gru"
        """what remembers: rnn, lstm, gated (the note's own), gru, original_gru, min_gru or min_lstm"""
        width: int = 128
        """units of a cell, and width of the stream (E)"""
        layers: int = 2
        """cells one above the other"""
        inside: int = 0
        """units of the feed-forward part; 0 means twice the width"""
        dropout: float = 0.0
        """part of what enters the stream that is silenced at random while learning"""
        truncate: int = 0
        """steps after which the way back in time is cut; 0 goes back to the beginning"""
        memory: int = 0
        """longest memory, in steps, that gates begin with; 0 is half open, or all if the end is what counts"""
        vocabulary: FromData[int] = 65
        """different symbols that come in; 0 where numbers do"""
        inputs: FromData[int] = 1
        """numbers that come in at each step, where no symbols do"""
        outputs: FromData[int] = 65
        """symbols, classes or values that come out (V)"""

        def __post_init__(self) -> None:
            if self.cell not in CELLS:
                raise EngramError(f"cell is one of {', '.join(CELLS)}, not {self.cell}.")
            for name in ("width", "layers"):
                if getattr(self, name) < 1:
                    raise EngramError(f"{name} must be at least 1, not {getattr(self, name)}.")
            for name in ("inside", "truncate", "memory"):
                if getattr(self, name) < 0:
                    raise EngramError(f"{name} must not be negative, and is {getattr(self, name)}.")
            if not 0 <= self.dropout < 1:
                raise EngramError(f"dropout is a part, at least 0 and below 1, not {self.dropout}.")

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        if config.vocabulary:
            self.embedding = nn.Embedding(config.vocabulary, config.width)
        else:
            self.entrance = nn.Linear(config.inputs, config.width)
        self.blocks = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width, EPS, elementwise_affine=False)
        self.head = nn.Linear(config.width, config.outputs)
        self.initialise()

    def initialise(self) -> None:
        """Cells begin as they do alone; the feed-forward part and the head add nothing at first."""
        if self.config.vocabulary:
            nn.init.normal_(self.embedding.weight)
        for block in self.blocks:
            nn.init.normal_(block.ff.up.weight, std=0.5 * self.config.width**-0.5)  # type: ignore[union-attr, arg-type]
            nn.init.zeros_(block.ff.down.weight)  # type: ignore[union-attr, arg-type]
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor, *, last: int = 0) -> Tensor:
        """What is said after each step, B × T × V, or after the `last` ones only."""
        return self.read(x, last=last)[0]

    def read(self, x: Tensor, states: list[State] | None = None, last: int = 0) -> tuple[Tensor, list[State]]:
        """The same, and the state of each layer at the end; with the states of an earlier end, reading goes on."""
        h_BTE = tap("embedding", self.embedding(x) if self.config.vocabulary else self.entrance(x))  # (1)
        after = []
        for i, block in enumerate(self.blocks):
            h_BTE, state = block(h_BTE, states[i] if states else None)
            after.append(state)
        return self.logits(h_BTE[:, -last:] if last else h_BTE), after

    def logits(self, h_BTE: Tensor) -> Tensor:
        """What a stream says; of any layer's stream, for those who look."""
        return tap("logits", self.head(self.norm(h_BTE)))  # (4)

    def reader(self, *, cached: bool = True) -> "Remembering":
        return Remembering(self, cached)


class Layer(nn.Module):
    """A cell, and what each step makes of it."""

    def __init__(self, config: Recurrent.Config) -> None:
        super().__init__()
        inside = config.inside or 2 * config.width
        shape = BlockConfig(width=config.width, heads=1, inside=inside, function="relu2", bias=False, norm="plain")
        self.truncate, self.dropout = config.truncate, config.dropout
        self.cell = CELLS[config.cell](config.width, config.width)
        if config.memory:
            self.cell.hold(config.memory)
        self.ff = FeedForward(shape)
        self.norm = nn.LayerNorm(config.width, EPS, elementwise_affine=False)

    def forward(self, h_BTE: Tensor, state: State | None) -> tuple[Tensor, State]:
        remembered_BTE, state = unroll(self.cell, self.norm(h_BTE), state, self.truncate)
        h_BTE = h_BTE + self._dropped(remembered_BTE)  # (2)
        return tap("stream", h_BTE + self._dropped(self.ff(self.norm(h_BTE)))), state  # (3)

    def _dropped(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training) if self.dropout else x


class Remembering:
    """What is said after rows of symbols; rows that have grown go on from the states they had."""

    def __init__(self, model: Recurrent, cached: bool) -> None:
        self.model, self.cached = model, cached
        self.rows: list[list[int]] = []
        self.states: list[State] = []

    @torch.no_grad()
    def __call__(self, rows: Sequence[Sequence[int]], last: int = 1) -> Tensor:
        """Logits of the symbol after each of the last `last` ones of each row, B × last × V."""
        known = [len(row) for row in self.rows]
        grown = len(rows) == len(known) and all(
            len(row) - n == last and list(row[:n]) == was for row, n, was in zip(rows, known, self.rows, strict=True)
        )
        if self.cached and grown:
            new_BT = torch.tensor([list(row[n:]) for row, n in zip(rows, known, strict=True)])
            logits, self.states = self.model.read(new_BT, self.states)
        else:  # each row by itself: they may be of any lengths, and a state does not mind padding gracefully
            apart = [self.model.read(torch.tensor([list(row)]), last=last) for row in rows]
            logits = torch.cat([one for one, _ in apart])
            layers = zip(*(states for _, states in apart), strict=True)
            self.states = [tuple(torch.cat(parts) for parts in zip(*layer, strict=True)) for layer in layers]
        self.rows = [list(row) for row in rows]
        return logits

    def reorder(self, row_B: Tensor) -> None:
        """Let row i go on from row `row_B[i]`."""
        self.states = [tuple(part[row_B] for part in state) for state in self.states]
        self.rows = [self.rows[i] for i in row_B.tolist()]
