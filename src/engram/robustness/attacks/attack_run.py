"""Attacks on the image classifier of a run.

Accuracy under each attack, and a page of adversarial examples.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
from annotated_types import Ge
from torch import Tensor, nn

from engram.core.config import Settings
from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.foundations.base import ImageClassifier
from engram.hub.classify import class_scores
from engram.plots import page
from engram.plots.figure import Figure
from engram.robustness import plots as views
from engram.robustness.attacks.evaluation import attack_batches, robust_accuracy, robustness_curve
from engram.robustness.attacks.methods import FGSM, PGD, Norm, RandomNoise, ThreatModel
from engram.robustness.attacks.minimal_norm import minimal_norm_attack

BATCH = 100
"""images per batch of the minimal-norm attack"""
Report = Callable[[str, int, int], None]
"""receives the name of the attack, the number of finished items and their total"""


@dataclass(frozen=True, kw_only=True)
class AttackArgs(Settings):
    """Flags of `engram attack`."""

    norm: Norm = "linf"
    """norm of the perturbation: linf (largest change of a pixel) or l2 (Euclidean length)"""
    eps: Annotated[float, Ge(0)] = 0.1
    """largest norm of the perturbation, for pixels from 0 to 1"""
    attack_steps: Annotated[int, Ge(1)] = 40
    """steps of PGD"""
    restarts: Annotated[int, Ge(1)] = 1
    """random restarts of PGD"""
    count: Annotated[int, Ge(1)] = 500
    """test images attacked, the first ones; their accuracy is not that of the whole test split"""
    minimal: Annotated[int, Ge(0)] = 100
    """test images for the minimal-norm attack; 0 skips it"""
    surrogate: str = ""
    """another run, whose gradients are used instead (transfer attack)"""
    seed: int = 0
    """random seed"""


def attack_run(
    run: Any, args: AttackArgs, surrogate: Any, report_progress: Report
) -> tuple[list[dict[str, Any]], Path]:
    """Run all attacks; return a row for each, and the path of attack.html in the run folder."""
    if not isinstance(run.recipe, ImageClassifier):
        raise EngramError(f"{run.recipe.name} is no image classifier: there is nothing to attack.")
    model = classifier_of(run)
    threat, random = ThreatModel(norm=args.norm, eps=args.eps), generator(args.seed, "attack")
    x, label = run.data.test["image"][: args.count].float() / 255, run.data.test["label"][: args.count]
    pgd = PGD(threat=threat, steps=args.attack_steps, restarts=args.restarts, generator=random)
    attacks: dict[str, Any] = {
        "none": None,
        "random noise": RandomNoise(threat=threat, generator=random),
        "FGSM": FGSM(threat=threat),
        f"PGD-{args.attack_steps}": pgd,
    }
    rows: list[dict[str, Any]] = []
    for name, attack in attacks.items():
        report = partial(report_progress, name)
        if attack is None or surrogate is None or name == "random noise":
            accuracy = robust_accuracy(model, x, label, attack, report)
        else:
            transferred = attack_batches(classifier_of(surrogate), x, label, attack, report)
            accuracy = robust_accuracy(model, transferred, label, None)
        eps = args.eps if attack else 0.0
        rows.append({"attack": name, "accuracy": accuracy, "norm": args.norm, "eps": eps, "images": len(x)})
    curve = robustness_curve(model, x, label, pgd, partial(report_progress, "curve over eps"))
    figures = [views.robustness_curves({run.recipe.name: curve}, threat), views.gallery(curve, run.data.classes)]
    figures.append(views.class_accuracy(curve, run.data.classes))
    if args.minimal:
        report_progress("minimal norm", 0, args.minimal)
        rows.append(minimal_norm_row(model, x[: args.minimal], label[: args.minimal], args.norm, figures))
    subtitle = f"{run.recipe.name} · {len(x)} test images · {args.norm} up to {args.eps:g}"
    content = page.page(f"{run.recipe.title}: adversarial attacks", subtitle, page.figures(figures))
    return rows, run.folder.write("attack.html", content)


def minimal_norm_row(model: Any, x: Tensor, label: Tensor, norm: Norm, figures: list[Figure]) -> dict[str, Any]:
    """Run the minimal-norm attack, add its histogram to `figures`, return the row with its median norm."""
    batches = zip(x.split(BATCH), label.split(BATCH), strict=True)
    norm_N = torch.cat([minimal_norm_attack(model, part, label_B, norm=norm).norm_B for part, label_B in batches])
    figures.append(views.norm_histogram(norm_N, norm))
    eps = norm_N.median().item()
    return {"attack": "minimal norm (median)", "accuracy": "", "norm": norm, "eps": eps, "images": len(x)}


def classifier_of(run: Any) -> Any:
    """Model of a run in evaluation mode, as a function from images to the logits of all classes."""
    model: nn.Module = run.learner.model
    return class_scores(model.eval())
