r"""Recurrent neural network (RNN), the Elman cell (Elman 1990).

    h_t = \tanh(x_t U + h_{t-1} W + b)     hidden state     (1)

    Symbols:
        x_t         input at time t
        h_t         hidden state at time t
        U, W, b     input weights, recurrent weights, biases
        B, T, I, H  batch, time steps, inputs, hidden units

A whole sequence runs in torch's fused kernel.
"""

import torch
from torch import Tensor

from engram.core.tap import tap
from engram.sequences.cell import RecurrentCell, State


class RNN(RecurrentCell):
    """Elman cell."""

    parts, taps = 1, ("state",)

    def recur(self, u_BP: Tensor, state: State) -> State:
        (h_BH,) = state
        return (tap("state", torch.tanh(u_BP + self.W(h_BH))),)  # (1)

    def sequence(self, x_BTI: Tensor, state: State) -> tuple[Tensor, State]:
        y_BTH, h_1BH = torch.rnn_tanh(x_BTI, state[0][None], *self.fused_arguments())
        return y_BTH, (h_1BH[0],)
