"""Attack: a picture, how far it may be changed, and what a classifier takes it for then.   B = 1, K classes"""

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.lab.arrays import packed
from engram.lab.brought import must_be_small, picture, test_count, test_pictures
from engram.lab.desk import Answer, Models, ask
from engram.lab.instruments import INSTRUMENTS
from engram.recipes.attack import ready
from engram.robustness.attacks import PGD, Guess, Norm, Step, Threat
from engram.robustness.minimal import minimal

Kind = Literal["guess", "step", "pgd", "smallest"]
POINTS = 13
"""of the curve over eps, denser where it is small"""
MOST_STEPS = 100
HEAVY = 20_000_000
"""weights of a model for which hundreds of steps are too many to wait for"""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A classifier."""

    run: str = ""
    step: int = -1


@dataclass(frozen=True, kw_only=True)
class Way(Opened):
    """A picture, and how it is attacked."""

    item: int = 0
    """number of the test picture"""
    pixels: str = ""
    """a picture of one's own instead, bytes in base 64"""
    kind: Kind = "pgd"
    """guess, step (FGSM), pgd or smallest"""
    norm: Norm = "linf"
    steps: int = 20
    """of PGD"""
    target: int = -1
    """class that it shall be taken for; -1 is any other"""
    seed: int = 0

    def __post_init__(self) -> None:
        must_be_small(self.pixels)
        if not 1 <= self.steps <= MOST_STEPS:
            raise EngramError(f"steps must be from 1 to {MOST_STEPS}, not {self.steps}.")
        if not 0 <= self.seed < 2**31:
            raise EngramError(f"seed must be from 0 to 2^31 - 1, not {self.seed}.")
        if self.kind == "smallest" and self.target >= 0:
            raise EngramError("The smallest change has no target: it is to any other class.")


@dataclass(frozen=True, kw_only=True)
class Attacked(Way):
    eps: float = 0.1
    """the largest change"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.eps <= 1000:
            raise EngramError(f"eps must be from 0 to 1000, not {self.eps}.")


class Scene(NamedTuple):
    """Who is attacked with what."""

    model: Any
    x: Tensor
    truth: int
    """the class of a test picture; -1 where nobody knows it"""
    right: int
    """the class to be left: the truth, or what the model says without one"""
    weights: int
    """numbers that the model has learnt"""

    def must_be_light(self) -> None:
        if self.weights > HEAVY:
            raise EngramError(f"With {self.weights:,} weights this takes too long: it needs hundreds of steps.")


@ask("attack.about")
def about(asked: Opened, models: Models) -> Answer:
    """What can be attacked, and how far it makes sense to go."""
    run = opened(asked, models)
    config = run.learner.model.config
    threat = getattr(run.recipe, "threat", None)
    return {
        "classes": names(run, max(2, config.classes)),
        "count": test_count(run.data),
        "shape": list(config.shape),
        "largest": {norm: largest(norm, config.shape) for norm in ("linf", "l2")},
        "withstands": {"norm": threat.norm, "eps": threat.eps} if threat else None,
    }


@ask("attack")
def attack(asked: Attacked, models: Models) -> Generator[Answer, None, Answer]:
    """The changed picture, and the probability of each class before and after."""
    scene = staged(asked, models)
    if asked.kind == "smallest":
        moved = smallest(asked, scene)
    else:
        moved = yield from changed(asked, asked.eps, scene)
    change = moved - scene.x
    return {
        "x": packed(scene.x[0]), "moved": packed(moved[0]), "truth": scene.truth, "right": scene.right,
        "before": probabilities(scene.model, scene.x), "after": probabilities(scene.model, moved),
        "linf": Threat(norm="linf").size(change).item(), "l2": Threat(norm="l2").size(change).item(),
    }  # fmt: skip


@ask("attack.curve")
def curve(asked: Way, models: Models) -> Generator[Answer, None, Answer]:
    """The probabilities after attacks of growing size; the smallest change is looked for by PGD of every size."""
    scene = staged(asked, models)
    scene.must_be_light()
    for i in range(POINTS):
        eps = (i / (POINTS - 1)) ** 2 * largest(asked.norm, tuple(scene.x.shape[1:]))
        moved = yield from changed(asked, eps, scene)
        yield {"eps": eps, "p": probabilities(scene.model, moved)}
    return {"right": scene.right}


# ---------------------------------------------------------------------- the attacks


def changed(asked: Way, eps: float, scene: Scene) -> Generator[Answer, None, Tensor]:
    """The picture after an attack that may go as far as eps."""
    threat, random = Threat(norm=asked.norm, eps=eps), generator(asked.seed, "attack")
    label_B, targeted = torch.tensor([asked.target if asked.target >= 0 else scene.right]), asked.target >= 0
    if asked.kind == "step":
        return Step(threat=threat)(scene.model, scene.x, label_B, targeted=targeted)
    if asked.kind == "guess":
        return Guess(threat=threat, generator=random)(scene.model, scene.x, label_B, targeted=targeted)
    # A step at a time, so that others are heard between two; to the last, for the strongest change within eps
    moved = threat.anywhere(scene.x, random)
    one = PGD(threat=threat, steps=1, alpha=PGD(threat=threat, steps=asked.steps).length, random=False, early=False)
    for i in range(asked.steps):
        moved = one(scene.model, scene.x, label_B, targeted=targeted, start=moved)
        yield {"step": i + 1}
    return moved


def smallest(asked: Way, scene: Scene) -> Tensor:
    scene.must_be_light()
    found = minimal(scene.model, scene.x, torch.tensor([scene.right]), norm=asked.norm)
    if not math.isfinite(found.norm_B.item()):
        raise EngramError("No change was found that makes it err.")
    return found.x


def probabilities(model: Any, x: Tensor) -> list[float]:
    with torch.no_grad():
        p_K: Tensor = model(x)[0].softmax(0)
    return p_K.tolist()


# ---------------------------------------------------------------------- what is attacked


def opened(asked: Opened, models: Models) -> Any:
    run = models.open(asked.run, asked.step)
    if run.recipe.name not in INSTRUMENTS["attack"].recipes:
        raise EngramError(f"{run.recipe.name} is no classifier of pictures: there is nothing to attack.")
    return run


def staged(asked: Way, models: Models) -> Scene:
    run = opened(asked, models)
    model, truth = ready(run), -1
    if asked.pixels:
        x = picture(asked.pixels, run.learner.model.config.shape)
    else:
        x, truth = test_pictures(run.data, [asked.item]), int(run.data.test["label"][asked.item])
    p_K = probabilities(model, x)
    if asked.target >= len(p_K):
        raise EngramError(f"target must be a class from 0 to {len(p_K) - 1}, or -1 for any, not {asked.target}.")
    weights = sum(weight.numel() for weight in run.learner.model.parameters())
    return Scene(model, x, truth, truth if truth >= 0 else p_K.index(max(p_K)), weights)


def largest(norm: str, shape: tuple[int, ...]) -> float:
    """How far one goes at most: half of all that a pixel can be, or as long as a third of that for every pixel."""
    return 0.5 if norm == "linf" else round(math.sqrt(math.prod(shape)) / 3, 1)


def names(run: Any, count: int) -> list[str]:
    """A name of each class, also where a checkpoint has none."""
    known = [str(name) for name in run.data.classes]
    return known + [str(i) for i in range(len(known), count)]
