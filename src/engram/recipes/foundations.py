"""Back-propagation by hand and by an expression graph: the same perceptron, its gradients made in two ways."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import nn

from engram.autodiff import Var
from engram.autodiff.parse import Expression, ExpressionError
from engram.core.errors import EngramError
from engram.core.learner import Learner
from engram.core.registry import recipe
from engram.data.dataset import Data
from engram.figures import backprop as views
from engram.figures.expression import graph
from engram.figures.figure import Figure
from engram.models.backprop import FUNCTIONS, WAYS, Plain, expression
from engram.models.mlp import MLP
from engram.recipes.classify import TINY, Labelled

NEURON = "tanh(w*x + b)"


@dataclass(frozen=True, kw_only=True)
class ByOneself(Labelled):
    """A perceptron that learns without torch's gradients."""

    Model: ClassVar[type[nn.Module]] = MLP
    way: ClassVar[str]

    steps: int = 4000
    every: int = 400
    model: MLP.Config = field(default_factory=MLP.Config)
    lr: float = 0.1
    """learning rate at the start (kappa), which falls linearly to zero"""
    momentum: float = 0.9
    """how much of the last update is kept (beta)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.lr >= 0:
            raise EngramError(f"lr must not be negative or NaN, and is {self.lr}.")
        if not 0 <= self.momentum < 1:
            raise EngramError(f"momentum is a part, at least 0 and below 1, not {self.momentum}.")
        if self.model.dropout:
            raise EngramError(f"{self.name} knows no dropout: leave it out.")
        if self.model.activation not in FUNCTIONS:
            raise EngramError(f"{self.model.activation} has no slope to learn by: take {', '.join(FUNCTIONS)}.")

    def learner(self, data: Data) -> Plain:
        model = self.fresh(data)
        assert isinstance(model, MLP)
        return Plain(model, self.way, self.lr, self.momentum, self.steps)

    def figures(self, learner: Learner, data: Data) -> Iterator[Figure]:
        model: Any = learner.model
        image, label = data.test["image"][: self.batch].float() / 255, data.test["label"][: self.batch]
        yield views.layer_by_layer({name: way(model, image, label) for name, way in WAYS.items()})
        yield from self.own_figures(model, data)
        yield from super().figures(learner, data)

    def own_figures(self, model: MLP, data: Data) -> Iterator[Figure]:
        """Views of this way alone."""
        return iter(())


@recipe
@dataclass(frozen=True, kw_only=True)
class BackpropRecipe(ByOneself):
    """A perceptron learns by back-propagation written out in matrices, layer by layer."""

    name: ClassVar[str] = "backprop"
    title: ClassVar[str] = "Back-propagation by hand"
    notes: ClassVar[str] = "003 §8"
    way: ClassVar[str] = "hand"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"tiny": TINY}


@dataclass(frozen=True, kw_only=True)
class Typed:
    """What `engram look` draws: an expression."""

    expression: str = NEURON
    """of numbers, names, + - * / ^ and functions such as sin, exp, tanh, relu"""
    at: tuple[float, ...] = ()
    """values of its names, in the order of the alphabet; 1, 2, 3 … if not given"""
    item: int = -1
    """draw the loss of this test picture instead"""


@recipe
@dataclass(frozen=True, kw_only=True)
class AutodiffRecipe(ByOneself):
    """A perceptron is an expression of Vars on NumPy, which knows its own gradients."""

    name: ClassVar[str] = "autodiff"
    title: ClassVar[str] = "Auto-differentiation"
    notes: ClassVar[str] = "003 §9–10"
    way: ClassVar[str] = "graph"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"tiny": TINY}
    Subject: ClassVar[type] = Typed

    def own_figures(self, model: MLP, data: Data) -> Iterator[Figure]:
        yield graph(self.loss_graph(model, data, 0), "Expression graph: the loss of a test picture")
        yield graph(typed(NEURON, (0.5, -1.0, 2.0)), f"Expression graph: {NEURON}")

    def loss_graph(self, model: Any, data: Data, item: int) -> Var:
        """The expression that learning goes back through, for one picture."""
        image, label = data.test["image"][item : item + 1].float() / 255, data.test["label"][item : item + 1]
        return expression(model, image, label)[0]

    def look(self, model: nn.Module, data: Data, subject: Any) -> tuple[str, list[Figure]]:
        if subject.item >= 0:
            said = self.probe(model, data, subject.item)
            return said, [graph(self.loss_graph(model, data, subject.item))]
        return subject.expression, [graph(typed(subject.expression, subject.at))]


def typed(text: str, values: tuple[float, ...]) -> Var:
    """An expression of Vars."""
    try:
        function = Expression(text)
        names = function.names
        if not names:
            raise EngramError(f"«{text}» has no names, and so nothing to take a gradient of.")
        if values and len(values) != len(names):
            raise EngramError(f"«{text}» has {len(names)} names, {', '.join(names)}, and {len(values)} values came.")
        at = values or tuple(range(1, len(names) + 1))
        y = function(**{name: Var(float(value), name) for name, value in zip(names, at, strict=True)})
    except ExpressionError as error:
        raise EngramError(str(error)) from None
    if not isinstance(y, Var):
        raise EngramError(f"«{text}» has no gradient.")
    return y
