"""Recurrent cells (note 003 §17, §18).   B batch, T time, I inputs, H hidden; u = x U + b is what the input says

    RNN      h <- tanh(u + h W)                                                     Elman 1990                      (1)

    LSTM     i, f, o = sigmoid(u_i + h W_i), sigmoid(u_f + h W_f), sigmoid(u_o + h W_o)     Hochreiter and          (2)
             c <- f c + i tanh(u_c + h W_c)                                         Schmidhuber 1997, Gers 2000     (3)
             h <- o tanh(c)                                                                                         (4)

    gated    g = sigmoid(u_g + h W_g),   n = tanh(u_n + h W_n)                      note 003 §18.2                  (5)
             h <- g n + (1 - g) h                                                                                   (6)

    GRU      r, z = sigmoid(u_r + h W_r), sigmoid(u_z + h W_z)                      Cho et al. 2014                 (7)
             n = tanh(u_n + (r h) W_n)                                              as there, and in the note       (8)
             n = tanh(u_n + r (h W_n + d))                                          as torch and cuDNN have it      (9)
             h <- (1 - z) n + z h                                                                                   (10)

    minGRU   g = sigmoid(u_g),   n = u_n,   h <- g n + (1 - g) h                    Feng et al. 2024                (11)
    minLSTM  f, i = sigmoid(u_f), sigmoid(u_i),   h <- (f h + i n) / (f + i)                                        (12)

A gate of 1/n forgets in n steps. Which n will be needed nobody knows, so they may begin spread evenly (Tallec and
Ollivier 2018):     log(n - 1), n uniform from 2 to the longest, added to what keeps, taken from what lets in       (13)

The note's g is 1 - z in (10). Every cell is `state -> step -> state`: `initial` makes a state, `step` takes it through
one time step, and a call through a whole sequence, in the quickest way there is: torch's fused kernels for (1) to (4),
(9) and (10), one scan for the minimal units, whose gates do not depend on h. Who watches a gate gets the steps.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.tap import tap, watched
from engram.layers.gated_scan import gated_scan

State = tuple[Tensor, ...]
"""what a cell carries from step to step, B × H each, h first"""


class Cell(nn.Module, ABC):
    """What all cells have: a projection of the input, a step, and the way through a sequence."""

    parts: ClassVar[int]
    """vectors of size H that a step needs of the input"""
    seen: ClassVar[tuple[str, ...]]
    """what a step shows to those who watch"""
    holds: ClassVar[tuple[int, ...]] = ()
    """for each part of the input whether a high value keeps the past (1), replaces it (-1), or neither (0)"""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        if inputs < 1 or hidden < 1:
            raise EngramError(f"A cell needs at least one input and one hidden unit, not {inputs} and {hidden}.")
        self.inputs, self.hidden = inputs, hidden
        self.U = nn.Linear(inputs, self.parts * hidden)

    def initialise(self) -> None:
        """Variance that inputs keep; no unit prefers anything."""
        nn.init.normal_(self.U.weight, std=self.inputs**-0.5)
        nn.init.zeros_(self.U.bias)

    def hold(self, longest: int) -> None:
        """Let the gates begin with memories of all lengths up to `longest` steps."""
        n_H = torch.empty_like(self.U.bias[: self.hidden]).uniform_(2, max(longest, 3))
        for sign, bias_H in zip(self.holds, self.U.bias.detach().chunk(self.parts), strict=False):
            if sign:
                bias_H.copy_(sign * torch.log(n_H - 1))  # (13)

    def initial(self, batch: int) -> State:
        """Nothing has been read yet."""
        return (self.U.weight.new_zeros(batch, self.hidden),)

    @abstractmethod
    def recur(self, u_BP: Tensor, state: State) -> State:
        """The equations: the next state, given what the input says (P = parts × H)."""

    def step(self, x_BI: Tensor, state: State) -> tuple[Tensor, State]:
        """One time step: the output, which is h, and the state."""
        state = self.recur(self.U(x_BI), state)
        return state[0], state

    def forward(self, x_BTI: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """All outputs, B × T × H, and the state at the end."""
        state = self.initial(len(x_BTI)) if state is None else state
        if x_BTI.shape[1] == 0:
            return x_BTI.new_empty(len(x_BTI), 0, self.hidden), state
        return self.unrolled(x_BTI, state) if any(map(watched, self.seen)) else self.sequence(x_BTI, state)

    def unrolled(self, x_BTI: Tensor, state: State) -> tuple[Tensor, State]:
        """Step by step; only what the inputs say is computed for all of time at once."""
        outputs = []
        for u_BP in self.U(x_BTI).unbind(1):
            state = self.recur(u_BP, state)
            outputs.append(state[0])
        return torch.stack(outputs, 1), state

    def sequence(self, x_BTI: Tensor, state: State) -> tuple[Tensor, State]:
        """The same, where there is a quicker way."""
        return self.unrolled(x_BTI, state)


class Looped(Cell):
    """A cell whose units hear each other."""

    past_bias: ClassVar[bool] = False
    """whether the past has a bias of its own"""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__(inputs, hidden)
        self.W = nn.Linear(hidden, self.parts * hidden, bias=self.past_bias)
        self.initialise()

    def initialise(self) -> None:
        """As any cell, and what comes from the past keeps its length."""
        super().initialise()
        for W_HH in self.W.weight.detach().chunk(self.parts):
            nn.init.orthogonal_(W_HH)
        if self.past_bias:
            nn.init.zeros_(self.W.bias)

    def fused(self) -> tuple[list[Tensor], bool, int, float, bool, bool, bool]:
        """What torch's kernels ask for: weights with two biases, one layer, no dropout, a way back, batch first."""
        past_bias = self.W.bias if self.past_bias else torch.zeros_like(self.U.bias)
        weights = [self.U.weight, self.W.weight, self.U.bias, past_bias]
        return weights, True, 1, 0.0, torch.is_grad_enabled(), False, True


