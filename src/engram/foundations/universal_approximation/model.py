r"""Universal approximation by logistic steps, with a guaranteed error (Cybenko 1989).

    P(x; b, w) = H(x; b) - H(x; b + w)                                           bump over one cell               (1)
    G(x) = \sum_j c_j P(x; b_j, b_{j+1} - b_j) = c_1 + \sum_{j>1} (c_j - c_{j-1}) H(x; b_j)   one hidden layer    (2)
    c_j = (\max f + \min f) / 2, \quad r = \max_j (\max f - \min f) / 2          over cell j                      (3)
    |G - f| \le 3 r + V \sigma(-k w / 2), \quad V = \sum_j |c_j - c_{j-1}|       error bound                      (4)
    G(x, y) = \sum_{ij} d_{ij} H(H(x; b_i) + H(y; b_j); 3/2)                     two hidden layers                (5)
    |G - f| \le 11 r + V', \quad V' = \sum_{ij} |d_{ij}| \tau                 error bound                      (6)

    Symbols:
        f, G          function and network
        b_j, c_j      left edge of cell j, height of the network in it
        H(x; b)       logistic step \sigma(k (x - b)) of steepness k
        w             width of the narrowest cell
        \tau          tails of the logistic steps
        d_{ij}        c_{ij} - c_{i-1,j} - c_{i,j-1} + c_{i-1,j-1}

In (4), near an edge G is between the heights of the two cells, of which the far one is at most 3 r away from f; all
other steps are saturated, up to the tails of the logistic function. In (5), a unit of the second layer is on where two
steps are; four cells meet at a corner, and the error there is at most 11 r. Interval arithmetic bounds f in each cell,
so (4) and (6) are guarantees, not measurements.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Ge
from torch import Tensor, nn

from engram.core.config import Settings
from engram.core.errors import EngramError
from engram.core.tap import tap
from engram.foundations.autodiff.parse import Expression, ExpressionError

AXES = ("x", "y")
AND_THRESHOLD = 1.5
MAX_GRID = 300
AND_STEEPNESS = 40.0
"""steepness of units of the second layer"""


class Approximation(nn.Module):
    """Network of logistic steps, constructed and not trained."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Settings):
        function: str = "sin(6*x) + x^2"
        """function to approximate on 0 to 1: of x, or of x and y"""
        units: Annotated[int, Ge(4)] = 2000
        """maximum number of steps per axis; at most 300 for a function of x and y"""

        def __post_init__(self) -> None:
            super().__post_init__()
            self.expression()

        def expression(self) -> Expression:
            try:
                found = Expression(self.function)
            except ExpressionError as error:
                raise EngramError(str(error)) from None
            if not found.names or not set(found.names) <= set(AXES):
                raise EngramError(f'function must be of x, or of x and y, not "{self.function}".')
            return found

        @property
        def dimensions(self) -> int:
            return 2 if "y" in self.expression().names else 1

        @property
        def max_units(self) -> int:
            return self.units if self.dimensions == 1 else min(self.units, MAX_GRID)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        N = config.max_units
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
        for name, step in zip(AXES, steps, strict=False):
            tap(f"steps.{name}", step)
        if len(steps) == 1:
            return tap("G", steps[0] @ self.d)  # (2): the first edge is left of everything
        n, m = self.used.tolist()
        both = torch.sigmoid(AND_STEEPNESS * (steps[0][:, :n, None] + steps[1][:, None, :m] - AND_THRESHOLD))
        return tap("G", (both * self.d[:n, :m]).sum((1, 2)))  # (5)

    def rebuild(self, edges: list[np.ndarray[Any, Any]]) -> Tensor:
        """Set heights and steps for cells with these edges, 0 to 1; return half the range of f in each cell."""
        D = self.config.dimensions
        low, high = bounds_per_cell(self.config.expression(), edges)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise EngramError(f'"{self.config.function}" may be infinite between 0 and 1: it cannot be approximated.')
        c, radius = (low + high) / 2, (high - low) / 2  # (3)
        d = c.copy()
        for axis in range(D):
            d = np.diff(d, axis=axis, prepend=0)  # (2), (5)
        narrowest = min(np.diff(one).min() for one in edges)
        total = np.abs(d).sum() - abs(d.flat[0])
        worst = radius.max()
        k = 2 / narrowest * math.log(max(8.0, 8 * total / max(worst, 1e-12)))
        saturation = 1 / (1 + math.exp(min(700.0, k * narrowest / 2)))
        tail = (
            total * saturation
            if D == 1
            else 2 * total / (1 + math.exp(min(700.0, AND_STEEPNESS * (0.5 - 2 * saturation))))
        )
        self.b.fill_(2.0)
        self.d.zero_()
        for axis, one in enumerate(edges):
            self.used[axis] = len(one) - 1
            self.b[axis, : len(one) - 1] = torch.from_numpy(np.concatenate([[-1.0], one[1:-1]]))
        self.d[tuple(map(slice, d.shape))] = torch.from_numpy(d)
        self.k.fill_(k)
        self.bound.fill_(float((3 if D == 1 else 11) * worst + tail))  # (4), (6)
        return torch.from_numpy(radius)


def bounds_per_cell(
    f: Expression, edges: list[np.ndarray[Any, Any]]
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return lower and upper bounds of f in each cell."""
    sides = [(one[:-1], one[1:]) for one in edges]
    if len(sides) == 2:
        sides = [(a[:, None], b[:, None]) if i == 0 else (a[None], b[None]) for i, (a, b) in enumerate(sides)]
    found = f.within(**dict(zip(AXES, sides, strict=False)))
    shape = tuple(len(one) - 1 for one in edges)
    return np.broadcast_to(found.low, shape), np.broadcast_to(found.high, shape)
