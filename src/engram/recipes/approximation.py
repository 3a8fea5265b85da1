"""A function that anybody may type, approximated by a network that is built and not trained."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.learner import Learner
from engram.core.registry import Recipe, Request, Sample, recipe
from engram.core.seeding import generator
from engram.data.batches import Same
from engram.figures import approximation as views
from engram.figures.figure import Figure
from engram.models.approximation import Approximation, Refining

MEASURED = {1: 20_001, 2: 101}
"""places of each axis where the error is measured"""
AT_ONCE = 200


@recipe
@dataclass(frozen=True, kw_only=True)
class ApproximationRecipe(Recipe):
    """Any continuous function is a sum of logistic steps: give one, and how near it must come, for certain."""

    name: ClassVar[str] = "approximation"
    title: ClassVar[str] = "Universal approximation"
    kind: ClassVar[str] = "foundations"
    notes: ClassVar[str] = "003 §7"
    Model: ClassVar[type[nn.Module]] = Approximation
    best: ClassVar[tuple[str, str]] = ("valid_error", "min")
    unit: ClassVar[str] = "refinements"
    learns: ClassVar[bool] = False
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"units": 64, "eps": 0.3, "every": 10},
        "surface": {"function": "sin(3*x) * cos(3*y)", "eps": 0.5},
    }

    data: str = "none"
    """nothing is read: the function is typed"""
    steps: int = 20
    """refinements at most; none is made once the network is near enough"""
    every: int = 5
    model: Approximation.Config = field(default_factory=Approximation.Config)
    eps: float = 0.05
    """how far the network may be from the function, anywhere"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.eps > 0:
            raise EngramError(f"eps must be above 0, not {self.eps}.")

    @property
    def per_step(self) -> float:
        return 1

    def load(self) -> Tensor:
        """Places where the error is measured, N × dimensions."""
        self.must_need_nothing()
        axis = torch.linspace(0, 1, MEASURED[self.model.dimensions], dtype=torch.float64)
        return torch.cartesian_prod(*[axis] * self.model.dimensions).view(-1, self.model.dimensions)

    def learner(self, data: Tensor) -> Refining:
        return Refining(Approximation(self.model), self.eps, generator(self.seed, "edges"))

    def batches(self, data: Tensor) -> Same:
        return Same({})

    def truth(self, x_ND: Tensor) -> Tensor:
        values = self.model.expression().numbers(**dict(zip("xy", x_ND.numpy().T, strict=False)))
        return torch.from_numpy(np.array(values))

    def evaluate(self, learner: Learner, data: Tensor, split: str) -> dict[str, float]:
        """The largest error that was found, and the one that cannot be exceeded."""
        model: Any = learner.model
        error = (made(model, data) - self.truth(data)).abs().max().item()
        return {"error": error, "guarantee": float(model.bound), "units": float(model.used.prod())}

    def figures(self, learner: Learner, data: Tensor) -> Iterator[Figure]:
        model: Any = learner.model
        truth, found, bound = self.truth(data), made(model, data), float(model.bound)
        yield views.beside(data, truth, found, bound, self.eps)
        yield views.errors(data, truth, found, bound)
        yield views.steps(model)

    def probe(self, model: nn.Module, data: Tensor, item: int) -> str:
        if not 0 <= item < len(data):
            raise EngramError(f"item must be from 0 to {len(data) - 1}, the places that are measured, not {item}.")
        at = data[item : item + 1]
        place = ", ".join(f"{value:.4g}" for value in at[0].tolist())
        return f"{self.model.function} at {place}: {self.truth(at).item():.4g}, by the network {model(at).item():.4g}"

    def sample(self, learner: Learner, data: Tensor, request: Request) -> Sample:
        """Values at places drawn at random."""
        x = torch.rand(request.count, self.model.dimensions, generator=request.generator, dtype=torch.float64)
        truth, found = self.truth(x), made(learner.model, x)
        lines = [
            f"{'  '.join(f'{v:.4f}' for v in at.tolist())}   f {t:+.4f}   network {y:+.4f}   difference {y - t:+.4f}"
            for at, t, y in zip(x, truth.tolist(), found.tolist(), strict=True)
        ]
        return Sample({"x": x, "function": truth, "network": found}, "\n".join(lines))


def made(model: nn.Module, x_ND: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.cat([model(part) for part in x_ND.split(AT_ONCE)])
