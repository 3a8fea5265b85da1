"""Attacks on what a run has learnt: any classifier of pictures."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.figures import page
from engram.figures import robustness as views
from engram.figures.figure import Figure
from engram.recipes.classify import Labelled
from engram.recipes.trades import answering
from engram.robustness.attacks import PGD, Guess, Norm, Step, Threat
from engram.robustness.evaluation import attacked, examine, withstood
from engram.robustness.minimal import minimal

AT_ONCE = 100
Telling = Callable[[str, int, int], None]
"""is told what is being done, and how many of how many are done"""


@dataclass(frozen=True, kw_only=True)
class Assault:
    """How a classifier is attacked."""

    norm: Norm = "linf"
    """how a change is measured: its largest number, or its length"""
    eps: float = 0.1
    """the largest change, of pixels from 0 to 1"""
    attack_steps: int = 40
    """steps of PGD"""
    restarts: int = 1
    """attempts of PGD"""
    count: int = 500
    """test pictures that are attacked"""
    smallest: int = 100
    """of which so many are changed as little as possible; 0 leaves that out"""
    by: str = ""
    """another run, whose gradients are used instead (transfer)"""
    seed: int = 0
    """number that all randomness starts from"""


def assault(run: Any, how: Assault, by: Any, told: Telling) -> tuple[list[dict[str, Any]], Path]:
    """A row for each attack, and a page with what they did."""
    if not isinstance(run.recipe, Labelled):
        raise EngramError(f"{run.recipe.name} is no classifier of pictures: there is nothing to attack.")
    for name in ("count", "attack_steps", "restarts"):
        if getattr(how, name) < 1:
            raise EngramError(f"{name.replace('_', '-')} must be at least 1, not {getattr(how, name)}.")
    model, source = ready(run), ready(by) if by is not None else ready(run)
    threat, random = Threat(norm=how.norm, eps=how.eps), generator(how.seed, "attack")
    x, label = run.data.test["image"][: how.count].float() / 255, run.data.test["label"][: how.count]
    pgd = PGD(threat=threat, steps=how.attack_steps, restarts=how.restarts, generator=random)
    attacks: dict[str, Any] = {
        "none": None,
        "chance": Guess(threat=threat, generator=random),
        "one step": Step(threat=threat),
        f"PGD-{how.attack_steps}": pgd,
    }
    rows: list[dict[str, Any]] = []
    for name, attack in attacks.items():
        tell = partial(told, name)
        if attack is None or by is None or name == "chance":
            accuracy = withstood(model, x, label, attack, tell)
        else:
            accuracy = withstood(model, attacked(source, x, label, attack, tell), label, None)
        rows.append({"attack": name, "accuracy": accuracy, "norm": how.norm, "eps": how.eps if attack else 0.0})
    found = examine(model, x, label, pgd, partial(told, "curve over eps"))
    figures = [views.curve({run.recipe.name: found}, threat), views.gallery(found, run.data.classes)]
    figures.append(views.classes(found, run.data.classes))
    if how.smallest:
        told("smallest changes", 0, how.smallest)
        rows.append(least(model, x[: how.smallest], label[: how.smallest], how, figures))
    title = f"{run.recipe.title}, under attack"
    said = f"{run.recipe.name} · {len(x)} test pictures · {how.norm} up to {how.eps:g}"
    return rows, run.folder.write("attack.html", page.page(title, said, page.figures(figures)))


def least(model: Any, x: Any, label: Any, how: Assault, figures: list[Figure]) -> dict[str, Any]:
    """The smallest change that is enough, picture by picture."""
    sizes = torch.cat([
        minimal(model, a, b, norm=how.norm).norm_B for a, b in zip(x.split(AT_ONCE), label.split(AT_ONCE), strict=True)
    ])  # fmt: skip
    figures.append(views.distances(sizes, how.norm))
    middle = sizes.median().item()
    return {"attack": "smallest change, median", "accuracy": "", "norm": how.norm, "eps": middle}


def ready(run: Any) -> Any:
    model: nn.Module = run.learner.model
    return answering(model.eval())
