r"""Adversarial attacks on classifiers.

FGSM (Goodfellow et al. 2015), PGD (Madry et al. 2018) and random noise.

    x' = x + \kappa \nabla_x L(f(x), y)                       gradient step away from the class y                (1)
    x' = x - \kappa \nabla_x L(f(x), l)                       targeted: gradient step toward the class l         (2)
    x' = x + \epsilon d(\nabla_x L)                           FGSM                                               (3)
    x' \leftarrow P(x' + \alpha d(\nabla_x L))                PGD, from x or from a random start                 (4)
    d(g) = \text{sign}(g)                                     steepest direction for the L∞ norm                 (5)
    d(g) = g / ||g||_2                                        and for the L2 norm
    ||P(x') - x|| \le \epsilon, a \le P(x') \le b             projection onto the ball and the valid range       (6)

    Symbols:
        x, x'           input, adversarial example
        f(x)            logits
        L               cross-entropy
        y, l            true class, target class
        \epsilon        radius of the ball (eps)
        \kappa, \alpha  step sizes
        a, b            lowest and highest valid value of an input
        B, K            batch, classes

Any function from inputs to logits can be attacked. Gradients are computed for the inputs alone: weights, their
gradients and the mode of the model stay as they are.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

import torch
from annotated_types import Ge
from torch import Tensor
from torch.nn import functional as F

from engram.core.config import Settings
from engram.core.errors import EngramError

Classifier = Callable[[Tensor], Tensor]
"""inputs to logits, B × K"""
Loss = Callable[[Tensor, Tensor], Tensor]
"""logits and targets to the loss of each input, B"""
Norm = Literal["linf", "l2"]


@dataclass(frozen=True, kw_only=True)
class ThreatModel(Settings):
    """Perturbations an attacker is allowed: a ball around the input, within the valid range."""

    norm: Norm = "linf"
    """norm of the perturbation: linf (largest change of a pixel) or l2 (Euclidean length)"""
    eps: Annotated[float, Ge(0)] = 0.3
    """largest norm of the perturbation, for pixels from 0 to 1"""
    low: float = 0.0
    """lowest valid value of a pixel"""
    high: float = 1.0
    """highest valid value of a pixel"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low < self.high:
            raise EngramError(f"low must be below high, and they are {self.low} and {self.high}.")

    def project(self, x: Tensor, adversarial: Tensor) -> Tensor:
        """Project adversarial examples onto the ball around x and the valid range."""
        change = adversarial - x
        if self.norm == "linf":
            change.clamp_(-self.eps, self.eps)
        else:
            change.mul_((self.eps / per_sample(l2_norms(change), x).clamp(min=1e-12)).clamp(max=1))
        return change.add_(x).clamp_(self.low, self.high)  # (6)

    def steepest_direction(self, g: Tensor) -> Tensor:
        """Direction of unit norm in which a loss with gradient g increases fastest."""
        return g.sign() if self.norm == "linf" else g / per_sample(l2_norms(g), g).clamp(min=1e-12)  # (5)

    def random_start(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        """Random points of the ball around x."""
        if self.norm == "linf":
            change = (2 * torch.rand(x.shape, generator=generator) - 1).to(x) * self.eps
        else:
            change = self.steepest_direction(torch.randn(x.shape, generator=generator).to(x))
            change = change * per_sample(torch.rand(len(x), generator=generator).to(x), x) * self.eps
        return (x + change).clamp(self.low, self.high)

    def norms(self, perturbation: Tensor) -> Tensor:
        """Norm of each perturbation, B."""
        return perturbation.flatten(1).abs().amax(1) if self.norm == "linf" else l2_norms(perturbation)


def l2_norms(x: Tensor) -> Tensor:
    """Euclidean norm of each sample, B."""
    return x.flatten(1).norm(dim=1)


def per_sample(value_B: Tensor, x: Tensor) -> Tensor:
    """Reshape one value per sample so that it broadcasts with x."""
    return value_B.view(-1, *[1] * (x.ndim - 1))


def input_gradient(model: Classifier, x: Tensor, target_B: Tensor, loss: Loss) -> tuple[Tensor, Tensor]:
    """Gradient of each sample's loss with respect to the input, and the logits."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        logits_BK = model(x)
        (g,) = torch.autograd.grad(loss(logits_BK, target_B).sum(), x)
    return g, logits_BK.detach()


def cross_entropy(logits_BK: Tensor, target_B: Tensor) -> Tensor:
    """Cross-entropy of each sample, B."""
    return F.cross_entropy(logits_BK, target_B, reduction="none")


class Attack(Protocol):
    """Adversarial examples: perturb inputs within the threat model until the classifier is wrong."""

    def __call__(self, model: Classifier, x: Tensor, label_B: Tensor, *, targeted: bool = False) -> Tensor:
        """Return inputs near x that are classified otherwise than `label_B`; with `targeted`, as `label_B`."""


@dataclass(frozen=True, kw_only=True)
class FGSM:
    """Fast gradient sign method: one step of size eps.

    With `step_size`, one step along the gradient itself.
    """

    threat: ThreatModel
    step_size: float = 0.0
    """factor of the gradient (kappa); 0 takes the steepest direction to the border of the ball"""

    def __call__(self, model: Classifier, x: Tensor, label_B: Tensor, *, targeted: bool = False) -> Tensor:
        g, _ = input_gradient(model, x, label_B, cross_entropy)
        g = -g if targeted else g
        if self.step_size:
            return (x + self.step_size * g).clamp(self.threat.low, self.threat.high)  # (1), (2)
        step = self.threat.eps * self.threat.steepest_direction(g)
        return (x + step).clamp(self.threat.low, self.threat.high)  # (3)


@dataclass(frozen=True, kw_only=True)
class PGD(Settings):
    """Projected gradient descent, with random restarts for inputs that are still classified correctly."""

    threat: ThreatModel
    steps: Annotated[int, Ge(1)] = 40
    """gradient steps"""
    step_size: float = 0.0
    """step size (alpha); 0 is 2.5 eps / steps, with which every point of the ball can be reached"""
    random_start: bool = True
    """start at a random point of the ball instead of x"""
    restarts: Annotated[int, Ge(1)] = 1
    """attempts for each input"""
    early_stop: bool = True
    """stop for an input as soon as it is misclassified"""
    generator: torch.Generator | None = None
    loss: Loss = cross_entropy

    @property
    def alpha(self) -> float:
        """The step size that is used."""
        return self.step_size or 2.5 * self.threat.eps / self.steps

    def __call__(
        self, model: Classifier, x: Tensor, label_B: Tensor, *, targeted: bool = False, start: Tensor | None = None
    ) -> Tensor:
        adversarial, left = x.clone(), torch.arange(len(x), device=x.device)
        for attempt in range(self.restarts):
            if attempt == 0 and start is not None:
                initial = start
            else:
                initial = self.threat.random_start(x[left], self.generator) if self.random_start else x[left]
            adversarial[left], fooled = self._ascend(model, x[left], label_B[left], initial, targeted)
            if self.restarts > 1:
                left = left[~fooled]
            if not len(left):
                break
        return adversarial

    def _ascend(
        self, model: Classifier, x: Tensor, label_B: Tensor, now: Tensor, targeted: bool
    ) -> tuple[Tensor, Tensor]:
        """End points of one attempt, and which of them are misclassified."""
        end, active = now.clone(), torch.arange(len(x), device=x.device)
        fooled = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        sign = -1.0 if targeted else 1.0
        for _ in range(self.steps):
            g, logits_BK = input_gradient(model, now, label_B, self.loss)
            if self.early_stop:
                done = (logits_BK.argmax(1) == label_B) == targeted
                end[active], fooled[active] = now, done
                if done.any():
                    active, now, g = active[~done], now[~done], g[~done]
                    x, label_B = x[~done], label_B[~done]
                    if not len(active):
                        return end, fooled
            direction = self.threat.steepest_direction(g)
            now = self.threat.project(x, torch.add(now, direction, alpha=sign * self.alpha))  # (4)
        end[active] = now
        if self.restarts > 1:
            with torch.no_grad():
                fooled[active] = (model(now).argmax(1) == label_B) == targeted
        return end, fooled


@dataclass(frozen=True, kw_only=True)
class RandomNoise:
    """Baseline without gradients: of random points at the border of the ball, that of highest loss."""

    threat: ThreatModel
    tries: int = 20
    generator: torch.Generator | None = None

    @torch.no_grad()
    def __call__(self, model: Classifier, x: Tensor, label_B: Tensor, *, targeted: bool = False) -> Tensor:
        best, found = torch.full((len(x),), -math.inf, device=x.device), x
        for _ in range(self.tries):
            # In the L∞ norm this is a corner of the cube
            direction = self.threat.steepest_direction(torch.randn(x.shape, generator=self.generator).to(x))
            adversarial = (x + self.threat.eps * direction).clamp(self.threat.low, self.threat.high)
            loss_B = cross_entropy(model(adversarial), label_B) * (-1 if targeted else 1)
            better = loss_B > best
            best, found = best.where(~better, loss_B), torch.where(per_sample(better, x), adversarial, found)
        return found
