"""Low-rank adaptation: a pretrained matrix stays as it is, and learns by what is added to it (Hu et al. 2022).

    y = x W + b + x A B / sqrt(R)        A is normal and B zero at first: nothing changes until it has learnt     (1)
    W <- W + A B / sqrt(R)               taken into the matrix itself, when learning is over                      (2)

R rank; its root keeps steps alike whatever the rank (Kalajdzievski 2023). The adapted layers are the projections of
attention and of the feed-forward part.
"""

import torch
from torch import Tensor, nn

from engram.layers.linear import Linear

ADAPTED = ("q", "k", "v", "o", "up", "down", "gate")


class LoRA(Linear):
    """A linear layer with a small one beside it; only that one learns."""

    def __init__(self, plain: nn.Linear, rank: int) -> None:
        super().__init__(plain.in_features, plain.out_features, plain.bias is not None, device="meta")
        self.weight, self.bias = plain.weight, plain.bias
        self.rank = rank
        self.lora_A = nn.Parameter(torch.randn(rank, plain.in_features) * plain.in_features**-0.5)
        self.lora_B = nn.Parameter(torch.zeros(plain.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + (x @ self.lora_A.T) @ self.lora_B.T / self.rank**0.5  # (1)

    @torch.no_grad()
    def merged(self) -> Linear:
        plain = Linear(self.in_features, self.out_features, self.bias is not None, device="meta")
        plain.weight = nn.Parameter(self.weight + self.lora_B @ self.lora_A / self.rank**0.5)  # (2)
        plain.bias = self.bias
        return plain


def adapt(model: nn.Module, rank: int) -> None:
    """Freeze the model, and put a low-rank layer beside each of its projections."""
    model.requires_grad_(False)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if name in ADAPTED and isinstance(child, nn.Linear):
                setattr(module, name, LoRA(child, rank))


def merge(model: nn.Module) -> None:
    """Take what was learnt into the matrices themselves: an ordinary model again. Without LoRA, nothing happens."""
    adapted = False
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, LoRA):
                setattr(module, name, child.merged())
                adapted = True
    if adapted:
        model.requires_grad_(True)


def rank_of(weights: dict[str, Tensor]) -> int:
    """The rank with which saved weights were adapted; 0 if they were not."""
    return next((len(value) for name, value in weights.items() if name.endswith(".lora_A")), 0)
