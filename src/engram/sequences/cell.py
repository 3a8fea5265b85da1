r"""Recurrent cells: what RNN, LSTM, GRU and minGRU have in common.

    u_t = x_t U + b                                input projection, for all gates at once                   (1)
    b_{\text{gate}} = \pm \log(n - 1)              chrono initialization, n uniform from 2 to the longest    (2)

    Symbols:
        x_t         input at time t
        U, b        input weights and biases
        n           time constant of a unit in steps
        B, T, I, H  batch, time steps, inputs, hidden units

A cell is `state -> step -> state`: `initial_state`, then `step` for one time step, or a call for a whole sequence, by
the fastest kernel: torch's fused RNN, LSTM and GRU, or one scan for minGRU and minLSTM. If an activation is watched,
the cell runs step by step. Chrono initialization spreads the time constants of gates evenly (Tallec & Ollivier 2018).
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.tap import is_watched
from engram.nn.gated_scan import gated_scan

State = tuple[Tensor, ...]
"""state of a cell, tensors of B × H; the first is the hidden state h"""


class Cell(nn.Module, ABC):
    """Base of recurrent cells: input projection, one time step, and the loop over a sequence."""

    parts: ClassVar[int]
    """number of gates and candidates, each a projection of the input to H"""
    taps: ClassVar[tuple[str, ...]]
    """activations that can be watched"""
    gate_signs: ClassVar[tuple[int, ...]] = ()
    """for each part 1 if the gate keeps the state when open, -1 if it replaces it, 0 if neither"""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        if inputs < 1 or hidden < 1:
            raise EngramError(f"A cell needs at least one input and one hidden unit, not {inputs} and {hidden}.")
        self.inputs, self.hidden = inputs, hidden
        self.U = nn.Linear(inputs, self.parts * hidden)

    def initialize(self) -> None:
        """Initialize the input weights to preserve variance, and the biases to zero."""
        nn.init.normal_(self.U.weight, std=self.inputs**-0.5)
        nn.init.zeros_(self.U.bias)

    def chrono_init(self, longest: int) -> None:
        """Chrono initialization: set gate biases to time constants of up to `longest` steps."""
        n_H = torch.empty_like(self.U.bias[: self.hidden]).uniform_(2, max(longest, 3))
        for sign, bias_H in zip(self.gate_signs, self.U.bias.detach().chunk(self.parts), strict=False):
            if sign:
                bias_H.copy_(sign * torch.log(n_H - 1))  # (2)

    def initial_state(self, batch: int) -> State:
        """Return the zero state."""
        return (self.U.weight.new_zeros(batch, self.hidden),)

    @abstractmethod
    def recur(self, u_BP: Tensor, state: State) -> State:
        """Return the next state, given the projected input u (P = parts × H): the equations of the cell."""

    def step(self, x_BI: Tensor, state: State) -> tuple[Tensor, State]:
        """Run one time step and return the output, which is h, and the new state."""
        state = self.recur(self.U(x_BI), state)  # (1)
        return state[0], state

    def forward(self, x_BTI: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Run over a sequence and return all outputs, B × T × H, and the last state."""
        state = self.initial_state(len(x_BTI)) if state is None else state
        if x_BTI.shape[1] == 0:
            return x_BTI.new_empty(len(x_BTI), 0, self.hidden), state
        return self.loop(x_BTI, state) if any(map(is_watched, self.taps)) else self.sequence(x_BTI, state)

    def loop(self, x_BTI: Tensor, state: State) -> tuple[Tensor, State]:
        """Run step by step; only the input projection is computed for all steps at once."""
        outputs = []
        for u_BP in self.U(x_BTI).unbind(1):
            state = self.recur(u_BP, state)
            outputs.append(state[0])
        return torch.stack(outputs, 1), state

    def sequence(self, x_BTI: Tensor, state: State) -> tuple[Tensor, State]:
        """Run over a sequence by the fastest kernel of the cell."""
        return self.loop(x_BTI, state)


class RecurrentCell(Cell):
    """Base of cells with recurrent weights W."""

    recurrent_bias: ClassVar[bool] = False
    """whether the recurrent projection has a bias"""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__(inputs, hidden)
        self.W = nn.Linear(hidden, self.parts * hidden, bias=self.recurrent_bias)
        self.initialize()

    def initialize(self) -> None:
        """Initialize the recurrent weights to be orthogonal."""
        super().initialize()
        for W_HH in self.W.weight.detach().chunk(self.parts):
            nn.init.orthogonal_(W_HH)
        if self.recurrent_bias:
            nn.init.zeros_(self.W.bias)

    def fused_arguments(self) -> tuple[list[Tensor], bool, int, float, bool, bool, bool]:
        """Return the arguments of torch's fused kernels: weights, biases, one layer, no dropout, batch first."""
        recurrent_bias = self.W.bias if self.recurrent_bias else torch.zeros_like(self.U.bias)
        weights = [self.U.weight, self.W.weight, self.U.bias, recurrent_bias]
        return weights, True, 1, 0.0, torch.is_grad_enabled(), False, True


class ScanCell(Cell):
    """Base of cells whose gates depend on the input alone, so that a parallel scan computes all states."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__(inputs, hidden)
        self.initialize()

    @abstractmethod
    def gate_and_candidate(self, u_BTP: Tensor) -> Tensor:
        """Return the logits of the gate and the candidate, B × T × 2H."""

    def sequence(self, x_BTI: Tensor, state: State) -> tuple[Tensor, State]:
        h_BTH = gated_scan(self.gate_and_candidate(self.U(x_BTI)), state[0])
        return h_BTH, (h_BTH[:, -1],)
