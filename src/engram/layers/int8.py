"""Matrices in eight bits, for making text one token at a time, which is bound by how quickly weights can be read.

N rows, I inputs, O outputs

    s_o = max_i |W_oi| / 127,   Q = round(W / s)          one scale for each output, 8 bits for each weight      (1)
    y = s (Q x) + b                                       x stays as exact as it is                              (2)

A kernel reads each weight once, turns it into a float in a register and multiplies. Many rows at once are bound by
arithmetic instead: for them the matrix is made again, and multiplied as usual.
"""

import copy
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

FEW = 8
"""rows up to which the kernel is quicker than making the matrix again"""


class Int8Linear(nn.Module):
    """A linear layer whose weights are kept in eight bits. It cannot learn."""

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__()
        Q_OI, s_O = quantise(plain.weight.detach())
        self.register_buffer("Q_OI", Q_OI)
        self.register_buffer("s_O", s_O)
        self.register_buffer("bias", None if plain.bias is None else plain.bias.detach())
        self.Q_OI: Tensor
        self.s_O: Tensor
        self.bias: Tensor | None

    def forward(self, x: Tensor) -> Tensor:
        x_NI = x.reshape(-1, x.shape[-1])
        if len(x_NI) > FEW or x.device.type != "cpu":
            return F.linear(x, self.Q_OI * self.s_O[:, None], self.bias)
        y_NO = torch.empty(len(x_NI), len(self.Q_OI))
        numba.set_num_threads(min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS))
        _product(self.Q_OI.numpy(), x_NI.contiguous().numpy(), self.s_O.numpy(), y_NO.numpy())
        y = y_NO.view(*x.shape[:-1], -1)
        return y if self.bias is None else y.add_(self.bias)  # (2)


@numba.njit(cache=True, fastmath=True, parallel=True)
def _product(Q_OI: NDArray[np.int8], x_NI: NDArray[np.float32], s_O: NDArray[np.float32], y_NO: Any) -> None:
    for o in numba.prange(Q_OI.shape[0]):
        for n in range(x_NI.shape[0]):
            total = np.float32(0.0)
            for i in range(Q_OI.shape[1]):
                total += np.float32(Q_OI[o, i]) * x_NI[n, i]
            y_NO[n, o] = total * s_O[o]  # (2)


def quantise(weight_OI: Tensor) -> tuple[Tensor, Tensor]:
    """Q and s."""
    s_O = weight_OI.abs().amax(1).clamp(min=1e-12) / 127
    return (weight_OI / s_O[:, None]).round().to(torch.int8), s_O  # (1)


def quantised(model: nn.Module) -> nn.Module:
    """A copy whose linear layers are in eight bits; only for use, not for learning."""
    made = copy.deepcopy(model).eval()
    for module in list(made.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear:
                setattr(module, name, Int8Linear(child))
    return made.requires_grad_(False)
