r"""Gated recurrent unit (GRU) (Cho et al. 2014), and a recurrent unit with a single gate.

    r_t = \sigma(x_t U_r + h_{t-1} W_r + b_r)                                   reset gate                          (1)
    z_t = \sigma(x_t U_z + h_{t-1} W_z + b_z)                                   update gate                         (2)
    n_t = \tanh(x_t U_n + r_t \odot (h_{t-1} W_n + d_n) + b_n)                  candidate, as PyTorch and cuDNN     (3)
    n_t = \tanh(x_t U_n + (r_t \odot h_{t-1}) W_n + b_n)                        candidate, as in the paper          (4)
    h_t = (1 - z_t) \odot n_t + z_t \odot h_{t-1}                               hidden state                        (5)
    g_t = \sigma(x_t U_g + h_{t-1} W_g + b_g), n_t = \tanh(x_t U_n + h_{t-1} W_n + b_n)   single gate, candidate    (6)
    h_t = g_t \odot n_t + (1 - g_t) \odot h_{t-1}                               hidden state with a single gate     (7)

    Symbols:
        x_t         input at time t
        h_t         hidden state at time t
        U, W        input weights, recurrent weights
        b, d        input biases, recurrent biases
        B, T, I, H  batch, time steps, inputs, hidden units

With (3) a whole sequence runs in torch's fused kernel; (4) and the single gate run step by step.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from engram.core.tap import tap
from engram.sequences.cell import RecurrentCell, State


class GRU(RecurrentCell):
    """Gated recurrent unit as in PyTorch: the reset gate is applied after the recurrent product."""

    parts, taps = 3, ("reset", "update", "candidate", "state")
    gate_signs = (0, 1, 0)
    recurrent_bias = True

    def recur(self, u_BP: Tensor, state: State) -> State:
        (h_BH,) = state
        (u_r, u_z, u_n), (w_r, w_z, w_n) = u_BP.chunk(3, -1), self.W(h_BH).chunk(3, -1)
        r, z = tap("reset", torch.sigmoid(u_r + w_r)), tap("update", torch.sigmoid(u_z + w_z))  # (1), (2)
        n = tap("candidate", torch.tanh(u_n + r * w_n))  # (3)
        return (tap("state", (1 - z) * n + z * h_BH),)  # (5)

    def sequence(self, x_BTI: Tensor, state: State) -> tuple[Tensor, State]:
        y_BTH, h_1BH = torch.gru(x_BTI, state[0][None], *self.fused_arguments())
        return y_BTH, (h_1BH[0],)


class OriginalGRU(RecurrentCell):
    """Gated recurrent unit of the paper: the reset gate is applied before the recurrent product."""

    parts, taps = 3, ("reset", "update", "candidate", "state")
    gate_signs = (0, 1, 0)

    def recur(self, u_BP: Tensor, state: State) -> State:
        (h_BH,) = state
        (u_r, u_z, u_n), (W_r, W_z, W_n) = u_BP.chunk(3, -1), self.W.weight.chunk(3)
        r = tap("reset", torch.sigmoid(F.linear(h_BH, W_r) + u_r))  # (1)
        z = tap("update", torch.sigmoid(F.linear(h_BH, W_z) + u_z))  # (2)
        n = tap("candidate", torch.tanh(F.linear(r * h_BH, W_n) + u_n))  # (4)
        return (tap("state", (1 - z) * n + z * h_BH),)  # (5)


class GatedRNN(RecurrentCell):
    """Recurrent unit with a single gate."""

    parts, taps = 2, ("gate", "candidate", "state")
    gate_signs = (-1, 0)

    def recur(self, u_BP: Tensor, state: State) -> State:
        (h_BH,) = state
        g, n = (u_BP + self.W(h_BH)).chunk(2, -1)
        g, n = tap("gate", torch.sigmoid(g)), tap("candidate", torch.tanh(n))  # (6)
        return (tap("state", g * n + (1 - g) * h_BH),)  # (7)
