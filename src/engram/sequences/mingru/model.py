r"""minGRU and minLSTM: gated recurrent units without recurrent weights (Feng et al. 2024).

    g_t = \sigma(x_t U_g + b_g)                                                     gate of minGRU                 (1)
    n_t = x_t U_n + b_n                                                             candidate
    h_t = g_t \odot n_t + (1 - g_t) \odot h_{t-1}                                   hidden state of minGRU         (2)
    f_t = \sigma(x_t U_f + b_f), i_t = \sigma(x_t U_i + b_i)                        gates of minLSTM               (3)
    h_t = (f_t \odot h_{t-1} + i_t \odot n_t) / (f_t + i_t)                         hidden state of minLSTM        (4)

    Symbols:
        x_t         input at time t
        h_t         hidden state at time t
        U, b        input weights and biases
        B, T, I, H  batch, time steps, inputs, hidden units

The gates do not depend on h, so a parallel scan computes all states. The two gates of minLSTM are normalized to a sum
of 1: they are one gate with the logit log(i / f).
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from engram.core.tap import tap
from engram.sequences.cell import ScanCell, State


class MinGRU(ScanCell):
    """Minimal gated recurrent unit."""

    parts, taps = 2, ("gate", "candidate", "state")
    gate_signs = (-1, 0)

    def recur(self, u_BP: Tensor, state: State) -> State:
        (h_BH,), (u_g, u_n) = state, u_BP.chunk(2, -1)
        g, n = tap("gate", torch.sigmoid(u_g)), tap("candidate", u_n)  # (1)
        return (tap("state", g * n + (1 - g) * h_BH),)  # (2)

    def gate_and_candidate(self, u_BTP: Tensor) -> Tensor:
        return u_BTP


class MinLSTM(ScanCell):
    """Minimal long short-term memory."""

    parts, taps = 3, ("forget", "input", "candidate", "state")
    gate_signs = (1, -1, 0)

    def recur(self, u_BP: Tensor, state: State) -> State:
        (h_BH,), (u_f, u_i, u_n) = state, u_BP.chunk(3, -1)
        log_ratio = F.logsigmoid(u_i) - F.logsigmoid(u_f)  # f / (f + i) would be NaN where both gates are 0
        f, i = tap("forget", torch.sigmoid(-log_ratio)), tap("input", torch.sigmoid(log_ratio))  # (3)
        return (tap("state", f * h_BH + i * tap("candidate", u_n)),)  # (4)

    def gate_and_candidate(self, u_BTP: Tensor) -> Tensor:
        u_f, u_i, u_n = u_BTP.chunk(3, -1)
        return torch.cat([F.logsigmoid(u_i) - F.logsigmoid(u_f), u_n], -1)
