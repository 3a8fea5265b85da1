r"""Linear layer that is fast for few rows, as in autoregressive decoding.

    y = x W^T + b     (1)

    Symbols:
        x, y       inputs and outputs
        W, b       weights and biases
        N, I, O    rows, inputs, outputs

One row times a matrix is bound by memory bandwidth. torch reads the matrix on one core; the kernel reads it on all,
each core the weights of its own outputs. It is used without gradients, on a CPU, for matrices that are large enough.
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
"""rows up to which memory bandwidth is the limit"""
LARGE = 1 << 17
"""number of weights from which the kernel is faster"""


class Linear(nn.Linear):
    """Linear layer of torch, with a faster kernel for few rows."""

    def forward(self, x: Tensor) -> Tensor:
        if use_kernel(x, self.weight):
            bias = None if self.bias is None else self.bias.detach().numpy()
            return few_rows_product(x, self.weight.detach().numpy(), bias)
        return F.linear(x, self.weight, self.bias)  # (1)


def use_kernel(x: Tensor, weight_OI: Tensor) -> bool:
    """Whether the kernel can be used, and is faster than torch."""
    return (
        not torch.is_grad_enabled()
        and not torch.compiler.is_compiling()  # before any size is read, which may be symbolic then
        and x.numel() <= FEW * x.shape[-1]
        and weight_OI.numel() >= LARGE
        and x.dtype == torch.float32
        and x.is_cpu
        and weight_OI.is_cpu
        and weight_OI.dtype == torch.float32
    )


def few_rows_product(x: Tensor, weight_OI: Array, bias_O: Array | None) -> Tensor:
    """Product x W' of few rows, with biases."""
    y = x.new_empty(*x.shape[:-1], len(weight_OI))
    width = x.shape[-1]
    _product(weight_OI, x.contiguous().view(-1, width).numpy(), bias_O, y.view(-1, len(weight_OI)).numpy())
    return y


@parallel_njit(fastmath=True)
def _product(W_OI: Array, x_NI: Array, bias_O: Array | None, y_NO: Array) -> None:
    for o in numba.prange(W_OI.shape[0]):
        for n in range(x_NI.shape[0]):
            total = np.float32(0.0)
            for i in range(W_OI.shape[1]):
                total += W_OI[o, i] * x_NI[n, i]
            if bias_O is not None:
                total += bias_O[o]
            y_NO[n, o] = total  # (1)
