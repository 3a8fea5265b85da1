"""Instrument of adversarial attacks.

Attack an image within eps and see how the class probabilities change.
"""

import math
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import torch
from annotated_types import Ge, Le, Lt
from torch import Tensor

from engram.core.config import Settings
from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.plots.arrays import pack_array
from engram.plots.image_input import check_pixels, count_test_images, decode_pixels, get_test_images
from engram.plots.instrument import INSTRUMENTS, Models, Response, endpoint, register_instrument
from engram.robustness.attacks.attack_run import classifier_of
from engram.robustness.attacks.methods import FGSM, PGD, Norm, RandomNoise, ThreatModel
from engram.robustness.attacks.minimal_norm import minimal_norm_attack

register_instrument(
    "attack",
    title="Adversarial attacks",
    about="Attack a test image or your own drawing; see how small an ε changes the predicted class.",
    recipes=("cnn", "mlp", "resnet", "trades", "vit"),
    folder=Path(__file__).parent,
)

Method = Literal["noise", "fgsm", "pgd", "minimal"]
CURVE_POINTS = 13
"""points of the curve over eps, denser where eps is small"""
MAX_STEPS, MAX_EPS = 100, 1000
MAX_PARAMETERS = 20_000_000
"""size of a model for which hundreds of gradient steps take too long"""


@dataclass(frozen=True, kw_only=True)
class RunArgs(Settings):
    """A run of an image classifier."""

    run: str = ""
    step: int = -1


