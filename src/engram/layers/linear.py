"""A linear layer that is quick for few rows, as when text is made token by token.   N rows, I inputs, O outputs

    y = x W' + b                                                                                                 (1)

One row times a matrix is bound by how quickly the matrix can be read. torch reads it on one core; the kernel reads it
on all, each core its own outputs: twice as quick on two. It is used where nothing is learnt, on a CPU, for matrices
that are large enough to be worth it.
"""

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

FEW = 8
"""rows up to which reading the matrix is what takes the time"""
LARGE = 1 << 17
"""weights from which the kernel is quicker"""


class Linear(nn.Linear):
    """torch's own linear layer, but for few rows."""

    def forward(self, x: Tensor) -> Tensor:
        if quick(x, self.weight, FEW):
            y = product(self.weight, x)
            return y if self.bias is None else y.add_(self.bias)
        return F.linear(x, self.weight, self.bias)  # (1)


def quick(x: Tensor, weight_OI: Tensor, few: int) -> bool:
    """Whether the kernel is the quicker way for up to `few` rows, and a possible one."""
    return (
        not torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and weight_OI.numel() >= LARGE
        and x.numel() <= few * x.shape[-1]
        and x.dtype == torch.float32
        and weight_OI.dtype in (torch.float32, torch.int8)
        and x.device.type == weight_OI.device.type == "cpu"
    )


def product(weight_OI: Tensor, x: Tensor) -> Tensor:
    """x W' for few rows, of weights in 32 or 8 bits."""
    x_NI = x.reshape(-1, x.shape[-1])
    y_NO = torch.empty(x_NI.shape[0], weight_OI.shape[0])
    threads = torch.get_num_threads()
    if numba.get_num_threads() != threads:
        numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
    _product(weight_OI.detach().numpy(), x_NI.detach().contiguous().numpy(), y_NO.numpy())
    return y_NO.view(*x.shape[:-1], -1)


@numba.njit(cache=True, fastmath=True, parallel=True)
def _product(W_OI: Any, x_NI: Any, y_NO: Any) -> None:
    for o in numba.prange(W_OI.shape[0]):
        for n in range(x_NI.shape[0]):
            total = np.float32(0.0)
            for i in range(W_OI.shape[1]):
                total += np.float32(W_OI[o, i]) * x_NI[n, i]
            y_NO[n, o] = total  # (1)
