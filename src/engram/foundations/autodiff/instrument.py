"""Expression graph: an expression of the user, its values, and its gradients one after the other."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engram.core.errors import EngramError
from engram.foundations.autodiff import Var
from engram.foundations.autodiff.graph_layout import layout_graph
from engram.foundations.autodiff.parse import Expression, ExpressionError
from engram.plots.instrument import Models, Response, endpoint, register_instrument

register_instrument(
    "autodiff",
    title="Expression graph",
    about="Type an expression, see its graph, and step backward through its gradients.",
    recipes=("autodiff", "backprop"),
    folder=Path(__file__).parent,
    needs_run=False,
)

MOST = 200
"""Vars that can still be read in a drawing"""


@dataclass(frozen=True, kw_only=True)
class Typed:
    """An expression, and values of its variables in the order of their names; 1 where there are too few."""

    text: str = "x * y + sin(x)"
    values: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        if not all(abs(value) <= 1e6 for value in self.values):
            raise EngramError("Values must be numbers of at most a million.")


@endpoint("autodiff")
def graph(args: Typed, models: Models) -> Response:
    """Where each Var stands, what it is, and when its gradient becomes known."""
    try:
        expression = Expression(args.text)
        values = [*args.values, *[1.0] * len(expression.names)]
        leaves = {name: Var(value, name=name) for name, value in zip(expression.names, values, strict=False)}
        with np.errstate(all="ignore"):
            root: Any = expression(**leaves)
    except ExpressionError as error:
        raise EngramError(str(error)) from None
    if not isinstance(root, Var):
        raise EngramError("There is no variable in it: nothing has a gradient.")
    drawing = layout_graph(root)
    if len(drawing.nodes) > MOST:
        raise EngramError(f"{len(drawing.nodes)} Vars are too many to be drawn; {MOST} can be.")
    return {
        "names": list(expression.names),
        "nodes": [node._asdict() for node in drawing.nodes],
        "edges": drawing.edges,
    }
