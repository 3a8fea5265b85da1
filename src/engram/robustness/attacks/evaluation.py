"""Robust accuracy of a classifier, and its curve over the size of the perturbation.

Robust accuracy is the fraction of samples for which the attack finds no adversarial example within eps. It is an upper
bound: a stronger attack may find more. A sample that is misclassified at one eps is so at every larger one, so the
curve attacks only samples that are still classified correctly.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engram.robustness.attacks.methods import PGD, Attack, Classifier

BATCH = 250
"""samples attacked at a time"""
EPS_FRACTIONS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5)
"""points of the curve, as fractions of the threat model's eps"""

Progress = Callable[[int, int], None]
"""receives the number of finished items and their total"""


def no_progress(done: int, total: int) -> None:
    """Report nothing."""


def predict_classes(model: Classifier, x: Tensor) -> Tensor:
    """Predicted class of each sample, N."""
    with torch.no_grad():
        return torch.cat([model(part).argmax(1) for part in x.split(BATCH)])


def attack_batches(
    model: Classifier, x: Tensor, label_N: Tensor, attack: Attack, report_progress: Progress = no_progress
) -> Tensor:
    """Adversarial examples, batch by batch; samples that are misclassified already stay unchanged."""
    adversarial, correct = x.clone(), (predict_classes(model, x) == label_N).nonzero()[:, 0]
    for i, index in enumerate(correct.split(BATCH)):
        adversarial[index] = attack(model, x[index], label_N[index])
        report_progress(min((i + 1) * BATCH, len(correct)), len(correct))
    return adversarial


def robust_accuracy(
    model: Classifier, x: Tensor, label_N: Tensor, attack: Attack | None, report_progress: Progress = no_progress
) -> float:
    """Accuracy under an attack; without one, the accuracy on clean samples."""
    adversarial = x if attack is None else attack_batches(model, x, label_N, attack, report_progress)
    return (predict_classes(model, adversarial) == label_N).double().mean().item()


class RobustnessCurve(NamedTuple):
    """Robust accuracy over eps, and the adversarial examples at the threat model's eps."""

    eps: Sequence[float]
    accuracy: Sequence[float]
    """robust accuracy at each eps"""
    x: Tensor
    adversarial: Tensor
    label: Tensor
    predicted: Tensor
    """predicted classes of the clean samples"""
    predicted_adversarial: Tensor
    """predicted classes of the adversarial examples"""


def robustness_curve(
    model: Classifier, x: Tensor, label_N: Tensor, attack: PGD, report_progress: Progress = no_progress
) -> RobustnessCurve:
    """Attack with growing eps and return the robust accuracy at each."""
    left = torch.arange(len(x))
    eps, accuracy = [fraction * attack.threat.eps for fraction in EPS_FRACTIONS], []
    adversarial = x.clone()
    for i, value in enumerate(eps):
        stronger: Any = replace(attack, threat=replace(attack.threat, eps=value))
        tried = attack_batches(model, x[left], label_N[left], stronger) if value else x[left]
        correct = predict_classes(model, tried) == label_N[left]
        if value <= attack.threat.eps:
            adversarial[left] = tried
        left = left[correct]
        accuracy.append(len(left) / max(1, len(x)))
        report_progress(i + 1, len(eps))
    predicted, predicted_adversarial = predict_classes(model, x), predict_classes(model, adversarial)
    return RobustnessCurve(eps, accuracy, x, adversarial, label_N, predicted, predicted_adversarial)
