"""Attacks on classifiers (note 003 §34; Goodfellow et al. 2015; Madry et al. 2018).   B batch, x things, f(x) logits

    x' = x + kappa grad E(f(x), t)                    a step up the loss of the right class t                      (1)
    x' = x - kappa grad E(f(x), l)                    or down that of a class l that it shall be taken for         (2)
    x' = x + eps sign(grad E)                         FGSM: as far as a ball of maximum norm lets one go           (3)
    x' <- P(x' + alpha d(grad E))                     PGD: many small steps, each followed by the way back         (4)
    d(g) = sign(g) or g / |g|                         steepest for the maximum norm, for the Euclidean norm
    P(x') : |x' - x| <= eps  and  low <= x' <= high   the ball, and what things of this kind can be                (5)

Any module from things to logits can be attacked. Gradients are taken of the things alone; weights and their gradients
stay as they are, and so does the mode: what was set to eval() is attacked as it is used.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from engram.core.errors import EngramError

Classifier = Callable[[Tensor], Tensor]
"""things to logits, B × classes"""
Loss = Callable[[Tensor, Tensor], Tensor]
"""logits and targets to one number for each thing"""
Norm = Literal["linf", "l2"]


@dataclass(frozen=True, kw_only=True)
class Threat:
    """How far an attacker may go."""

    norm: Norm = "linf"
    """how a change is measured: linf, its largest number, or l2, its length"""
    eps: float = 0.3
    """the largest change"""
    low: float = 0.0
    """smallest number that things have"""
    high: float = 1.0
    """largest number that things have"""

    def __post_init__(self) -> None:
        if not self.eps >= 0:
            raise EngramError(f"eps must not be negative or NaN, and is {self.eps}.")
        if not self.low < self.high:
            raise EngramError(f"low must be below high, and they are {self.low} and {self.high}.")

    def project(self, x: Tensor, moved: Tensor) -> Tensor:
        """(5)"""
        change = moved - x
        if self.norm == "linf":
            change.clamp_(-self.eps, self.eps)
        else:
            change.mul_((self.eps / along(lengths(change), x).clamp(min=1e-12)).clamp(max=1))
        return change.add_(x).clamp_(self.low, self.high)

    def steepest(self, g: Tensor) -> Tensor:
        """d of (4)"""
        return g.sign() if self.norm == "linf" else g / along(lengths(g), g).clamp(min=1e-12)

    def anywhere(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        """Somewhere in the ball around x."""
        if self.norm == "linf":
            change = (2 * torch.rand(x.shape, generator=generator) - 1).to(x) * self.eps
        else:
            change = self.steepest(torch.randn(x.shape, generator=generator).to(x))
            change = change * along(torch.rand(len(x), generator=generator).to(x), x) * self.eps
        return (x + change).clamp(self.low, self.high)

    def size(self, change: Tensor) -> Tensor:
        """The norm of each change."""
        return change.flatten(1).abs().amax(1) if self.norm == "linf" else lengths(change)


def lengths(x: Tensor) -> Tensor:
    return x.flatten(1).norm(dim=1)


def along(one_B: Tensor, x: Tensor) -> Tensor:
    """A number for each thing, in a shape that multiplies things."""
    return one_B.view(-1, *[1] * (x.ndim - 1))


def slope(model: Classifier, x: Tensor, target_B: Tensor, loss: Loss) -> tuple[Tensor, Tensor]:
    """The gradient of each thing's loss, and the logits."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        logits_BK = model(x)
        (g,) = torch.autograd.grad(loss(logits_BK, target_B).sum(), x)
    return g, logits_BK.detach()


def cross_entropy(logits_BK: Tensor, target_B: Tensor) -> Tensor:
    return F.cross_entropy(logits_BK, target_B, reduction="none")