class RNN(Looped):
    """The plain recurrent network."""

    parts, seen = 1, ("state",)

    def recur(self, u_BP: Tensor, state: State) -> State:
        (h_BH,) = state
        return (tap("state", torch.tanh(u_BP + self.W(h_BH))),)  # (1)

    def sequence(self, x_BTI: Tensor, state: State) -> tuple[Tensor, State]:
        y_BTH, h_1BH = torch.rnn_tanh(x_BTI, state[0][None], *self.fused())
        return y_BTH, (h_1BH[0],)


class LSTM(Looped):
    """Long short-term memory: a second state c, to which things are only added, and of which they are forgotten."""

    parts, seen = 4, ("input", "forget", "proposal", "output", "cell", "state")
    holds = (-1, 1, 0, 0)

    def initialise(self) -> None:
        """Nothing is forgotten at first (Gers et al. 2000, Jozefowicz et al. 2015)."""
        super().initialise()
        nn.init.ones_(self.U.bias.detach().chunk(4)[1])

    def initial(self, batch: int) -> State:
        return super().initial(batch) * 2

    def recur(self, u_BP: Tensor, state: State) -> State:
        h_BH, c_BH = state
        i, f, n, o = (u_BP + self.W(h_BH)).chunk(4, -1)
        i, f = tap("input", torch.sigmoid(i)), tap("forget", torch.sigmoid(f))  # (2)
        n, o = tap("proposal", torch.tanh(n)), tap("output", torch.sigmoid(o))
        c_BH = tap("cell", f * c_BH + i * n)  # (3)
        return tap("state", o * torch.tanh(c_BH)), c_BH  # (4)

    def sequence(self, x_BTI: Tensor, state: State) -> tuple[Tensor, State]:
        before = [part[None] for part in state]
        y_BTH, h_1BH, c_1BH = torch.lstm(x_BTI, before, *self.fused())
        return y_BTH, (h_1BH[0], c_1BH[0])


class Gated(Looped):
    """The note's unit with one gate."""

    parts, seen = 2, ("gate", "proposal", "state")
    holds = (-1, 0)

    def recur(self, u_BP: Tensor, state: State) -> State:
        (h_BH,) = state
        g, n = (u_BP + self.W(h_BH)).chunk(2, -1)
        g, n = tap("gate", torch.sigmoid(g)), tap("proposal", torch.tanh(n))  # (5)
        return (tap("state", g * n + (1 - g) * h_BH),)  # (6)


