"""Learning to withstand attacks (note 003 §35; Madry et al. 2018; Zhang et al. 2019).   T = ±1, g(z) = log(1 + e^-z)

    min E[ max_x' E(f(x'), t) ]                                     adversarial training                           (1)
    min E[ g(f(X) T) + beta max_X' g(f(X) f(X')) ]                  TRADES for two classes, f a number             (2)
    min E[ E(f(x), t) + beta max_x' KL(p(x) | p(x')) ]              and for many, p = softmax f                    (3)

X' and x' are at most eps away. (1) asks that what is near a thing is of its class; (2) and (3) ask for the right class
of the thing itself, and for the same answer near it: beta is how much of the one is given for the other. The maximum is
looked for by PGD, in which the network answers as it will when it is used: its batch norms with the moments that they
have kept.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.learner import Batch, Metrics
from engram.robustness.attacks import PGD, Threat, cross_entropy

Kind = Literal["trades", "adversarial", "none"]


@dataclass(frozen=True, kw_only=True)
class Defence:
    """How to learn to withstand attacks."""

    kind: Kind = "trades"
    """trades; adversarial, learning from attacked things alone; or none"""
    beta: float = 6.0
    """weight of an answer that stays the same, beside the right answer (TRADES)"""
    inner: int = 10
    """steps of the attack that is learnt from"""
    alpha: float = 0.0
    """length of such a step; 0 is 2.5 eps / inner"""
    ramp: float = 0.2
    """part of all steps in which eps grows from zero"""

    def __post_init__(self) -> None:
        if self.inner < 1:
            raise EngramError(f"inner must be at least 1, not {self.inner}.")
        for name in ("beta", "alpha"):
            if not getattr(self, name) >= 0:
                raise EngramError(f"{name} must not be negative or NaN, and is {getattr(self, name)}.")
        if not 0 <= self.ramp < 1:
            raise EngramError(f"ramp is a part of all steps, at least 0 and below 1, not {self.ramp}.")


def divergence(logits_BK: Tensor, natural_BK: Tensor) -> Tensor:
    """KL(p(x) | p(x')), one number for each; with one output for two classes, g(f(x) f(x'))."""
    if logits_BK.shape[1] == 1:
        return F.softplus(-natural_BK[:, 0] * logits_BK[:, 0])  # (2)
    p_BK, log_q_BK = natural_BK.softmax(1), logits_BK.log_softmax(1)
    return F.kl_div(log_q_BK, p_BK, reduction="none").sum(1)  # (3)


def right(logits_BK: Tensor, label_B: Tensor) -> Tensor:
    """How wrong an answer is: cross-entropy; with one output for two classes, g(f(x) T)."""
    if logits_BK.shape[1] == 1:
        return F.softplus(-logits_BK[:, 0] * (2 * label_B - 1))  # (2)
    return cross_entropy(logits_BK, label_B)


def attacked(model: nn.Module, x: Tensor, target: Tensor, start: Tensor, attack: PGD) -> Tensor:
    """The worst that PGD finds near x, while the network answers as in use."""
    learning = model.training
    model.eval()
    found = attack(model, x, target, start=start)
    model.train(learning)
    return found


def loss(model: nn.Module, batch: Batch, threat: Threat, defence: Defence) -> tuple[Tensor, Metrics]:
    """(1), (2) or (3); the batch holds things x, their labels and from where in the ball attacks start (-1 to 1)."""
    x, label_B = batch["image"], batch["label"]
    settings: dict[str, Any] = {"threat": threat, "steps": defence.inner, "alpha": defence.alpha, "early": False}
    if defence.kind == "none":
        natural_BK = model(x)
        return right(natural_BK, label_B).mean(), {"accuracy": hits(natural_BK, label_B)}
    if defence.kind == "adversarial":
        near = attacked(model, x, label_B, began(x, batch["start"], threat, 1.0), PGD(loss=right, **settings))
        worst_BK = model(near)
        return right(worst_BK, label_B).mean(), {"robust": hits(worst_BK, label_B)}  # (1)
    with torch.no_grad():
        learning = model.training
        model.eval()
        answer_BK = model(x)
        model.train(learning)
    near = attacked(model, x, answer_BK, began(x, batch["start"], threat, 0.1), PGD(loss=divergence, **settings))
    natural_BK, worst_BK = model(x), model(near)
    total_B = right(natural_BK, label_B) + defence.beta * divergence(worst_BK, natural_BK)  # (2), (3)
    return total_B.mean(), {"accuracy": hits(natural_BK, label_B), "robust": hits(worst_BK, label_B)}


def began(x: Tensor, start: Tensor, threat: Threat, part: float) -> Tensor:
    """A place in the inner part of the ball."""
    return threat.project(x, x + part * threat.eps * start)


def hits(logits_BK: Tensor, label_B: Tensor) -> Tensor:
    said = (logits_BK[:, 0] > 0).long() if logits_BK.shape[1] == 1 else logits_BK.argmax(1)
    return (said.detach() == label_B).float().mean()
