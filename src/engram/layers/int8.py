"""Matrices in eight bits, for making text one token at a time, which is bound by how quickly weights can be read.

N rows, I inputs, O outputs

    s_o = max_i |W_oi| / 127,   Q = round(W / s)          one scale for each output, 8 bits for each weight      (1)
    y = s (Q x) + b                                       x stays as exact as it is                              (2)

A kernel reads each weight once, turns it into a float in a register and multiplies. Many rows at once are bound by
arithmetic instead: for them the matrix is made again, and multiplied as usual.
"""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.layers.linear import product, quick

FEW = 64
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
        self.arrays = Q_OI.numpy(), s_O.numpy(), None if plain.bias is None else plain.bias.detach().numpy()

    def forward(self, x: Tensor) -> Tensor:
        if quick(x, self.Q_OI, FEW):
            return product(x, *self.arrays)  # (2)
        return F.linear(x, self.Q_OI * self.s_O[:, None], self.bias)


def quantise(weight_OI: Tensor) -> tuple[Tensor, Tensor]:
    """Q and s."""
    s_O = weight_OI.abs().amax(1).clamp(min=1e-12) / 127
    return (weight_OI / s_O[:, None]).round().to(torch.int8), s_O  # (1)


def quantised(model: nn.Module) -> nn.Module:
    """A copy whose linear layers are in eight bits; only for use, not for learning."""
    made = copy.deepcopy(model).eval()
    for module in list(made.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, Int8Linear(child))
    return made.requires_grad_(False)