class GRU(Looped):
    """The gated recurrent unit as torch has it: the reset comes after the product."""

    parts, seen = 3, ("reset", "update", "proposal", "state")
    holds = (0, 1, 0)
    past_bias = True

    def recur(self, u_BP: Tensor, state: State) -> State:
        (h_BH,) = state
        (u_r, u_z, u_n), (w_r, w_z, w_n) = u_BP.chunk(3, -1), self.W(h_BH).chunk(3, -1)
        r, z = tap("reset", torch.sigmoid(u_r + w_r)), tap("update", torch.sigmoid(u_z + w_z))  # (7)
        n = tap("proposal", torch.tanh(u_n + r * w_n))  # (9)
        return (tap("state", (1 - z) * n + z * h_BH),)  # (10)

    def sequence(self, x_BTI: Tensor, state: State) -> tuple[Tensor, State]:
        y_BTH, h_1BH = torch.gru(x_BTI, state[0][None], *self.fused())
        return y_BTH, (h_1BH[0],)


class OriginalGRU(Looped):
    """The gated recurrent unit of the paper and the note: the reset comes before the product."""

    parts, seen = 3, ("reset", "update", "proposal", "state")
    holds = (0, 1, 0)

    def recur(self, u_BP: Tensor, state: State) -> State:
        (h_BH,) = state
        (u_r, u_z, u_n), (W_r, W_z, W_n) = u_BP.chunk(3, -1), self.W.weight.chunk(3)
        r = tap("reset", torch.sigmoid(F.linear(h_BH, W_r) + u_r))  # (7)
        z = tap("update", torch.sigmoid(F.linear(h_BH, W_z) + u_z))
        n = tap("proposal", torch.tanh(F.linear(r * h_BH, W_n) + u_n))  # (8)
        return (tap("state", (1 - z) * n + z * h_BH),)  # (10)


class Minimal(Cell):
    """A cell whose gates look at the input alone, so that a scan gives all of its states."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__(inputs, hidden)
        self.initialise()

    @abstractmethod
    def gate_and_proposal(self, u_BTP: Tensor) -> Tensor:
        """B × T × 2H: that of which the gate is the sigmoid, and what it lets in."""

    def sequence(self, x_BTI: Tensor, state: State) -> tuple[Tensor, State]:
        h_BTH = gated_scan(self.gate_and_proposal(self.U(x_BTI)), state[0])
        return h_BTH, (h_BTH[:, -1],)


class MinGRU(Minimal):
    """The GRU without what keeps it from being parallel."""

    parts, seen = 2, ("gate", "proposal", "state")
    holds = (-1, 0)

    def recur(self, u_BP: Tensor, state: State) -> State:
        (h_BH,), (u_g, u_n) = state, u_BP.chunk(2, -1)
        g, n = tap("gate", torch.sigmoid(u_g)), tap("proposal", u_n)
        return (tap("state", g * n + (1 - g) * h_BH),)  # (11)

    def gate_and_proposal(self, u_BTP: Tensor) -> Tensor:
        return u_BTP


class MinLSTM(Minimal):
    """The LSTM likewise; its two gates, brought to a sum of 1, are one gate with log(i / f) in its sigmoid."""

    parts, seen = 3, ("forget", "input", "proposal", "state")
    holds = (1, -1, 0)

    def recur(self, u_BP: Tensor, state: State) -> State:
        (h_BH,), (u_f, u_i, u_n) = state, u_BP.chunk(3, -1)
        log_ratio = F.logsigmoid(u_i) - F.logsigmoid(u_f)  # where both are 0, f / (f + i) would not be a number
        f, i = tap("forget", torch.sigmoid(-log_ratio)), tap("input", torch.sigmoid(log_ratio))
        return (tap("state", f * h_BH + i * tap("proposal", u_n)),)  # (12)

    def gate_and_proposal(self, u_BTP: Tensor) -> Tensor:
        u_f, u_i, u_n = u_BTP.chunk(3, -1)
        return torch.cat([F.logsigmoid(u_i) - F.logsigmoid(u_f), u_n], -1)


CELLS: dict[str, type[Cell]] = {
    "rnn": RNN,
    "lstm": LSTM,
    "gated": Gated,
    "gru": GRU,
    "original_gru": OriginalGRU,
    "min_gru": MinGRU,
    "min_lstm": MinLSTM,
}
CellName = Literal["rnn", "lstm", "gated", "gru", "original_gru", "min_gru", "min_lstm"]
