"""Compares a network that overfits with four regularized ones."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.learner import Learner
from engram.core.registry import register
from engram.core.seeding import generator
from engram.data.augment import Augment
from engram.data.dataset import Data, Split
from engram.data.loaders import BatchLoader
from engram.foundations.base import TINY, ImageClassifier
from engram.foundations.regularization import plots
from engram.foundations.regularization.learner import RegularizationLearner
from engram.foundations.regularization.model import REGULARIZERS, Regularization
from engram.plots.figure import Figure
from engram.training.learner import GradientLearner
from engram.training.optimizer import OptimizerConfig

VALID_ITEMS = 2000
"""validation images for early stopping"""


@register
@dataclass(frozen=True, kw_only=True)
class RegularizationRecipe(ImageClassifier[Regularization]):
    """Overfitting on few images, and how early stopping, weight decay, dropout and augmentation reduce it."""

    name: ClassVar[str] = "regularization"
    title: ClassVar[str] = "Overfitting and regularization"
    predicts: ClassVar[bool] = False
    Model: ClassVar[type[nn.Module]] = Regularization
    best: ClassVar[tuple[str, str]] = ("valid_best", "max")
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": TINY | {"hidden": (32,), "train_items": 100, "batch": 32, "valid_every": 5}
    }

    data: str = "mnist"
    steps: int = 2000
    eval_every: int = 200
    batch: int = 100
    train_items: Annotated[int, Ge(2)] = 1000
    """number of training images: few, so that the network overfits"""
    model: Regularization.Config = field(default_factory=Regularization.Config)
    weight_decay: Annotated[float, Ge(0)] = 2.0
    """weight-decay coefficient (λ), used only by the weight-decay network"""
    augment: Augment = field(default_factory=lambda: Augment(shift=2, rotate=10.0))
    """data augmentation, used only by the augmentation network"""
    valid_every: Annotated[int, Ge(1)] = 50
    """steps between validations for early stopping"""
    lr: Annotated[float, Ge(0)] = 1e-3
    """learning rate of all networks"""

    def training_subset(self, data: Data) -> Split:
        """Return the few training images."""
        chosen = torch.randperm(len(data.train), generator=generator(self.seed, "items"))[: self.train_items]
        return Split({name: data.train[name][chosen] for name in ("image", "label")})

    def learner(self, data: Data) -> RegularizationLearner:
        model: Any = self.init_model(data)
        plain = OptimizerConfig(optimizer="adamw", lr=self.lr, weight_decay=0.0, schedule="constant", warmup=0.0)
        learners = {
            name: GradientLearner(
                model.nets[name],
                self.loss,
                replace(plain, weight_decay=self.weight_decay) if name == "weight_decay" else plain,
                self.steps,
            )
            for name in REGULARIZERS
            if name != "early_stopping"
        }
        valid = {"image": data.valid["image"][:VALID_ITEMS].float() / 255, "label": data.valid["label"][:VALID_ITEMS]}
        return RegularizationLearner(model, learners, valid, self.valid_every)

    def batches(self, data: Data) -> BatchLoader:
        def prepare(batch: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
            image = batch["image"].float().div_(255)
            return {"image": image, "label": batch["label"], "augmentation.image": self.augment(image, generator)}

        return BatchLoader(self.training_subset(data), self.batch, generator(self.seed, "batches"), prepare)

    def loss_and_accuracy(self, model: Any, split: Split) -> tuple[Tensor, Tensor]:
        """Return loss and accuracy of every network."""
        with torch.no_grad():
            logits = torch.cat([model(part.float() / 255) for part in split["image"].split(500)], 1)
        label = split["label"]
        loss = torch.stack([F.cross_entropy(net, label) for net in logits])
        return loss, (logits.argmax(2) == label).double().mean(1)

    def evaluate(self, learner: Learner[Regularization], data: Data, split: str) -> dict[str, float]:
        loss, accuracy = self.loss_and_accuracy(learner.model, data[split])
        found = {"best": accuracy.max().item()}
        for i, name in enumerate(REGULARIZERS):
            found |= {f"{name}_loss": loss[i].item(), f"{name}_accuracy": accuracy[i].item()}
        return found

    def figures(self, learner: Learner[Regularization], data: Data) -> Iterator[Figure]:
        model: Any = learner.model
        train, test = (
            self.loss_and_accuracy(model, self.training_subset(data)),
            self.loss_and_accuracy(model, data.test),
        )
        yield plots.accuracies(REGULARIZERS, train[1], test[1])
        yield plots.losses(REGULARIZERS, train[0], test[0])
        yield plots.weights({name: model.nets[name].layers[0].weight.detach() for name in REGULARIZERS})

    def trace(self, model: Regularization, data: Data, item: int) -> str:
        return self.trace_networks(REGULARIZERS, model, data, item)

    def classifier(self, model: Regularization, data: Data) -> Callable[[Tensor], Tensor]:
        """Return the network with the highest validation accuracy."""
        _, accuracy = self.loss_and_accuracy(model, data.valid)
        best: Any = model.nets[REGULARIZERS[int(accuracy.argmax())]]
        return best  # type: ignore[no-any-return]
