r"""Long short-term memory (LSTM) (Hochreiter & Schmidhuber 1997; forget gate: Gers et al. 2000).

    i_t = \sigma(x_t U_i + h_{t-1} W_i + b_i)                   input gate       (1)
    f_t = \sigma(x_t U_f + h_{t-1} W_f + b_f)                   forget gate      (2)
    n_t = \tanh(x_t U_n + h_{t-1} W_n + b_n)                    candidate        (3)
    o_t = \sigma(x_t U_o + h_{t-1} W_o + b_o)                   output gate      (4)
    c_t = f_t \odot c_{t-1} + i_t \odot n_t                     cell state       (5)
    h_t = o_t \odot \tanh(c_t)                                  hidden state     (6)

    Symbols:
        x_t         input at time t
        h_t, c_t    hidden state and cell state at time t
        U, W, b     input weights, recurrent weights, biases
        B, T, I, H  batch, time steps, inputs, hidden units

A whole sequence runs in torch's fused kernel.
"""

import torch
from torch import Tensor, nn

from engram.core.tap import tap
from engram.sequences.cell import RecurrentCell, State


class LSTM(RecurrentCell):
    """Long short-term memory."""

    parts, taps = 4, ("input", "forget", "candidate", "output", "cell", "state")
    gate_signs = (-1, 1, 0, 0)

    def initialize(self) -> None:
        """Set the bias of the forget gate to 1 (Gers et al. 2000; Jozefowicz et al. 2015)."""
        super().initialize()
        nn.init.ones_(self.U.bias.detach().chunk(4)[1])

    def initial_state(self, batch: int) -> State:
        return super().initial_state(batch) * 2

    def recur(self, u_BP: Tensor, state: State) -> State:
        h_BH, c_BH = state
        i, f, n, o = (u_BP + self.W(h_BH)).chunk(4, -1)
        i, f = tap("input", torch.sigmoid(i)), tap("forget", torch.sigmoid(f))  # (1), (2)
        n, o = tap("candidate", torch.tanh(n)), tap("output", torch.sigmoid(o))  # (3), (4)
        c_BH = tap("cell", f * c_BH + i * n)  # (5)
        return tap("state", o * torch.tanh(c_BH)), c_BH  # (6)

    def sequence(self, x_BTI: Tensor, state: State) -> tuple[Tensor, State]:
        before = [part[None] for part in state]
        y_BTH, h_1BH, c_1BH = torch.lstm(x_BTI, before, *self.fused_arguments())
        return y_BTH, (h_1BH[0], c_1BH[0])
