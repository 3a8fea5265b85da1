"""Graph of an expression: topological order, backpropagation, and shapes of gradients."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from numpy import ndarray

if TYPE_CHECKING:
    from engram.foundations.autodiff.var import Var


def topological_order(root: "Var") -> list["Var"]:
    """Return all Vars that `root` depends on and that require a gradient, the last created first."""
    found, stack = {root}, [root]
    while stack:
        creator = stack.pop().creator
        if creator is not None:
            for a in creator.args:
                if a.requires_grad and a not in found:
                    found.add(a)
                    stack.append(a)
    return sorted(found, key=lambda y: y.index, reverse=True)


def backpropagate(root: "Var", s: Any) -> Iterator[tuple["Var", Any]]:
    """Yield every Var of an expression with its gradient, from the root to the leaves.

    `s` is the gradient at the root. If it is a Var, all gradients are Vars.
    """
    gradient, symbolic = {root: s}, not isinstance(s, ndarray)
    for y in topological_order(root):
        s = gradient.pop(y)
        yield y, s
        op = y.creator
        if op is None:
            continue
        values = op.args if symbolic else [a.val for a in op.args]
        for i, a in enumerate(op.args):
            if a.requires_grad:
                g = op.partial(i, s, y if symbolic else y.val, *values)
                if g.shape != a.val.shape:
                    g = sum_to_shape(g, a.val.shape)
                if a in gradient:
                    gradient[a] = gradient[a] + g
                elif symbolic or a.creator is not None or (g is not s and g.flags.owndata):
                    gradient[a] = g
                else:
                    gradient[a] = g.copy()  # the gradient of a leaf is the user's: it shares no memory


def sum_to_shape(g: Any, shape: tuple[int, ...]) -> Any:
    """Return the gradient of an argument that was broadcast: the sum over the broadcast axes."""
    g = g.sum(tuple(range(len(g.shape) - len(shape)))) if len(g.shape) > len(shape) else g
    axes = tuple(i for i, (many, one) in enumerate(zip(g.shape, shape, strict=True)) if many != one)
    return g.sum(axes, keepdims=True) if axes else g


def is_basic(index: Any) -> bool:
    """Return whether no element is indexed twice."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(part is None or part is ... or isinstance(part, (int, slice)) for part in parts)


def keepdims_shape(shape: tuple[int, ...], axis: Any) -> tuple[int, ...]:
    """Return the shape of a sum with keepdims."""
    if axis is None:
        return (1,) * len(shape)
    summed = {a % len(shape) for a in (axis if isinstance(axis, tuple) else (axis,))}
    return tuple(1 if i in summed else n for i, n in enumerate(shape))