@dataclass(frozen=True, kw_only=True)
class CurveArgs(RunArgs):
    """An image and an attack, without its eps."""

    item: int = 0
    """index of the test image"""
    pixels: str = ""
    """user image instead of a test image, bytes in base64"""
    method: Method = "pgd"
    """noise, fgsm, pgd or minimal (minimal norm)"""
    norm: Norm = "linf"
    steps: Annotated[int, Ge(1), Le(MAX_STEPS)] = 20
    """steps of PGD"""
    target: int = -1
    """target class; -1 is an untargeted attack"""
    seed: Annotated[int, Ge(0), Lt(2**31)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_pixels(self.pixels)
        if self.method == "minimal" and self.target >= 0:
            raise EngramError("The minimal-norm attack is untargeted: leave the target out.")


@dataclass(frozen=True, kw_only=True)
class AttackArgs(CurveArgs):
    """An image and an attack."""

    eps: Annotated[float, Ge(0), Le(MAX_EPS)] = 0.1
    """largest norm of the perturbation"""


class Attacked(NamedTuple):
    """Classifier and image of an attack."""

    model: Any
    x: Tensor
    truth: int
    """class of a test image; -1 for a user image"""
    label: int
    """class to change: the true one, or the predicted one of a user image"""
    parameters: int

    def check_size(self) -> None:
        """Refuse attacks of hundreds of steps on a large model."""
        if self.parameters > MAX_PARAMETERS:
            raise EngramError(f"A model of {self.parameters:,} parameters is too large for hundreds of gradient steps.")


@endpoint("attack.about")
def about(args: RunArgs, models: Models) -> Response:
    """Return classes, image shape, number of test images and ranges of eps of a classifier."""
    run = open_run(args, models)
    config = run.learner.model.config
    threat = getattr(run.recipe, "threat", None)
    return {
        "classes": class_names(run, max(2, config.classes)),
        "count": count_test_images(run.data),
        "shape": list(config.shape),
        "max_eps": {norm: max_eps(norm, config.shape) for norm in ("linf", "l2")},
        "threat": {"norm": threat.norm, "eps": threat.eps} if threat else None,
    }


@endpoint("attack")
def attack(args: AttackArgs, models: Models) -> Generator[Response, None, Response]:
    """Return the adversarial example, and the class probabilities of the image before and after."""
    attacked = prepare(args, models)
    if args.method == "minimal":
        adversarial = minimal_norm(args, attacked)
    else:
        adversarial = yield from perturb(args, args.eps, attacked)
    change = adversarial - attacked.x
    return {
        "x": pack_array(attacked.x[0]), "adversarial": pack_array(adversarial[0]),
        "truth": attacked.truth, "label": attacked.label,
        "before": probabilities(attacked.model, attacked.x), "after": probabilities(attacked.model, adversarial),
        "linf": ThreatModel(norm="linf").norms(change).item(), "l2": ThreatModel(norm="l2").norms(change).item(),
    }  # fmt: skip


@endpoint("attack.curve")
def curve(args: CurveArgs, models: Models) -> Generator[Response, None, Response]:
    """Yield the class probabilities under attacks of growing eps; for the minimal norm, those of PGD."""
    attacked = prepare(args, models)
    attacked.check_size()
    for i in range(CURVE_POINTS):
        eps = (i / (CURVE_POINTS - 1)) ** 2 * max_eps(args.norm, tuple(attacked.x.shape[1:]))
        adversarial = yield from perturb(args, eps, attacked)
        yield {"eps": eps, "p": probabilities(attacked.model, adversarial)}
    return {"label": attacked.label}


# ---------------------------------------------------------------------- attacks


def perturb(args: CurveArgs, eps: float, attacked: Attacked) -> Generator[Response, None, Tensor]:
    """Return the adversarial example within eps; PGD yields after each step."""
    threat, random = ThreatModel(norm=args.norm, eps=eps), generator(args.seed, "attack")
    label_B, targeted = torch.tensor([args.target if args.target >= 0 else attacked.label]), args.target >= 0
    if args.method == "fgsm":
        return FGSM(threat=threat)(attacked.model, attacked.x, label_B, targeted=targeted)
    if args.method == "noise":
        return RandomNoise(threat=threat, generator=random)(attacked.model, attacked.x, label_B, targeted=targeted)
    # One step at a time, so that other requests are served in between; no early stop, for the strongest change
    adversarial = threat.random_start(attacked.x, random)
    alpha = PGD(threat=threat, steps=args.steps).alpha
    one_step = PGD(threat=threat, steps=1, step_size=alpha, random_start=False, early_stop=False)
    for i in range(args.steps):
        adversarial = one_step(attacked.model, attacked.x, label_B, targeted=targeted, start=adversarial)
        yield {"step": i + 1}
    return adversarial


def minimal_norm(args: CurveArgs, attacked: Attacked) -> Tensor:
    """Return the adversarial example of the smallest norm."""
    attacked.check_size()
    found = minimal_norm_attack(attacked.model, attacked.x, torch.tensor([attacked.label]), norm=args.norm)
    if not math.isfinite(found.norm_B.item()):
        raise EngramError("No adversarial example was found.")
    return found.x


def probabilities(model: Any, x: Tensor) -> list[float]:
    """Class probabilities of one image."""
    with torch.no_grad():
        p_K: Tensor = model(x)[0].softmax(0)
    return p_K.tolist()


# ---------------------------------------------------------------------- model and image


def open_run(args: RunArgs, models: Models) -> Any:
    """Open a run, and refuse recipes that do not classify images."""
    run = models.open(args.run, args.step)
    if run.recipe.name not in INSTRUMENTS["attack"].recipes:
        raise EngramError(f"{run.recipe.name} is no image classifier: there is nothing to attack.")
    return run


def prepare(args: CurveArgs, models: Models) -> Attacked:
    """Open the run, load the image and check the target."""
    run = open_run(args, models)
    model, truth = classifier_of(run), -1
    if args.pixels:
        x = decode_pixels(args.pixels, run.learner.model.config.shape)
    else:
        x, truth = get_test_images(run.data, [args.item]), int(run.data.test["label"][args.item])
    p_K = probabilities(model, x)
    if args.target >= len(p_K):
        raise EngramError(f"target must be a class from 0 to {len(p_K) - 1}, or -1 for any, not {args.target}.")
    parameters = sum(weight.numel() for weight in run.learner.model.parameters())
    return Attacked(model, x, truth, truth if truth >= 0 else p_K.index(max(p_K)), parameters)


def max_eps(norm: str, shape: tuple[int, ...]) -> float:
    """Largest eps of the sliders: 0.5 in L∞; in L2 a third of the length of an all-white image."""
    return 0.5 if norm == "linf" else round(math.sqrt(math.prod(shape)) / 3, 1)


def class_names(run: Any, count: int) -> list[str]:
    """Names of all classes; numbers where a checkpoint has no names."""
    known = [str(name) for name in run.data.classes]
    return known + [str(i) for i in range(len(known), count)]
