"""Recipe of backpropagation by matrix products."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Lt
from torch import nn

from engram.core.errors import EngramError
from engram.core.learner import Learner
from engram.core.registry import register
from engram.data.dataset import Data
from engram.foundations.backprop.learner import METHODS, BackpropLearner
from engram.foundations.backprop.model import FUNCTIONS
from engram.foundations.backprop.plots import gradient_comparison
from engram.foundations.base import TINY, ImageClassifier
from engram.foundations.mlp.model import MLP
from engram.plots.figure import Figure


@register
@dataclass(frozen=True, kw_only=True)
class BackpropRecipe(ImageClassifier[MLP]):
    """Train a multi-layer perceptron by backpropagation written out in matrix products, layer by layer."""

    name: ClassVar[str] = "backprop"
    title: ClassVar[str] = "Backpropagation"
    Model: ClassVar[type[nn.Module]] = MLP
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"tiny": TINY}

    steps: int = 4000
    eval_every: int = 400
    model: MLP.Config = field(default_factory=MLP.Config)
    lr: Annotated[float, Ge(0)] = 0.1
    """initial learning rate, which falls linearly to 0"""
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    """momentum coefficient (beta); 0 is gradient descent without momentum"""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_differentiable(self.name, self.model)

    def learner(self, data: Data) -> BackpropLearner:
        return BackpropLearner(self.init_model(data), "hand", self.lr, self.momentum, self.steps)

    def figures(self, learner: Learner[MLP], data: Data) -> Iterator[Figure]:
        yield compare_gradients(learner.model, data, self.batch)
        yield from super().figures(learner, data)


def check_differentiable(name: str, model: MLP.Config) -> None:
    """Refuse dropout, and activation functions without a gradient."""
    if model.dropout:
        raise EngramError(f"{name} has no dropout: leave it out.")
    if model.activation not in FUNCTIONS:
        raise EngramError(f"{model.activation} has no gradient to learn by: take {', '.join(FUNCTIONS)}.")


def compare_gradients(model: MLP, data: Data, batch: int) -> Figure:
    """Gradients of one test batch by all methods, layer by layer."""
    image, label = data.test["image"][:batch].float() / 255, data.test["label"][:batch]
    return gradient_comparison({name: method(model, image, label) for name, method in METHODS.items()})
