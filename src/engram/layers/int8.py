"""Matrices in eight bits, for making text one token at a time, which is bound by how quickly weights can be read.

s_o = max_i |W_oi| / 127,   Q = round(W / s)          one scale for each output, 8 bits for each weight      (1)
y = s (Q x) + b                                                                                              (2)
"""

import copy

import torch
from torch import Tensor, nn


class Int8Linear(nn.Module):
    """A linear layer whose weights are kept in eight bits."""

    def __init__(self, plain: nn.Linear) -> None:
        super().__init__()
        self.packed = torch.ops.quantized.linear_prepack(quantise(plain.weight.detach()), plain.bias)

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.quantized.linear_dynamic(x, self.packed, reduce_range=True)  # (2)


def quantise(weight_OI: Tensor) -> Tensor:
    scale_O = weight_OI.abs().amax(1).double().clamp(min=1e-12) / 127
    zero_O = torch.zeros_like(scale_O, dtype=torch.long)
    return torch.quantize_per_channel(weight_OI, scale_O, zero_O, 0, torch.qint8)  # (1)


def quantised(model: nn.Module) -> nn.Module:
    """A copy whose linear layers are in eight bits."""
    made = copy.deepcopy(model).eval()
    for module in list(made.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear:
                setattr(module, name, Int8Linear(child))
    return made
