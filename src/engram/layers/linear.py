"""A linear layer that is quick for few rows, as when text is made token by token.   N rows, I inputs, O outputs

    y = x W' + b                                                                                                 (1)

One row times a matrix is bound by how quickly the matrix can be read. torch reads it on one core; the kernel reads it
on all, each core its own outputs: twice as quick on two. It is used where nothing is learnt, on a CPU, for matrices
that are large enough to be worth it.
"""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.threads import parallel_njit

Array = npt.NDArray[Any]
FEW = 8
"""rows up to which reading the matrix is what takes the time"""
LARGE = 1 << 17
"""weights from which the kernel is quicker"""


class Linear(nn.Linear):
    """torch's own linear layer, but for few rows."""

    def forward(self, x: Tensor) -> Tensor:
        if quick(x, self.weight, FEW):
            bias = None if self.bias is None else self.bias.detach().numpy()
            return product(x, self.weight.detach().numpy(), None, bias)
        return F.linear(x, self.weight, self.bias)  # (1)


def quick(x: Tensor, weight_OI: Tensor, few: int) -> bool:
    """Whether the kernel is the quicker way for up to `few` rows, and a possible one."""
    return (
        not torch.is_grad_enabled()
        and not torch.compiler.is_compiling()  # before any size is looked at, which may be unknown then
        and x.numel() <= few * x.shape[-1]
        and weight_OI.numel() >= LARGE
        and x.dtype == torch.float32
        and x.is_cpu
        and weight_OI.is_cpu
        and weight_OI.dtype in (torch.float32, torch.int8)
    )


def product(x: Tensor, weight_OI: Array, scale_O: Array | None, bias_O: Array | None) -> Tensor:
    """x W' with each output scaled and moved, for few rows, of weights in 32 or 8 bits."""
    y = x.new_empty(*x.shape[:-1], len(weight_OI))
    width = x.shape[-1]
    _product(weight_OI, x.contiguous().view(-1, width).numpy(), scale_O, bias_O, y.view(-1, len(weight_OI)).numpy())
    return y


@parallel_njit(fastmath=True)
def _product(W_OI: Array, x_NI: Array, scale_O: Array | None, bias_O: Array | None, y_NO: Array) -> None:
    for o in numba.prange(W_OI.shape[0]):
        for n in range(x_NI.shape[0]):
            total = np.float32(0.0)
            for i in range(W_OI.shape[1]):
                total += np.float32(W_OI[o, i]) * x_NI[n, i]
            if scale_O is not None:
                total *= scale_O[o]
            if bias_O is not None:
                total += bias_O[o]
            y_NO[n, o] = total  # (1)
