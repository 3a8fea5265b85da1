"""Overfitting as it happens, and four remedies beside it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.learner import Descent, Gradient, Learner
from engram.core.registry import Request, Sample, recipe
from engram.core.seeding import generator
from engram.data.augment import Augment
from engram.data.batches import Batches
from engram.data.dataset import Data, Split
from engram.figures import remedies as views
from engram.figures.figure import Figure
from engram.models.remedies import REMEDIES, Remedies, Remedying
from engram.recipes.classify import TINY, Labelled

HELD = 2000
SHOWN = 2000


@recipe
@dataclass(frozen=True, kw_only=True)
class OverfittingRecipe(Labelled):
    """A network learns too few pictures by heart; early stopping, weight decay, dropout and augmentation do not."""

    name: ClassVar[str] = "overfitting"
    title: ClassVar[str] = "Overfitting and its remedies"
    notes: ClassVar[str] = "003 §12"
    Model: ClassVar[type[nn.Module]] = Remedies
    best: ClassVar[tuple[str, str]] = ("valid_best", "max")
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": TINY | {"hidden": (32,), "items": 100, "batch": 32, "watch": 5}
    }

    data: str = "mnist"
    steps: int = 2000
    every: int = 200
    batch: int = 100
    items: int = 1000
    """training pictures that are learnt from, so few that they can be learnt by heart"""
    model: Remedies.Config = field(default_factory=Remedies.Config)
    decay: float = 2.0
    """weight decay of the network that has this remedy"""
    augment: Augment = field(default_factory=lambda: Augment(shift=2, rotate=10.0))
    """how pictures are varied for the network that has this remedy"""
    watch: int = 50
    """steps between two looks at held-out pictures, for early stopping"""
    lr: float = 1e-3
    """learning rate of all"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("items", 2), ("watch", 1)):
            if getattr(self, name) < least:
                raise EngramError(f"{name} must be at least {least}, not {getattr(self, name)}.")
        for name in ("decay", "lr"):
            if not getattr(self, name) >= 0:
                raise EngramError(f"{name} must not be negative or NaN, and is {getattr(self, name)}.")

    def few(self, data: Data) -> Split:
        chosen = torch.randperm(len(data.train), generator=generator(self.seed, "items"))[: self.items]
        return Split({name: data.train[name][chosen] for name in ("image", "label")})

    def learner(self, data: Data) -> Remedying:
        model: Any = self.fresh(data)
        plain = Descent(optimizer="adamw", lr=self.lr, weight_decay=0.0, schedule="constant", warmup=0.0)
        learners = {
            name: Gradient(
                model.nets[name],
                self.loss,
                replace(plain, weight_decay=self.decay) if name == "decay" else plain,
                self.steps,
            )
            for name in REMEDIES
            if name != "stopped"
        }
        held = {"image": data.valid["image"][:HELD].float() / 255, "label": data.valid["label"][:HELD]}
        return Remedying(model, learners, held, self.watch)

    def batches(self, data: Data) -> Batches:
        def prepare(batch: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
            image = batch["image"].float().div_(255)
            return {"image": image, "label": batch["label"], "augment.image": self.augment(image, generator)}

        return Batches(self.few(data), self.batch, generator(self.seed, "batches"), prepare)

    def measured(self, model: Any, split: Split) -> tuple[Tensor, Tensor]:
        """Loss and accuracy of every network."""
        with torch.no_grad():
            logits = torch.cat([model(part.float() / 255) for part in split["image"].split(500)], 1)
        label = split["label"]
        loss = torch.stack([F.cross_entropy(one, label) for one in logits])
        return loss, (logits.argmax(2) == label).double().mean(1)

    def evaluate(self, learner: Learner, data: Data, split: str) -> dict[str, float]:
        loss, accuracy = self.measured(learner.model, data[split])
        found = {"best": accuracy.max().item()}
        for i, name in enumerate(REMEDIES):
            found |= {f"{name}_loss": loss[i].item(), f"{name}_accuracy": accuracy[i].item()}
        return found

    def figures(self, learner: Learner, data: Data) -> Iterator[Figure]:
        model: Any = learner.model
        seen, unseen = self.measured(model, self.few(data)), self.measured(model, data.test)
        yield views.gaps(REMEDIES, seen[1], unseen[1])
        yield views.losses(REMEDIES, seen[0], unseen[0])
        yield views.weights({name: model.nets[name].layers[0].weight.detach() for name in REMEDIES})

    def probe(self, model: nn.Module, data: Data, item: int) -> str:
        return self.said_by_all(REMEDIES, model, data, item)

    def sample(self, learner: Learner, data: Data, request: Request) -> Sample:
        """Pictures of the test split and what the best network takes them for."""
        model: Any = learner.model
        _, accuracy = self.measured(model, data.valid)
        return self.answered(model.nets[REMEDIES[int(accuracy.argmax())]], data, request)
