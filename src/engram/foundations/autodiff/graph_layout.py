"""Layout of an expression graph.

Node positions, edges, and the order in which backward computes gradients.

A Var stands one column to the right of its last argument. Gradients are computed from the right to the left: backward
step k computes the gradient of the k-th Var, the sum over all its uses.
"""

from typing import Any, NamedTuple

import numpy as np

from engram.foundations.autodiff.graph import backpropagate, topological_order
from engram.foundations.autodiff.var import Var


class Node(NamedTuple):
    """A Var."""

    label: str
    """its name, or the sign of what made it"""
    value: str
    gradient: str
    column: int
    row: float
    step: int
    """backward step that computes its gradient"""


class Drawing(NamedTuple):
    nodes: list[Node]
    edges: list[tuple[int, int]]
    """from an argument to what was made of it, by their numbers"""


def layout_graph(root: Var) -> Drawing:
    """An expression, laid out. Constants are written where they are used, and have no node."""
    gradients: dict[Var, Any] = dict(backpropagate(root, np.ones_like(root.val)))
    order = list(gradients)
    number = {y: i for i, y in enumerate(reversed(order))}
    column: dict[Var, int] = {}
    for y in reversed(order):
        below = [column[a] for a in arguments(y)]
        column[y] = 1 + max(below) if below else 0
    for y in order:  # a leaf stands just left of its first use
        if y.creator is None and y is not root:
            column[y] = min(column[user] for user in order if user.creator and y in user.creator.args) - 1
    row = rows(root, column)
    nodes = [
        Node(label(y), short(y.val), short(gradients[y]), column[y], row[y], len(order) - 1 - i)
        for y, i in number.items()
    ]
    edges = [(number[a], number[y]) for y in order for a in arguments(y)]
    return Drawing(nodes, edges)


def arguments(y: Var) -> list[Var]:
    return [a for a in y.creator.args if a.requires_grad] if y.creator else []


def rows(root: Var, column: dict[Var, int]) -> dict[Var, float]:
    """Vars of a column one below the other, each near those that it leads to."""
    place: dict[Var, float] = {root: 0.0}
    users: dict[Var, list[Var]] = {}
    for y in topological_order(root):
        for a in arguments(y):
            users.setdefault(a, []).append(y)
    for c in sorted(set(column.values()), reverse=True):
        here = [y for y in column if column[y] == c and y is not root]
        wish = {
            y: sum(place.get(user, 0.0) + 0.1 * position(user, y) for user in users[y]) / len(users[y]) for y in here
        }
        ordered = sorted(here, key=lambda y: wish[y])
        for i, y in enumerate(ordered):
            place[y] = i - (len(ordered) - 1) / 2
    return place


def position(user: Var, y: Var) -> int:
    assert user.creator is not None
    return user.creator.args.index(y)


def label(y: Var) -> str:
    if y.creator is None:
        return y.name or "·"
    constants = [short(a.val) for a in y.creator.args if not a.requires_grad]
    symbol = y.creator.symbol or type(y.creator).__name__.lower()
    return f"{symbol} {' '.join(constants)}".strip()


def short(value: Any) -> str:
    """A number, or the shape of an array."""
    return f"{float(value):.4g}" if np.size(value) == 1 else "×".join(map(str, np.shape(value)))
