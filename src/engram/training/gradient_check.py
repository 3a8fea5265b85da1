r"""Gradient check: backpropagated gradients against central differences, weight by weight.

    \hat g_i = (E(\theta + h e_i) - E(\theta - h e_i)) / 2 h       central difference     (1)
    \epsilon_i = |g_i - \hat g_i| / \max(|g_i|, |\hat g_i|, s)     relative error         (2)

    Symbols:
        E             loss
        g_i           gradient of weight i
        h             step
        s             a small part of the largest gradient

Everything is computed in 64 bits, and with the same random numbers each time (dropout, noise), so that (1) is good to
about eight digits. Weights are moved a little first: many begin at zero, where gradients are zero, right or wrong.
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.learner import Batch, Loss
from engram.core.seeding import generator

STEPS = 1e-6, 1e-7
"""short, so that few units cross a kink; shorter where one does: a wrong gradient differs at both"""
MOVED = 0.02
TOLERANCE = 1e-3
SMALL, SMALLEST = 1e-3, 1e-5
"""parts of the largest gradient of a tensor, and of all: what is smaller is rounding"""


@dataclass(frozen=True)
class GradientError:
    """The largest gradient error of one tensor of weights."""

    name: str
    weights: int
    """of which `tried` were tried"""
    tried: int
    place: tuple[int, ...]
    """where the gradient and the difference are farthest apart"""
    gradient: float
    difference: float
    wrong: float
    """(2) there"""

    @property
    def right(self) -> bool:
        return self.wrong < TOLERANCE


def gradient_check(
    model: nn.Module, loss: Loss[Any], batch: Batch, count: int = 10, seed: int = 0
) -> list[GradientError]:
    """Every tensor of weights, the worst first.

    `count` weights of each are tried, those with large gradients too.
    """
    model = copy.deepcopy(model).double()
    batch = {name: to_float64(value) for name, value in batch.items()}
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    if not weights:
        raise EngramError("The model has no weights that learn by a gradient.")
    random = generator(seed, "check")
    for weight in weights.values():
        weight.data += MOVED * torch.randn(weight.shape, generator=random, dtype=weight.dtype)

    def energy() -> Tensor:
        torch.manual_seed(seed)
        return loss(model, batch)[0]

    gradients = torch.autograd.grad(energy(), list(weights.values()), allow_unused=True, materialize_grads=True)
    most = max(one.abs().max().item() for one in gradients)
    found = []
    for (name, weight), gradient in zip(weights.items(), gradients, strict=True):
        g = gradient.flatten()
        largest = g.abs().topk(min(count // 2 + 1, len(g))).indices
        sampled = torch.randint(len(g), (count // 2,), generator=random)
        places = torch.cat([largest, sampled]).unique()
        small = max(SMALL * g.abs().max().item(), SMALLEST * most, torch.finfo(torch.float64).tiny)
        tried = []
        for place in places:
            where = tuple(int(i) for i in torch.unravel_index(place, weight.shape))
            slope = gradient[where].item()
            for step in STEPS:  # (1)
                difference = central_difference(weight.data, where, energy, step)
                wrong = abs(slope - difference) / max(abs(slope), abs(difference), small)
                if wrong < TOLERANCE:
                    break
            tried.append(GradientError(name, weight.numel(), len(places), where, slope, difference, wrong))
        found.append(max(tried, key=lambda one: one.wrong))
    return sorted(found, key=lambda one: -one.wrong)


@torch.no_grad()
def central_difference(values: Tensor, where: tuple[int, ...], energy: Any, step: float) -> float:
    """Return the central difference (1) at one weight."""
    here = values[where].item()
    values[where] = here + step
    up = energy().item()
    values[where] = here - step
    down = energy().item()
    values[where] = here
    return float((up - down) / (2 * step))


def to_float64(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value
