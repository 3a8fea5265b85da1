r"""Minimal-norm attacks: the smallest perturbation that changes the predicted class.

    k = \text{argmin}_k |f_k - f_y| / ||\nabla f_k - \nabla f_y||_*   DeepFool: nearest linearized class           (1)
    x' \leftarrow x' + (1 + o) |f_k - f_y| d(w) / ||w||_*          DeepFool: step to its decision boundary           (2)
    r \leftarrow r + \alpha g / ||g||_2                            DDN: ascend the loss                              (3)
    \rho \leftarrow \rho (1 - \gamma)                              DDN: smaller norm if x + r is misclassified       (4)
    \rho \leftarrow \rho (1 + \gamma)                              larger norm otherwise
    r \leftarrow \rho r / ||r||_2                                  DDN: rescale to the norm                          (5)
    \epsilon \leftarrow (\epsilon_0 + \epsilon_1) / 2              bisection                                         (6)

    Symbols:
        f, y                      logits, true class
        w                         gradient of f_k - f_y with respect to the input
        ||w||_*                   dual norm: L1 for perturbations measured in L∞, L2 for L2
        d(w)                      steepest direction for the norm
        o                         overshoot
        r, \rho                   perturbation, its norm
        g, \alpha                 gradient of the cross-entropy, step size
        \gamma                    rate at which the norm changes
        \epsilon_0, \epsilon_1    norms that are too small, and large enough
        B, K, D                   batch, classes, size of an input

DeepFool: Moosavi-Dezfooli et al. 2016. DDN (decoupled direction and norm): Rony et al. 2019. In the L∞ norm the result
of DeepFool is improved by PGD in balls whose radii follow (6), in the L2 norm by DDN. Last, (6) searches the line from
each input to its adversarial example.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.robustness.attacks.methods import (
    Classifier,
    Norm,
    ThreatModel,
    cross_entropy,
    input_gradient,
    l2_norms,
    per_sample,
)

OVERSHOOT = 0.02
GAMMA = 0.05
BISECTIONS = 10


class AdversarialExamples(NamedTuple):
    """Misclassified inputs and the norms of their perturbations."""

    x: Tensor
    norm_B: Tensor
    """norm of the perturbation; infinite where none was found"""

    def better(self, other: "AdversarialExamples") -> "AdversarialExamples":
        """For each sample, the example with the smaller norm."""
        nearer = other.norm_B < self.norm_B
        x = torch.where(per_sample(nearer, self.x), other.x, self.x)
        return AdversarialExamples(x, other.norm_B.minimum(self.norm_B))


def measure(
    model: Classifier, x: Tensor, adversarial: Tensor, label_B: Tensor, threat: ThreatModel
) -> AdversarialExamples:
    """Return the adversarial inputs with the norms of their perturbations (inf if the attack failed)."""
    with torch.no_grad():
        fooled = model(adversarial).argmax(1) != label_B
    return AdversarialExamples(adversarial, threat.norms(adversarial - x).where(fooled, torch.inf))


def deepfool(model: Classifier, x: Tensor, label_B: Tensor, threat: ThreatModel, steps: int = 50) -> Tensor:
    """DeepFool for a whole batch, each sample until it is misclassified."""
    now, active = x.clone(), torch.arange(len(x), device=x.device)
    for _ in range(steps):
        with torch.enable_grad():
            at = now[active].detach().requires_grad_()
            logits_BK = model(at)
            label = label_B[active]
            correct = logits_BK.argmax(1) == label
            if not correct.any():
                break
            gradients = [torch.autograd.grad(one.sum(), at, retain_graph=True)[0] for one in logits_BK.unbind(1)]
        w_BKD = torch.stack(gradients, 1).flatten(2)
        rows = torch.arange(len(active), device=x.device)
        w_BKD = w_BKD - w_BKD[rows, label][:, None]
        gap_BK = (logits_BK - logits_BK[rows, label][:, None]).detach().abs()
        dual_BK = w_BKD.abs().sum(2) if threat.norm == "linf" else w_BKD.norm(dim=2)
        distance_BK = gap_BK / dual_BK.clamp(min=1e-12)
        distance_BK[rows, label] = torch.inf
        distance_B, k_B = distance_BK.min(1)  # (1)
        direction = threat.steepest_direction(w_BKD[rows, k_B]).view_as(at)
        moved = at.detach() + ((1 + OVERSHOOT) * per_sample(distance_B, at) + 1e-5) * direction  # (2)
        now[active[correct]] = moved[correct].clamp(threat.low, threat.high)
        active = active[correct]
    return now


def decoupled_direction_and_norm(
    model: Classifier, x: Tensor, label_B: Tensor, threat: ThreatModel, initial: AdversarialExamples, steps: int
) -> AdversarialExamples:
    """Improve adversarial examples in the L2 norm by DDN."""
    best, r = initial, initial.x - x
    rho_B = initial.norm_B.where(initial.norm_B.isfinite(), 1.0)
    for i in range(steps):
        g, logits_BK = input_gradient(model, x + r, label_B, cross_entropy)
        fooled = logits_BK.argmax(1) != label_B
        best = best.better(AdversarialExamples(x + r, l2_norms(r).where(fooled, torch.inf)))
        alpha = 0.01 + 0.99 * (1 + math.cos(math.pi * i / steps)) / 2
        r = r + alpha * threat.steepest_direction(g)  # (3)
        rho_B = rho_B * torch.where(fooled, 1 - GAMMA, 1 + GAMMA)  # (4)
        r = per_sample(rho_B / l2_norms(r).clamp(min=1e-12), x) * r  # (5)
        r = (x + r).clamp(threat.low, threat.high) - x
    return best.better(measure(model, x, x + r, label_B, threat))


def bisect_eps(
    model: Classifier, x: Tensor, label_B: Tensor, threat: ThreatModel, initial: AdversarialExamples, steps: int
) -> AdversarialExamples:
    """Improve adversarial examples in the L∞ norm by PGD in balls whose radius is bisected."""
    best, low_B = initial, torch.zeros(len(x), device=x.device)
    for _ in range(BISECTIONS):
        high_B = best.norm_B.where(best.norm_B.isfinite(), threat.high - threat.low)
        middle_B = (low_B + high_B) / 2  # (6)
        tried = maximize_margin(model, x, best.x, label_B, threat, middle_B, max(10, steps // 4))
        found = measure(model, x, tried, label_B, threat)
        low_B = torch.where(found.norm_B.isfinite(), low_B, middle_B)
        best = best.better(found)
    return best


def maximize_margin(
    model: Classifier, x: Tensor, initial: Tensor, label_B: Tensor, threat: ThreatModel, eps_B: Tensor, steps: int
) -> Tensor:
    """PGD on the margin in the L∞ norm, with a radius for each sample.

    Return the points of largest margin.
    """
    size = per_sample(eps_B, x)
    now = x + (initial - x).clamp(-size, size)
    best, highest = now, torch.full((len(x),), -torch.inf, device=x.device)
    for i in range(steps):
        g, logits_BK = input_gradient(model, now, label_B, margin)
        value_B = margin(logits_BK, label_B)
        better = value_B > highest
        highest, best = highest.where(~better, value_B), torch.where(per_sample(better, x), now, best)
        step = 0.5 * (1 - i / steps) * size
        now = (x + (now + step * g.sign() - x).clamp(-size, size)).clamp(threat.low, threat.high)
    return best


def margin(logits_BK: Tensor, label_B: Tensor) -> Tensor:
    """Largest logit of the other classes minus that of the label, B; positive if misclassified."""
    label_logit_B = logits_BK.gather(1, label_B[:, None])[:, 0]
    return logits_BK.scatter(1, label_B[:, None], -torch.inf).amax(1) - label_logit_B


def minimal_norm_attack(
    model: Classifier, x: Tensor, label_B: Tensor, *, norm: Norm = "l2", low: float = 0.0, high: float = 1.0,
    steps: int = 100,
) -> AdversarialExamples:  # fmt: skip
    """Nearest misclassified inputs and the norms of their perturbations.

    0 for inputs misclassified already.
    """
    if steps < 1:
        raise EngramError(f"steps must be at least 1, not {steps}.")
    threat = ThreatModel(norm=norm, eps=torch.inf, low=low, high=high)
    found = measure(model, x, x, label_B, threat)
    found = found.better(measure(model, x, deepfool(model, x, label_B, threat), label_B, threat))
    improve = decoupled_direction_and_norm if norm == "l2" else bisect_eps
    found = improve(model, x, label_B, threat, found, steps)
    return bisect_line(model, x, label_B, threat, found)


@torch.no_grad()
def bisect_line(
    model: Classifier, x: Tensor, label_B: Tensor, threat: ThreatModel, initial: AdversarialExamples
) -> AdversarialExamples:
    """Bisect the line from each input to its adversarial example."""
    best, low_B = initial, torch.zeros(len(x), device=x.device)
    high_B = torch.ones_like(low_B)
    for _ in range(BISECTIONS):
        middle_B = (low_B + high_B) / 2  # (6)
        found = measure(model, x, x + per_sample(middle_B, x) * (initial.x - x), label_B, threat)
        fooled = found.norm_B.isfinite()
        low_B, high_B = middle_B.where(~fooled, low_B), middle_B.where(fooled, high_B)
        best = best.better(found)
    return best
