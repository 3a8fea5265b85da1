"""How much a classifier withstands.

    natural accuracy     part of things that are taken for what they are                                           (1)
    robust accuracy      part of things for which no attack within eps was found                                   (2)

(2) is an upper bound: a better attack may find what this one did not. What is fooled at one eps is fooled at every
larger one, so that the curve over eps attacks only what has withstood so far.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engram.robustness.attacks import PGD, Attack, Classifier

AT_ONCE = 250
PARTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5)
"""of eps, for the curve"""

Told = Callable[[int, int], None]
"""is told how many of how many are done"""


def nobody(done: int, all_: int) -> None:
    """Is told, and says nothing."""


def answers(model: Classifier, x: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.cat([model(part).argmax(1) for part in x.split(AT_ONCE)])


def attacked(model: Classifier, x: Tensor, label_N: Tensor, attack: Attack, told: Told = nobody) -> Tensor:
    """Attacked things, batch by batch; what is taken for something else as it is stays as it is."""
    moved, right = x.clone(), (answers(model, x) == label_N).nonzero()[:, 0]
    for i, index in enumerate(right.split(AT_ONCE)):
        moved[index] = attack(model, x[index], label_N[index])
        told(min((i + 1) * AT_ONCE, len(right)), len(right))
    return moved


def withstood(model: Classifier, x: Tensor, label_N: Tensor, attack: Attack | None, told: Told = nobody) -> float:
    """(1) without an attack, (2) with one."""
    moved = x if attack is None else attacked(model, x, label_N, attack, told)
    return (answers(model, moved) == label_N).double().mean().item()


class Examination(NamedTuple):
    """What an attack did."""

    eps: Sequence[float]
    accuracy: Sequence[float]
    """(2) at each eps"""
    x: Tensor
    moved: Tensor
    """at the attack's own eps"""
    label: Tensor
    before: Tensor
    """what things are taken for"""
    after: Tensor


def examine(model: Classifier, x: Tensor, label_N: Tensor, attack: PGD, told: Told = nobody) -> Examination:
    """The curve over eps, and what happens at the attack's own."""
    left = torch.arange(len(x))
    eps, accuracy = [part * attack.threat.eps for part in PARTS], []
    moved = x.clone()
    for i, value in enumerate(eps):
        stronger: Any = replace(attack, threat=replace(attack.threat, eps=value))
        tried = attacked(model, x[left], label_N[left], stronger) if value else x[left]
        stands = answers(model, tried) == label_N[left]
        if value <= attack.threat.eps:
            moved[left] = tried
        left = left[stands]
        accuracy.append(len(left) / max(1, len(x)))
        told(i + 1, len(eps))
    return Examination(eps, accuracy, x, moved, label_N, answers(model, x), answers(model, moved))
