"""Classifiers that learn to withstand attacks, and how well they do."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.learner import Batch, Descent, Gradient, Learner, Metrics
from engram.core.registry import must_be_item, recipe
from engram.core.seeding import generator
from engram.data.dataset import Data
from engram.figures import robustness as views
from engram.figures.figure import Figure
from engram.models.plain_cnn import PlainCNN
from engram.recipes.classify import TINY, Labelled
from engram.robustness.attacks import PGD, Threat
from engram.robustness.defence import Defence, loss
from engram.robustness.evaluation import Examination, examine, withstood

STRONGER = {"steps": 100, "restarts": 5}
MARGIN_ITEMS = 1000
SHOWN = 500


class Withstanding(Gradient):
    """The learner: `Gradient`, with a ball that grows while learning begins."""

    def __init__(self, model: nn.Module, threat: Threat, defence: Defence, descent: Descent, steps: int) -> None:
        self.threat, self.defence = threat, defence
        super().__init__(model, self.harder, descent, steps)

    def harder(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Metrics]:
        ramp = self.defence.ramp * self.steps
        part = min(1.0, (self.done + 1) / ramp) if ramp else 1.0
        return loss(model, batch, replace(self.threat, eps=part * self.threat.eps), self.defence)


@recipe
@dataclass(frozen=True, kw_only=True)
class TradesRecipe(Labelled):
    """A classifier learns to give the same answer all around a picture, and is attacked as hard as can be."""

    name: ClassVar[str] = "trades"
    title: ClassVar[str] = "TRADES: learning to withstand attacks"
    kind: ClassVar[str] = "robustness"
    notes: ClassVar[str] = "003 §34–35"
    Model: ClassVar[type[nn.Module]] = PlainCNN
    best: ClassVar[tuple[str, str]] = ("valid_robust", "max")
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": TINY | {"channels": (4, 8), "hidden": 16, "inner": 2, "batch": 32, "measured": 50, "eps": 0.1},
        "full": {"steps": 9000, "every": 900},
    }

    steps: int = 2000
    every: int = 500
    model: PlainCNN.Config = field(default_factory=PlainCNN.Config)
    threat: Threat = field(default_factory=Threat)
    """how far an attacker may go"""
    defence: Defence = field(default_factory=Defence)
    """how to learn to withstand it"""
    descent: Descent = field(
        default_factory=lambda: Descent(lr=1e-3, weight_decay=0.0, schedule="linear", warmup=0.02, hold=0.4)
    )
    """how to go downhill"""
    attack_steps: int = 40
    """steps of the attack in evaluation"""
    attack_alpha: float = 0.0
    """length of such a step; 0 is 2.5 eps / steps"""
    measured: int = 10_000
    """test pictures that are attacked; a twentieth of them on the way"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("attack_steps", "measured"):
            if getattr(self, name) < 1:
                raise EngramError(f"{name} must be at least 1, not {getattr(self, name)}.")
        if self.model.outputs == 1 and self.defence.kind == "none":
            raise EngramError("One output is for --kind trades or adversarial.")

    def load(self) -> Data:
        loaded = super().load()
        if self.model.outputs == 1 and len(loaded.classes) != 2:
            raise EngramError(f"One output tells two classes apart, and {self.data} has {len(loaded.classes)}.")
        return loaded

    def learner(self, data: Data) -> Withstanding:
        return Withstanding(self.fresh(data), self.threat, self.defence, self.descent, self.steps)

    def chance(self, image: Tensor, generator: torch.Generator) -> dict[str, Any]:
        return {"start": 2 * torch.rand(image.shape, generator=generator) - 1}

    def attack(self, **changes: Any) -> PGD:
        settings: dict[str, Any] = {"steps": self.attack_steps, "alpha": self.attack_alpha, **changes}
        return PGD(threat=self.threat, generator=generator(self.seed, "attack"), **settings)

    def evaluate(self, learner: Learner, data: Data, split: str) -> dict[str, float]:
        """Accuracy as pictures are and under attack; in the end also under one that is stronger than all before."""
        count = self.measured if split == "test" else max(1, self.measured // 20)
        image, label = data[split]["image"][-count:].float() / 255, data[split]["label"][-count:]
        model = answering(learner.model)
        natural = super().evaluate(learner, data, split) if self.model.outputs == 0 else {
            "accuracy": withstood(model, image, label, None)
        }  # fmt: skip
        robust = {"robust": withstood(model, image, label, self.attack())}
        if split != "test":
            return natural | robust
        some = image[-MARGIN_ITEMS:], label[-MARGIN_ITEMS:]
        usual = withstood(model, *some, self.attack())
        strong = withstood(model, *some, self.attack(**STRONGER, alpha=0.0))
        return natural | robust | {"robust_stronger": strong, "masking_margin": usual - strong}

    def figures(self, learner: Learner, data: Data) -> Iterator[Figure]:
        found = self.examined(answering(learner.model), data)
        yield views.curve({self.defence.kind: found}, self.threat)
        yield views.gallery(found, data.classes)
        yield views.classes(found, data.classes)
        if self.model.outputs == 0:
            yield from super().figures(learner, data)

    def examined(self, model: Any, data: Data) -> Examination:
        count = min(SHOWN, self.measured)
        image, label = data.test["image"][:count].float() / 255, data.test["label"][:count]
        return examine(model, image, label, self.attack())

    def probe(self, model: nn.Module, data: Data, item: int) -> str:
        if self.model.outputs == 0:
            return super().probe(model, data, item)
        must_be_item(item, len(data.test))
        p = model(data.test["image"][[item]].float() / 255)
        return f"test picture {item}, taken for «{data.classes[int(p[0, 0] > 0)]}»"


def answering(model: nn.Module) -> Any:
    """Logits of all classes, also where a single number tells two classes apart."""
    if getattr(model.config, "outputs", 0) != 1:
        return model

    def both(x: Tensor) -> Tensor:
        f_B1 = model(x)
        return torch.cat([-f_B1, f_B1], 1) / 2

    return both
