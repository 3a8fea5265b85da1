"""Recipe of automatic differentiation: a perceptron trained by an expression graph in NumPy."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Lt
from torch import nn

from engram.core.errors import EngramError
from engram.core.learner import Learner
from engram.core.recipe import InspectArgs
from engram.core.registry import register
from engram.data.dataset import Data
from engram.foundations.autodiff import Var
from engram.foundations.autodiff.parse import Expression, ExpressionError
from engram.foundations.autodiff.plots import graph
from engram.foundations.backprop.learner import BackpropLearner
from engram.foundations.backprop.model import loss_expression
from engram.foundations.backprop.recipe import check_differentiable, compare_gradients
from engram.foundations.base import TINY, ImageClassifier
from engram.foundations.mlp.model import MLP
from engram.plots.figure import Figure

NEURON = "tanh(w*x + b)"


@dataclass(frozen=True, kw_only=True)
class AutodiffInspectArgs(InspectArgs):
    """Flags of `engram inspect`: the expression whose graph is drawn."""

    expression: str = NEURON
    """expression of numbers, variables, + - * / ^ and functions such as sin, exp, tanh, relu"""
    at: tuple[float, ...] = ()
    """values of its variables in alphabetical order; 1, 2, 3, … if not given"""
    item: Annotated[int, Ge(-1)] = -1
    """index of a test image whose loss is drawn instead; -1 draws the expression"""


@register
@dataclass(frozen=True, kw_only=True)
class AutodiffRecipe(ImageClassifier[MLP]):
    """Train a multi-layer perceptron by reverse-mode autodiff of an expression graph in NumPy."""

    name: ClassVar[str] = "autodiff"
    title: ClassVar[str] = "Automatic differentiation"
    Model: ClassVar[type[nn.Module]] = MLP
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"tiny": TINY}
    InspectArgs: ClassVar[type] = AutodiffInspectArgs

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
        return BackpropLearner(self.init_model(data), "graph", self.lr, self.momentum, self.steps)

    def figures(self, learner: Learner[MLP], data: Data) -> Iterator[Figure]:
        yield compare_gradients(learner.model, data, self.batch)
        yield graph(loss_graph(learner.model, data, 0), "Expression graph: the loss of a test image")
        yield graph(build_graph(NEURON, (0.5, -1.0, 2.0)), f"Expression graph: {NEURON}")
        yield from super().figures(learner, data)

    def inspect(self, model: MLP, data: Data, args: AutodiffInspectArgs) -> tuple[str, list[Figure]]:
        if args.item >= 0:
            text = self.trace(model, data, args.item)
            return text, [graph(loss_graph(model, data, args.item))]
        return args.expression, [graph(build_graph(args.expression, args.at))]


def loss_graph(model: MLP, data: Data, item: int) -> Var:
    """The expression graph of the loss of one test image."""
    image, label = data.test["image"][item : item + 1].float() / 255, data.test["label"][item : item + 1]
    return loss_expression(model, image, label)[0]


def build_graph(text: str, values: tuple[float, ...]) -> Var:
    """Parse an expression and evaluate it on Vars with these values."""
    try:
        function = Expression(text)
        names = function.names
        if not names:
            raise EngramError(f'"{text}" has no variables, and so no gradient.')
        if values and len(values) != len(names):
            raise EngramError(
                f'"{text}" has {len(names)} variables, {", ".join(names)}, and {len(values)} values were given.'
            )
        at = values or tuple(range(1, len(names) + 1))
        y = function(**{name: Var(float(value), name) for name, value in zip(names, at, strict=True)})
    except ExpressionError as error:
        raise EngramError(str(error)) from None
    if not isinstance(y, Var):
        raise EngramError(f'"{text}" has no gradient.')
    return y