class Attack(Protocol):
    """What makes things that are taken for something else."""

    def __call__(self, model: Classifier, x: Tensor, label_B: Tensor, *, targeted: bool = False) -> Tensor:
        """Things near x that are not taken for their labels; with `targeted`, things that are taken for them."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step: of length kappa along the gradient itself (1), (2), or to the end of the ball if kappa is 0 (3)."""

    threat: Threat
    kappa: float = 0.0

    def __call__(self, model: Classifier, x: Tensor, label_B: Tensor, *, targeted: bool = False) -> Tensor:
        g, _ = slope(model, x, label_B, cross_entropy)
        g = -g if targeted else g
        if self.kappa:
            return (x + self.kappa * g).clamp(self.threat.low, self.threat.high)  # (1), (2)
        return (x + self.threat.eps * self.threat.steepest(g)).clamp(self.threat.low, self.threat.high)  # (3)


@dataclass(frozen=True, kw_only=True)
class PGD:
    """(4), from where things are or from anywhere in the ball, and again if that did not succeed."""

    threat: Threat
    steps: int = 40
    alpha: float = 0.0
    """length of a step; 0 is 2.5 eps / steps, which reaches every place of the ball"""
    random: bool = True
    """begin anywhere in the ball"""
    restarts: int = 1
    """attempts for each thing"""
    early: bool = True
    """leave a thing alone as soon as it is taken for something else"""
    generator: torch.Generator | None = None
    loss: Loss = cross_entropy

    def __post_init__(self) -> None:
        for name in ("steps", "restarts"):
            if getattr(self, name) < 1:
                raise EngramError(f"{name} must be at least 1, not {getattr(self, name)}.")

    @property
    def length(self) -> float:
        return self.alpha or 2.5 * self.threat.eps / self.steps

    def __call__(
        self, model: Classifier, x: Tensor, label_B: Tensor, *, targeted: bool = False, start: Tensor | None = None
    ) -> Tensor:
        found, left = x.clone(), torch.arange(len(x), device=x.device)
        for attempt in range(self.restarts):
            if attempt == 0 and start is not None:
                begin = start
            else:
                begin = self.threat.anywhere(x[left], self.generator) if self.random else x[left]
            found[left], fooled = self._climb(model, x[left], label_B[left], begin, targeted)
            if self.restarts > 1:
                left = left[~fooled]
            if not len(left):
                break
        return found

    def _climb(
        self, model: Classifier, x: Tensor, label_B: Tensor, now: Tensor, targeted: bool
    ) -> tuple[Tensor, Tensor]:
        """Where one attempt ends, and which of the things are fooled there."""
        end, active = now.clone(), torch.arange(len(x), device=x.device)
        fooled = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        sign = -1.0 if targeted else 1.0
        for _ in range(self.steps):
            g, logits_BK = slope(model, now, label_B, self.loss)
            if self.early:
                done = (logits_BK.argmax(1) == label_B) == targeted
                end[active], fooled[active] = now, done
                if done.any():
                    active, now, g = active[~done], now[~done], g[~done]
                    x, label_B = x[~done], label_B[~done]
                    if not len(active):
                        return end, fooled
            now = self.threat.project(x, torch.add(now, self.threat.steepest(g), alpha=sign * self.length))  # (4)
        end[active] = now
        if self.restarts > 1:
            with torch.no_grad():
                fooled[active] = (model(now).argmax(1) == label_B) == targeted
        return end, fooled


@dataclass(frozen=True, kw_only=True)
class Guess:
    """No gradient: random places of the ball, of which the one with the highest loss is kept."""

    threat: Threat
    tries: int = 20
    generator: torch.Generator | None = None

    @torch.no_grad()
    def __call__(self, model: Classifier, x: Tensor, label_B: Tensor, *, targeted: bool = False) -> Tensor:
        best, found = torch.full((len(x),), -math.inf, device=x.device), x
        for _ in range(self.tries):
            way = self.threat.steepest(torch.randn(x.shape, generator=self.generator).to(x))  # of a cube, a corner
            moved = (x + self.threat.eps * way).clamp(self.threat.low, self.threat.high)
            loss_B = cross_entropy(model(moved), label_B) * (-1 if targeted else 1)
            better = loss_B > best
            best, found = best.where(~better, loss_B), torch.where(along(better, x), moved, found)
        return found
