"""The smallest change that makes a classifier err.   B batch, K classes

    k = argmin_k |f_k - f_t| / |grad f_k - grad f_t|               DeepFool (Moosavi-Dezfooli et al. 2016): the    (1)
    x' <- x' + (1 + o) |f_k - f_t| w / |w|_*^2                     nearest class, were f linear; w = the slope of
                                                                   the difference
    r <- r + alpha g / |g|                                         DDN (Rony et al. 2019): up the loss, and        (2)
    rho <- rho (1 - gamma) if x + r is taken for another, else rho (1 + gamma)                                     (3)
    r <- rho r / |r|                                               apart from it, the length                       (4)
    eps <- the middle of what is too little and what is enough     bisection                                       (5)

In the maximum norm, what (1) finds is bettered by PGD in balls of the sizes that (5) names; in the Euclidean norm by
(2) to (4). At last (5) looks between each thing and what was found.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.robustness.attacks import Classifier, Norm, Threat, along, cross_entropy, lengths, slope

OVERSHOOT = 0.02
GAMMA = 0.05
HALVINGS = 10


class Found(NamedTuple):
    """Things that are taken for something else, and how far that is."""

    x: Tensor
    norm_B: Tensor
    """of the change; infinite where none was found"""

    def better(self, other: "Found") -> "Found":
        """The nearer of two, thing by thing."""
        nearer = other.norm_B < self.norm_B
        return Found(torch.where(along(nearer, self.x), other.x, self.x), other.norm_B.minimum(self.norm_B))


def measured(model: Classifier, x: Tensor, moved: Tensor, label_B: Tensor, threat: Threat) -> Found:
    """How far things were moved, where that succeeded."""
    with torch.no_grad():
        fooled = model(moved).argmax(1) != label_B
    return Found(moved, threat.size(moved - x).where(fooled, torch.inf))


def deepfool(model: Classifier, x: Tensor, label_B: Tensor, threat: Threat, steps: int = 50) -> Tensor:
    """(1), for all things at once, each until it is taken for another class."""
    now, active = x.clone(), torch.arange(len(x), device=x.device)
    for _ in range(steps):
        with torch.enable_grad():
            at = now[active].detach().requires_grad_()
            logits_BK = model(at)
            label = label_B[active]
            right = logits_BK.argmax(1) == label
            if not right.any():
                break
            slopes = [torch.autograd.grad(one.sum(), at, retain_graph=True)[0] for one in logits_BK.unbind(1)]
        w_BKD = torch.stack(slopes, 1).flatten(2)
        rows = torch.arange(len(active), device=x.device)
        w_BKD = w_BKD - w_BKD[rows, label][:, None]
        gap_BK = (logits_BK - logits_BK[rows, label][:, None]).detach().abs()
        steep_BK = w_BKD.abs().sum(2) if threat.norm == "linf" else w_BKD.norm(dim=2)  # the dual norm
        far_BK = gap_BK / steep_BK.clamp(min=1e-12)
        far_BK[rows, label] = torch.inf
        far_B, k_B = far_BK.min(1)
        way = threat.steepest(w_BKD[rows, k_B]).view_as(at)
        moved = at.detach() + ((1 + OVERSHOOT) * along(far_B, at) + 1e-5) * way
        now[active[right]] = moved[right].clamp(threat.low, threat.high)  # (1)
        active = active[right]
    return now


def decoupled(model: Classifier, x: Tensor, label_B: Tensor, threat: Threat, begin: Found, steps: int) -> Found:
    """(2) to (4), from what was found before."""
    best, r = begin, begin.x - x
    rho_B = begin.norm_B.where(begin.norm_B.isfinite(), 1.0)
    for i in range(steps):
        g, logits_BK = slope(model, x + r, label_B, cross_entropy)
        fooled = logits_BK.argmax(1) != label_B
        best = best.better(Found(x + r, lengths(r).where(fooled, torch.inf)))
        alpha = 0.01 + 0.99 * (1 + math.cos(math.pi * i / steps)) / 2
        r = r + alpha * threat.steepest(g)  # (2)
        rho_B = rho_B * torch.where(fooled, 1 - GAMMA, 1 + GAMMA)  # (3)
        r = along(rho_B / lengths(r).clamp(min=1e-12), x) * r  # (4)
        r = (x + r).clamp(threat.low, threat.high) - x
    return best.better(measured(model, x, x + r, label_B, threat))


def bisected(model: Classifier, x: Tensor, label_B: Tensor, threat: Threat, begin: Found, steps: int) -> Found:
    """(5): PGD in balls of half, three quarters, … of what was found."""
    best, little_B = begin, torch.zeros(len(x), device=x.device)
    for _ in range(HALVINGS):
        enough_B = best.norm_B.where(best.norm_B.isfinite(), threat.high - threat.low)
        middle_B = (little_B + enough_B) / 2
        tried = within(model, x, best.x, label_B, threat, middle_B, max(10, steps // 4))
        found = measured(model, x, tried, label_B, threat)
        little_B = torch.where(found.norm_B.isfinite(), little_B, middle_B)
        best = best.better(found)
    return best


def within(
    model: Classifier, x: Tensor, begin: Tensor, label_B: Tensor, threat: Threat, eps_B: Tensor, steps: int
) -> Tensor:
    """Up the margin in the maximum norm, with a ball of its own for each thing, from where a larger one was left."""
    size = along(eps_B, x)
    now = x + (begin - x).clamp(-size, size)
    best, highest = now, torch.full((len(x),), -torch.inf, device=x.device)
    for i in range(steps):
        g, logits_BK = slope(model, now, label_B, margin)
        value_B = margin(logits_BK, label_B)
        better = value_B > highest
        highest, best = highest.where(~better, value_B), torch.where(along(better, x), now, best)
        step = 0.5 * (1 - i / steps) * size
        now = (x + (now + step * g.sign() - x).clamp(-size, size)).clamp(threat.low, threat.high)
    return best


def margin(logits_BK: Tensor, label_B: Tensor) -> Tensor:
    """How much more probable another class is than the right one, in logits."""
    right_B = logits_BK.gather(1, label_B[:, None])[:, 0]
    return logits_BK.scatter(1, label_B[:, None], -torch.inf).amax(1) - right_B


def minimal(
    model: Classifier, x: Tensor, label_B: Tensor, *, norm: Norm = "l2", low: float = 0.0, high: float = 1.0,
    steps: int = 100,
) -> Found:  # fmt: skip
    """The nearest things that are taken for something else, and how near they are; 0 for what already is."""
    if steps < 1:
        raise EngramError(f"steps must be at least 1, not {steps}.")
    threat = Threat(norm=norm, eps=torch.inf, low=low, high=high)
    found = measured(model, x, x, label_B, threat)
    found = found.better(measured(model, x, deepfool(model, x, label_B, threat), label_B, threat))
    search = decoupled if norm == "l2" else bisected
    found = search(model, x, label_B, threat, found, steps)
    return narrowed(model, x, label_B, threat, found)


@torch.no_grad()
def narrowed(model: Classifier, x: Tensor, label_B: Tensor, threat: Threat, begin: Found) -> Found:
    """(5) on the line from each thing to what was found."""
    best, little_B = begin, torch.zeros(len(x), device=x.device)
    enough_B = torch.ones_like(little_B)
    for _ in range(HALVINGS):
        middle_B = (little_B + enough_B) / 2
        found = measured(model, x, x + along(middle_B, x) * (begin.x - x), label_B, threat)
        fooled = found.norm_B.isfinite()
        little_B, enough_B = middle_B.where(~fooled, little_B), middle_B.where(fooled, enough_B)
        best = best.better(found)
    return best
