"""Compares optimizers on a user-defined surface."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.learner import Learner
from engram.core.recipe import Recipe, Sample, SampleRequest
from engram.core.registry import register
from engram.core.seeding import generator
from engram.foundations.optimizers import plots
from engram.foundations.optimizers.learner import RaceLearner
from engram.foundations.optimizers.model import OPTIMIZERS, OptimizerRace
from engram.plots.figure import Figure


class GradientNoise:
    """Stream of gradient noise."""

    def __init__(self, size: float, random: torch.Generator) -> None:
        self.size, self.random = size, random

    def __next__(self) -> dict[str, Any]:
        return {"noise": self.size * torch.randn(1, 2, generator=self.random)}

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.random.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.random.set_state(state["generator"])


@register
@dataclass(frozen=True, kw_only=True)
class OptimizersRecipe(Recipe[OptimizerRace, None]):
    """Gradient descent, SGD, momentum, RMSProp, Adam and Muon minimize a user-defined function of x and y."""

    name: ClassVar[str] = "optimizers"
    title: ClassVar[str] = "Optimizer race"
    Model: ClassVar[type[nn.Module]] = OptimizerRace
    best: ClassVar[tuple[str, str]] = ("valid_min", "min")
    unit: ClassVar[str] = "steps"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"steps": 20, "eval_every": 10},
        "ravine": {"surface": "0.5*x^2 + 20*y^2", "start": (-2.0, 1.0), "lr": 0.04},
        "saddle": {"surface": "x^2 - y^2 + 0.25*y^4", "start": (-1.5, 0.01), "lr": 0.05},
        "hills": {"surface": "0.1*(x^2 + y^2) - cos(3*x) - cos(3*y)", "start": (-2.6, 2.2), "lr": 0.02, "noise": 1.0},
    }

    data: str = "none"
    """unused: the surface is given by --surface"""
    steps: int = 400
    eval_every: int = 100
    model: OptimizerRace.Config = field(default_factory=OptimizerRace.Config)
    start: tuple[float, float] = (-1.5, 1.5)
    """point of the surface where every optimizer starts"""
    lr: Annotated[float, Ge(0)] = 0.01
    """learning rate of gd, sgd and momentum"""
    adaptive_lr: Annotated[float, Ge(0)] = 0.05
    """learning rate of rmsprop, adam and muon, about the length of their steps"""
    beta: Annotated[float, Ge(0), Lt(1)] = 0.9
    """momentum coefficient (momentum, adam, muon)"""
    noise: Annotated[float, Ge(0)] = 0.3
    """standard deviation of the gradient noise of all optimizers but gd"""

    @property
    def items_per_step(self) -> float:
        return 1

    def load(self) -> None:
        self.refuse_data()

    def learner(self, data: None) -> RaceLearner:
        return RaceLearner(OptimizerRace(self.model), torch.tensor([self.start]), self.lr, self.adaptive_lr, self.beta)

    def batches(self, data: None) -> GradientNoise:
        return GradientNoise(self.noise, generator(self.seed, "noise"))

    def values(self, model: Any) -> Tensor:
        """Return the value of the surface at the position of each optimizer."""
        found: Tensor = model(positions(model))
        return found

    def evaluate(self, learner: Learner[OptimizerRace], data: None, split: str) -> dict[str, float]:
        """Return the value reached by each optimizer, and the lowest."""
        values = self.values(learner.model).tolist()
        return {"min": min(values), **dict(zip(OPTIMIZERS, values, strict=True))}

    def figures(self, learner: Learner[OptimizerRace], data: None) -> Iterator[Figure]:
        assert isinstance(learner, RaceLearner)
        path_TR2 = torch.stack(learner.path)
        yield plots.paths(learner.model, path_TR2, OPTIMIZERS)
        yield plots.convergence(learner.model, path_TR2, OPTIMIZERS)
        yield plots.step_lengths(path_TR2, OPTIMIZERS)

    def trace(self, model: OptimizerRace, data: None, item: int) -> str:
        if not 0 <= item < len(OPTIMIZERS):
            raise EngramError(
                f"item must be from 0 to {len(OPTIMIZERS) - 1}, one of {', '.join(OPTIMIZERS)}, not {item}."
            )
        position = positions(model)[item : item + 1]
        x, y = position[0].tolist()
        return f"{OPTIMIZERS[item]} is at {x:.4f}, {y:.4f}, where the surface is {model(position)[0]:.4g}"

    def inspect(self, model: OptimizerRace, data: None, args: Any) -> tuple[str, list[Figure]]:
        return self.trace(model, data, args.item), [plots.paths(model, positions(model)[None], OPTIMIZERS)]

    def sample(self, learner: Learner[OptimizerRace], data: None, request: SampleRequest) -> Sample:
        """Return the position of each optimizer."""
        model = learner.model
        x_R2 = positions(model)
        rows = [
            {"optimizer": name, "x": x, "y": y, "value": h}
            for name, (x, y), h in zip(OPTIMIZERS, x_R2.tolist(), self.values(model).tolist(), strict=True)
        ]
        lines = [
            f"{row['optimizer']:<9} at {row['x']:+.4f}, {row['y']:+.4f}   value {row['value']:.4g}" for row in rows
        ]
        return Sample({"position": x_R2}, "\n".join(lines), rows=rows)


def positions(model: Any) -> Tensor:
    """Return the position of each optimizer, R × 2."""
    return torch.cat([model.positions[name].detach() for name in OPTIMIZERS])
