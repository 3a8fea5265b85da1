"""Approximates a user-defined function by a constructed network with a guaranteed error."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from annotated_types import Gt
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.learner import Learner
from engram.core.recipe import Recipe, Sample, SampleRequest
from engram.core.registry import register
from engram.core.seeding import generator
from engram.data.loaders import Constant
from engram.foundations.universal_approximation import plots
from engram.foundations.universal_approximation.learner import RefinementLearner
from engram.foundations.universal_approximation.model import Approximation
from engram.plots.figure import Figure

GRID = {1: 20_001, 2: 101}
"""points per axis at which the error is measured"""
EVAL_BATCH = 200


@register
@dataclass(frozen=True, kw_only=True)
class ApproximationRecipe(Recipe[Approximation, Tensor]):
    """A network constructed for any user-defined continuous function, with a guaranteed maximum error."""

    name: ClassVar[str] = "universal-approximation"
    title: ClassVar[str] = "Universal approximation"
    Model: ClassVar[type[nn.Module]] = Approximation
    best: ClassVar[tuple[str, str]] = ("valid_error", "min")
    unit: ClassVar[str] = "refinements"
    learns: ClassVar[bool] = False
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"units": 64, "eps": 0.3, "eval_every": 10},
        "surface": {"function": "sin(3*x) * cos(3*y)", "eps": 0.5},
    }

    data: str = "none"
    """unused: the function is given by --function"""
    steps: int = 20
    """maximum number of refinements; they stop once the guaranteed error is at most eps"""
    eval_every: int = 5
    model: Approximation.Config = field(default_factory=Approximation.Config)
    eps: Annotated[float, Gt(0)] = 0.05
    """maximum error of the network, guaranteed everywhere"""

    @property
    def items_per_step(self) -> float:
        return 1

    def load(self) -> Tensor:
        """Return the points at which the error is measured, N × dimensions."""
        self.refuse_data()
        axis = torch.linspace(0, 1, GRID[self.model.dimensions], dtype=torch.float64)
        return torch.cartesian_prod(*[axis] * self.model.dimensions).view(-1, self.model.dimensions)

    def learner(self, data: Tensor) -> RefinementLearner:
        return RefinementLearner(Approximation(self.model), self.eps, generator(self.seed, "edges"))

    def batches(self, data: Tensor) -> Constant:
        return Constant({})

    def target(self, x_ND: Tensor) -> Tensor:
        values = self.model.expression().numbers(**dict(zip("xy", x_ND.numpy().T, strict=False)))
        return torch.from_numpy(np.array(values))

    def evaluate(self, learner: Learner[Approximation], data: Tensor, split: str) -> dict[str, float]:
        """Return the largest measured error and the guaranteed bound."""
        model: Any = learner.model
        error = (evaluate_network(model, data) - self.target(data)).abs().max().item()
        return {"error": error, "guarantee": float(model.bound), "units": float(model.used.prod())}

    def figures(self, learner: Learner[Approximation], data: Tensor) -> Iterator[Figure]:
        model: Any = learner.model
        target, output, bound = self.target(data), evaluate_network(model, data), float(model.bound)
        yield plots.function_and_network(data, target, output, bound, self.eps)
        yield plots.errors(data, target, output, bound)
        yield plots.steps(model)

    def trace(self, model: Approximation, data: Tensor, item: int) -> str:
        if not 0 <= item < len(data):
            raise EngramError(f"item must be from 0 to {len(data) - 1}, the measured points, not {item}.")
        point = data[item : item + 1]
        position = ", ".join(f"{value:.4g}" for value in point[0].tolist())
        return (
            f"{self.model.function} at {position}: {self.target(point).item():.4g}, network {model(point).item():.4g}"
        )

    def sample(self, learner: Learner[Approximation], data: Tensor, request: SampleRequest) -> Sample:
        """Evaluate function and network at random points."""
        x = torch.rand(request.count, self.model.dimensions, generator=request.generator, dtype=torch.float64)
        target, output = self.target(x), evaluate_network(learner.model, x)
        rows = [
            {"x": point, "function": t, "network": y, "error": y - t}
            for point, t, y in zip(x.tolist(), target.tolist(), output.tolist(), strict=True)
        ]
        lines = [
            f"{'  '.join(f'{v:.4f}' for v in row['x'])}   f {row['function']:+.4f}   network {row['network']:+.4f}   "
            f"error {row['error']:+.4f}"
            for row in rows
        ]
        return Sample({"x": x, "function": target, "network": output}, "\n".join(lines), rows=rows)


def evaluate_network(model: nn.Module, x_ND: Tensor) -> Tensor:
    """Return the output of the network, N, computed in batches."""
    with torch.no_grad():
        return torch.cat([model(part) for part in x_ND.split(EVAL_BATCH)])
