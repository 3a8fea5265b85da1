"""Muon: momentum whose every update is turned into the nearest orthogonal matrix (Jordan et al. 2024).   R × C a matrix

    v <- beta v + g                                          momentum                                        (1)
    u = g + beta v                                           as Nesterov looks ahead                         (2)
    X = u / |u|;  five times  X <- a X + (b A + c A^2) X,  A = X X'         all singular values go to about 1  (3)
    W <- (1 - kappa lambda) W - kappa sqrt(max(1, R / C)) X                                                  (4)

torch.optim.Muon computes (3) in bfloat16, which a CPU without it does ten times slower than float32, and matrix by
matrix; here matrices of one shape are turned together, in the precision that they have.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from engram.core import together

A, B, C = 3.4445, -4.7750, 2.0315
ROUNDS = 5


def orthogonal(u_NRC: Tensor) -> Tensor:
    """The nearest orthogonal matrix of each, roughly: singular values between 0.7 and 1.2."""
    tall = u_NRC.shape[1] > u_NRC.shape[2]
    X = u_NRC.mT if tall else u_NRC
    X = X / X.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(ROUNDS):
        gram = X @ X.mT
        X = torch.baddbmm(X, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), X, beta=A)  # (3)
    return X.mT if tall else X


def shared_out(u_NRC: Tensor) -> Tensor:
    """`orthogonal`, of which every process does its share where there are enough matrices for all."""
    N, P = len(u_NRC), together.world()
    if P > N:
        return orthogonal(u_NRC)
    return together.everyone(orthogonal(u_NRC[together.rank() :: P]), N)


class Muon(torch.optim.Optimizer):
    """For matrices inside a net; embeddings, heads, gains and biases are better left to AdamW."""

    def __init__(self, params: Any, lr: float = 0.02, momentum: float = 0.95, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for weight in group["params"]:
                if weight.grad is not None:
                    shapes[weight.shape].append(weight)
            for weights in shapes.values():
                self._step(weights, group)

    def _step(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        """One step of matrices of one shape."""
        beta, rate = group["momentum"], group["lr"]
        for weight in weights:
            if "momentum" not in self.state[weight]:
                self.state[weight]["momentum"] = torch.zeros_like(weight)
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        momenta = [self.state[weight]["momentum"] for weight in weights]
        torch._foreach_mul_(momenta, beta)
        torch._foreach_add_(momenta, gradients)  # (1)
        ahead = torch._foreach_add(gradients, momenta, alpha=beta)  # (2)
        update = shared_out(torch.stack(together.full(ahead))).unbind(0)  # (3)
        if together.world() > 1:  # weights may be divided, but what is orthogonal is the whole
            update = tuple(together.like(one, weight) for one, weight in zip(update, weights, strict=True))
        rows, columns = weights[0].shape
        torch._foreach_mul_(weights, 1 - rate * group["weight_decay"])
        torch._foreach_add_(weights, update, alpha=-rate * max(1.0, rows / columns) ** 0.5)  # (4)
