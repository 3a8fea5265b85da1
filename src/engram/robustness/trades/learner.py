r"""Adversarial training (Madry et al. 2018) and TRADES (Zhang et al. 2019).

    \min E[\max_{x'} L(f(x'), y)]                                      adversarial training                      (1)
    \min E[g(f(x) t) + \beta \max_{x'} g(f(x) f(x'))]                  TRADES for two classes, one output        (2)
    \min E[L(f(x), y) + \beta \max_{x'} KL(p(x) || p(x'))]             TRADES for K classes                      (3)

    Symbols:
        x, x'       image, adversarial example at most eps away from it
        f, p        logits, class probabilities softmax(f)
        y, t        class, and as a sign for two classes: -1 or 1
        L           cross-entropy
        g(z)        logistic loss log(1 + exp(-z))
        \beta       weight of the consistency of predictions
        B, K        batch, classes

Adversarial training requires the correct class for every point in the ball around an image; TRADES requires the correct
class for the image and the same prediction for every point in the ball, and beta trades robust accuracy against clean
accuracy. PGD searches the maximum with the model in evaluation mode: batch norms use their running moments.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.config import Settings
from engram.core.learner import Batch, Metrics
from engram.robustness.attacks.methods import PGD, ThreatModel, cross_entropy


@dataclass(frozen=True, kw_only=True)
class AdversarialTraining(Settings):
    """Objective of robust training, and the attack inside it."""

    objective: Literal["trades", "adversarial", "none"] = "trades"
    """trades; adversarial (cross-entropy of adversarial examples alone); or none (cross-entropy of clean images)"""
    beta: Annotated[float, Ge(0)] = 6.0
    """TRADES: weight of the divergence between clean and adversarial predictions"""
    inner_steps: Annotated[int, Ge(1)] = 10
    """PGD steps per training step"""
    inner_step_size: Annotated[float, Ge(0)] = 0.0
    """step size of these PGD steps; 0 is 2.5 eps / inner_steps"""
    eps_warmup: Annotated[float, Ge(0), Lt(1)] = 0.2
    """fraction of the training steps during which eps grows linearly from 0"""


def divergence(logits_BK: Tensor, clean_BK: Tensor) -> Tensor:
    """KL divergence of clean from adversarial predictions, B.

    With a single output, the logistic loss of f(x) f(x').
    """
    if logits_BK.shape[1] == 1:
        return F.softplus(-clean_BK[:, 0] * logits_BK[:, 0])  # (2)
    p_BK, log_q_BK = clean_BK.softmax(1), logits_BK.log_softmax(1)
    return F.kl_div(log_q_BK, p_BK, reduction="none").sum(1)  # (3)


def classification_loss(logits_BK: Tensor, label_B: Tensor) -> Tensor:
    """Cross-entropy, B; with a single output for two classes, the logistic loss."""
    if logits_BK.shape[1] == 1:
        return F.softplus(-logits_BK[:, 0] * (2 * label_B - 1))  # (2)
    return cross_entropy(logits_BK, label_B)


def attack_in_eval_mode(model: nn.Module, x: Tensor, target: Tensor, start: Tensor, attack: PGD) -> Tensor:
    """Adversarial examples of PGD against the model in evaluation mode."""
    training = model.training
    model.eval()
    adversarial = attack(model, x, target, start=start)
    model.train(training)
    return adversarial


def loss(model: nn.Module, batch: Batch, threat: ThreatModel, config: AdversarialTraining) -> tuple[Tensor, Metrics]:
    """Loss and metrics of a batch of images, labels and random starts (-1 to 1 for each pixel)."""
    x, label_B, start = batch["image"], batch["label"], batch["start"]
    settings: dict[str, Any] = {
        "threat": threat, "steps": config.inner_steps, "step_size": config.inner_step_size, "early_stop": False,
    }  # fmt: skip
    if config.objective == "none":
        clean_BK = model(x)
        return classification_loss(clean_BK, label_B).mean(), {"accuracy": accuracy(clean_BK, label_B)}
    if config.objective == "adversarial":
        attack = PGD(loss=classification_loss, **settings)
        near = attack_in_eval_mode(model, x, label_B, scaled_start(x, start, threat, 1.0), attack)
        worst_BK = model(near)
        total_B = classification_loss(worst_BK, label_B)
        return total_B.mean(), {"robust_accuracy": accuracy(worst_BK, label_B)}  # (1)
    with torch.no_grad():
        training = model.training
        model.eval()
        target_BK = model(x)
        model.train(training)
    attack = PGD(loss=divergence, **settings)
    near = attack_in_eval_mode(model, x, target_BK, scaled_start(x, start, threat, 0.1), attack)
    clean_BK, worst_BK = model(x), model(near)
    total_B = classification_loss(clean_BK, label_B) + config.beta * divergence(worst_BK, clean_BK)  # (2), (3)
    metrics = {"accuracy": accuracy(clean_BK, label_B), "robust_accuracy": accuracy(worst_BK, label_B)}
    return total_B.mean(), metrics


def scaled_start(x: Tensor, start: Tensor, threat: ThreatModel, fraction: float) -> Tensor:
    """Start of the attack: the random offset, scaled to a fraction of the ball."""
    return threat.project(x, x + fraction * threat.eps * start)


def accuracy(logits_BK: Tensor, label_B: Tensor) -> Tensor:
    """Accuracy of a batch; the sign of a single output tells two classes apart."""
    predicted_B = (logits_BK[:, 0] > 0).long() if logits_BK.shape[1] == 1 else logits_BK.argmax(1)
    return (predicted_B.detach() == label_B).float().mean()
