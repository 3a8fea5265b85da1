"""Universal approximation as a construction (Cybenko 1989; note 003 §7): steps of a function, certain to be near it.

N cells with edges b_1 < b_2 < …, heights c_j; H(x; b) = 1 / (1 + e^-k(x - b)), a logistic step

    P(x; b, w) = H(x; b) - H(x; b + w)                             a bump over one cell                              (1)
    G(x) = sum_j c_j P(x; b_j, b_j+1 - b_j) = c_1 + sum_j>1 (c_j - c_j-1) H(x; b_j)          one hidden layer        (2)
    c_j = middle of what f is in cell j,   r = half of how much it changes there, at most                            (3)
    |G - f| <= 3 r + V sigma(-k w / 2),   V = sum_j |c_j - c_j-1|,  w the narrowest cell                             (4)
    G(x, y) = sum_ij d_ij H(H(x; b_i) + H(y; b_j); 3/2),   d_ij = c_ij - c_i-1,j - c_i,j-1 + c_i-1,j-1               (5)
    |G - f| <= 11 r + V (tails),   V = sum_ij |d_ij|                                                                 (6)

In (4), a place near an edge has a G between the heights of both sides, of which the far one is at most 3 r away; all
other steps are over, up to the tail of a logistic function. In (5), a second layer is on where both steps are; at a
corner four cells meet, and whatever the units between them do, it is at most 11 r. What f is in a cell is bounded by
interval arithmetic, for certain, so that (4) and (6) are guarantees and not measurements.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from engram.autodiff.parse import Expression, ExpressionError
from engram.core.errors import EngramError
from engram.core.learner import Batch, Metrics
from engram.core.tap import tap

AXES = ("x", "y")
AND = 1.5
LARGEST_GRID = 300
SURE = 40.0
"""steepness of the units that are on where two others are"""


class Approximation(nn.Module):
    """A network of logistic steps that was built, not trained."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        function: str = "sin(6*x) + x^2"
        """what to approximate on 0 to 1: of x, or of x and y"""
        units: int = 2000
        """steps at most, of each axis; for a function of x and y never more than 300"""

        def __post_init__(self) -> None:
            self.expression()
            if self.units < 4:
                raise EngramError(f"units must be at least 4, not {self.units}.")

        def expression(self) -> Expression:
            try:
                found = Expression(self.function)
            except ExpressionError as error:
                raise EngramError(str(error)) from None
            if not found.names or not set(found.names) <= set(AXES):
                raise EngramError(f"function must be of x, or of x and y, and «{self.function}» is not.")
            return found

        @property
        def dimensions(self) -> int:
            return 2 if "y" in self.expression().names else 1

        @property
        def most(self) -> int:
            return self.units if self.dimensions == 1 else min(self.units, LARGEST_GRID)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        N = config.most
        shape = (N,) * config.dimensions
        self.b: Tensor
        self.d: Tensor
        self.k: Tensor
        self.bound: Tensor
        self.used: Tensor
        self.register_buffer("b", torch.full((config.dimensions, N), 2.0, dtype=torch.float64))
        self.register_buffer("d", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("k", torch.ones((), dtype=torch.float64))
        self.register_buffer("bound", torch.full((), math.inf, dtype=torch.float64))
        self.register_buffer("used", torch.zeros(config.dimensions, dtype=torch.long))

    def forward(self, x_BD: Tensor) -> Tensor:
        steps = [torch.sigmoid(self.k * (x_BD[:, i, None] - self.b[i])) for i in range(self.config.dimensions)]
        for i, one in enumerate(steps):
            tap(f"steps.{AXES[i]}", one)
        if len(steps) == 1:
            return tap("G", steps[0] @ self.d)  # (2): the first edge is left of everything
        n, m = self.used.tolist()
        both = torch.sigmoid(SURE * (steps[0][:, :n, None] + steps[1][:, None, :m] - AND))
        return tap("G", (both * self.d[:n, :m]).sum((1, 2)))  # (5)

    def rebuild(self, edges: list[np.ndarray[Any, Any]]) -> Tensor:
        """Heights and steps for cells between these edges (0 and 1 among them); returns how much f changes in each."""
        D = self.config.dimensions
        low, high = cells(self.config.expression(), edges)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise EngramError(f"«{self.config.function}» may be infinite between 0 and 1: it cannot be approximated.")
        c, radius = (low + high) / 2, (high - low) / 2  # (3)
        d = c.copy()
        for axis in range(D):
            d = np.diff(d, axis=axis, prepend=0)  # (2), (5)
        narrowest = min(np.diff(one).min() for one in edges)
        total = np.abs(d).sum() - abs(d.flat[0])
        worst = radius.max()
        k = 2 / narrowest * math.log(max(8.0, 8 * total / max(worst, 1e-12)))
        over = 1 / (1 + math.exp(min(700.0, k * narrowest / 2)))
        tail = total * over if D == 1 else 2 * total / (1 + math.exp(min(700.0, SURE * (0.5 - 2 * over))))
        self.b.fill_(2.0)
        self.d.zero_()
        for axis, one in enumerate(edges):
            self.used[axis] = len(one) - 1
            self.b[axis, : len(one) - 1] = torch.from_numpy(np.concatenate([[-1.0], one[1:-1]]))
        self.d[tuple(map(slice, d.shape))] = torch.from_numpy(d)
        self.k.fill_(k)
        self.bound.fill_(float((3 if D == 1 else 11) * worst + tail))  # (4), (6)
        return torch.from_numpy(radius)


def cells(f: Expression, edges: list[np.ndarray[Any, Any]]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Between what f lies in each cell."""
    sides = [(one[:-1], one[1:]) for one in edges]
    if len(sides) == 2:
        sides = [(a[:, None], b[:, None]) if i == 0 else (a[None], b[None]) for i, (a, b) in enumerate(sides)]
    found = f.within(**dict(zip(AXES, sides, strict=False)))
    shape = tuple(len(one) - 1 for one in edges)
    return np.broadcast_to(found.low, shape), np.broadcast_to(found.high, shape)


class Refining:
    """The learner: cells in which f changes too much are cut in two, until G is certain to be within eps."""

    def __init__(self, model: Approximation, eps: float, random: torch.Generator) -> None:
        self.model, self.eps = model, eps
        inner = torch.rand(model.config.dimensions, 2, generator=random, dtype=torch.float64).sort(1).values
        self.edges = [np.concatenate([[0.0], 0.2 + 0.6 * one.numpy(), [1.0]]) for one in inner]
        self.radius = model.rebuild(self.edges)

    @property
    def enough(self) -> float:
        """How much f may change in a cell."""
        return self.eps / (4 if self.model.config.dimensions == 1 else 14)

    @torch.no_grad()
    def step(self, batch: Batch) -> Metrics:
        if self.model.bound > self.eps:
            self.edges = [self.cut(axis) for axis in range(self.model.config.dimensions)]
            self.radius = self.model.rebuild(self.edges)
        return {"bound": self.model.bound.clone(), "units": self.model.used.prod().double()}

    def cut(self, axis: int) -> np.ndarray[Any, Any]:
        """Edges with one more in the middle of each cell that changes too much, the worst first if there is no room."""
        radius = self.radius if self.radius.ndim == 1 else self.radius.amax(1 - axis)
        edges = self.edges[axis]
        wide = (radius > min(self.enough, 0.9 * float(radius.max()))).nonzero()[:, 0]
        room = self.model.config.most - (len(edges) - 1)
        chosen = wide[radius[wide].argsort(descending=True, stable=True)][:room].numpy()
        return np.sort(np.concatenate([edges, (edges[chosen] + edges[chosen + 1]) / 2]))

    def state_dict(self) -> dict[str, Any]:
        return {"edges": [torch.from_numpy(one.copy()) for one in self.edges]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.edges = [one.numpy().copy() for one in state["edges"]]
        self.radius = self.model.rebuild(self.edges)
