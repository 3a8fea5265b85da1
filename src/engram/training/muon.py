r"""Muon: momentum orthogonalized by Newton–Schulz iteration (Jordan et al. 2024).

    v \leftarrow \beta v + g                                                momentum                       (1)
    u = g + \beta v                                                        Nesterov momentum              (2)
    X \leftarrow a X + (b A + c A^2) X, \quad A = X X^T                     five times from u / ||u||      (3)
    W \leftarrow (1 - \kappa \lambda) W - \kappa \sqrt{\max(1, R / C)} X     update                         (4)

    Symbols:
        g          gradient of the matrix W, which is R × C
        \beta      momentum
        \kappa     learning rate
        \lambda    weight decay
        a, b, c    coefficients that move all singular values to about 1

torch.optim.Muon computes (3) in bfloat16, which a CPU without it does ten times slower than float32, and matrix by
matrix; here matrices of one shape are orthogonalized in one batch, in the precision that they have.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from engram.training import distributed

A, B, C = 3.4445, -4.7750, 2.0315
ITERATIONS = 5


def orthogonalize(u_NRC: Tensor) -> Tensor:
    """Newton–Schulz iteration toward the nearest orthogonal matrix: singular values from 0.7 to 1.2."""
    tall = u_NRC.shape[1] > u_NRC.shape[2]
    X = u_NRC.mT if tall else u_NRC
    X = X / X.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram = X @ X.mT
        X = torch.baddbmm(X, torch.baddbmm(gram, gram, gram, beta=B, alpha=C), X, beta=A)  # (3)
    return X.mT if tall else X


def distributed_orthogonalize(u_NRC: Tensor) -> Tensor:
    """`orthogonalize` with the matrices split over processes, where there are at least as many matrices."""
    N, P = len(u_NRC), distributed.world_size()
    if P > N:
        return orthogonalize(u_NRC)
    return distributed.all_gather_rows(orthogonalize(u_NRC[distributed.rank() :: P]), N)


class Muon(torch.optim.Optimizer):
    """Muon for the hidden matrices of a network; embeddings, heads, gains and biases are left to AdamW."""

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
        """Update all matrices of one shape."""
        beta, rate = group["momentum"], group["lr"]
        for weight in weights:
            if "momentum" not in self.state[weight]:
                self.state[weight]["momentum"] = torch.zeros_like(weight)
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        momenta = [self.state[weight]["momentum"] for weight in weights]
        torch._foreach_mul_(momenta, beta)
        torch._foreach_add_(momenta, gradients)  # (1)
        ahead = torch._foreach_add(gradients, momenta, alpha=beta)  # (2)
        update = distributed_orthogonalize(torch.stack(distributed.gather_full(ahead))).unbind(0)  # (3)
        if distributed.world_size() > 1:  # weights may be sharded; the full matrix is orthogonalized
            update = tuple(
                distributed.distribute_like(one, weight) for one, weight in zip(update, weights, strict=True)
            )
        rows, columns = weights[0].shape
        torch._foreach_mul_(weights, 1 - rate * group["weight_decay"])
        torch._foreach_add_(weights, update, alpha=-rate * max(1.0, rows / columns) ** 0.5)  # (4)
