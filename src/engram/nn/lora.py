r"""Low-rank adaptation (LoRA): a trained low-rank update of frozen weights (Hu et al. 2022).

    y = x W + b + x A B / \sqrt{R}            A is random and B zero at first      (1)
    W \leftarrow W + A B / \sqrt{R}           merge after training                 (2)

    Symbols:
        x, y     inputs and outputs
        W, b     frozen weights and biases
        A, B     low-rank factors
        R        rank

Dividing by the root of the rank keeps updates of the same size for any rank (Kalajdzievski 2023). The adapted layers
are the projections of attention and of the feed-forward network.
"""

from typing import Any

import torch
from torch import Tensor, nn

from engram.nn.linear import Linear

TARGET_MODULES = ("q", "k", "v", "o", "up", "down", "gate")


class LowRankUpdate(nn.Module):
    """Base of linear layers with frozen weights and a trained low-rank update."""

    def init_update(self, in_features: int, out_features: int, rank: int) -> None:
        """Initialize the factors, so that the update is zero."""
        self.rank = rank
        self.lora_A = nn.Parameter(torch.randn(rank, in_features) * in_features**-0.5)
        self.lora_B = nn.Parameter(torch.zeros(out_features, rank))

    def update(self, x: Tensor) -> Tensor:
        """Low-rank part of the output (1)."""
        return (x @ self.lora_A.T) @ self.lora_B.T / self.rank**0.5  # (1)

    @torch.no_grad()
    def merge(self) -> Linear:
        """Return an ordinary linear layer that computes the same (2)."""
        frozen: Any = self.frozen()
        linear = Linear(frozen.in_features, frozen.out_features, frozen.bias is not None, device="meta")
        linear.weight = nn.Parameter(frozen.weight + self.lora_B @ self.lora_A / self.rank**0.5)  # (2)
        if frozen.bias is not None:
            linear.bias = nn.Parameter(frozen.bias)
        return linear

    def frozen(self) -> nn.Module:
        """Return the layer that has the frozen weights."""
        return self


class LoRA(LowRankUpdate, Linear):
    """Linear layer with frozen weights and a trained low-rank update."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        Linear.__init__(self, linear.in_features, linear.out_features, linear.bias is not None, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        self.init_update(linear.in_features, linear.out_features, rank)

    def forward(self, x: Tensor) -> Tensor:
        return Linear.forward(self, x) + self.update(x)  # (1)


def apply_lora(model: nn.Module, rank: int) -> None:
    """Freeze a model, and replace each of its projections by a LoRA layer."""
    model.requires_grad_(False)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if name in TARGET_MODULES and isinstance(child, nn.Linear):
                setattr(module, name, LoRA(child, rank))


def merge_lora(model: nn.Module) -> None:
    """Replace LoRA layers by merged linear layers; a model without LoRA is left alone."""
    adapted = False
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, LowRankUpdate):
                setattr(module, name, child.merge())
                adapted = True
    if adapted:
        model.requires_grad_(True)


def lora_rank(weights: dict[str, Tensor]) -> int:
    """Return the LoRA rank of a state dict; 0 without LoRA."""
    return next((len(value) for name, value in weights.items() if name.endswith(".lora_A")), 0)
