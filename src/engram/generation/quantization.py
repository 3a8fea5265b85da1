r"""Int8 weight quantization of linear layers, for fast generation: one token at a time is bound by memory bandwidth.

    s_o = \max_i |W_{oi}| / 127,\quad Q = \text{round}(W / s)      one scale per output, 8 bits per weight      (1)
    y = s \odot (Q x) + b                                          activations stay in float32                  (2)

    Symbols:
        W, b       weights and biases
        Q, s       quantized weights and their scales
        x, y       inputs and outputs
        N, I, O    rows, inputs, outputs

A kernel reads each weight once and converts it to float32 in a register. Many rows at once are bound by arithmetic
instead: for them the matrix is dequantized.
"""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.learner import M
from engram.nn.linear import few_rows_product, use_kernel

FEW = 64
"""rows up to which the kernel is faster than dequantizing the matrix"""


class Int8Linear(nn.Module):
    """Linear layer with int8 weights, for inference alone."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        Q_OI, s_O = quantize_rows(linear.weight.detach())
        self.register_buffer("Q_OI", Q_OI)
        self.register_buffer("s_O", s_O)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach())
        self.Q_OI: Tensor
        self.s_O: Tensor
        self.bias: Tensor | None
        self.arrays = Q_OI.numpy(), s_O.numpy(), None if linear.bias is None else linear.bias.detach().numpy()

    def forward(self, x: Tensor) -> Tensor:
        if use_kernel(x, self.Q_OI, FEW):
            return few_rows_product(x, *self.arrays)  # (2)
        return F.linear(x, self.Q_OI * self.s_O[:, None], self.bias)


def quantize_rows(weight_OI: Tensor) -> tuple[Tensor, Tensor]:
    """Quantized weights Q and scales s of each row."""
    s_O = weight_OI.abs().amax(1).clamp(min=1e-12) / 127
    return (weight_OI / s_O[:, None]).round().to(torch.int8), s_O  # (1)


def quantize(model: M) -> M:
    """Return a copy of a model with int8 weights in its linear layers, for inference."""
    quantized = copy.deepcopy(model).eval()
    for module in list(quantized.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, Int8Linear(child))
    return quantized.requires_grad_(False)
