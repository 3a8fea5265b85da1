"""Optimisers race down a surface that anybody may type."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.learner import Learner
from engram.core.registry import Recipe, Request, Sample, recipe
from engram.core.seeding import generator
from engram.figures import race as views
from engram.figures.figure import Figure
from engram.models.race import RACERS, Race, Racing


class Noise:
    """What a stochastic gradient is off by, step by step."""

    def __init__(self, size: float, random: torch.Generator) -> None:
        self.size, self.random = size, random

    def __next__(self) -> dict[str, Any]:
        return {"noise": self.size * torch.randn(1, 2, generator=self.random)}

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.random.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.random.set_state(state["generator"])


@recipe
@dataclass(frozen=True, kw_only=True)
class OptimisersRecipe(Recipe):
    """Gradient descent, SGD, momentum, RMSProp, Adam and Muon start at one place of a surface and go down it."""

    name: ClassVar[str] = "optimisers"
    title: ClassVar[str] = "Optimiser race"
    kind: ClassVar[str] = "foundations"
    notes: ClassVar[str] = "003 §11"
    Model: ClassVar[type[nn.Module]] = Race
    best: ClassVar[tuple[str, str]] = ("valid_lowest", "min")
    unit: ClassVar[str] = "steps"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"steps": 20, "every": 10},
        "ravine": {"surface": "0.5*x^2 + 20*y^2", "start": (-2.0, 1.0), "lr": 0.04},
        "saddle": {"surface": "x^2 - y^2 + 0.25*y^4", "start": (-1.5, 0.01), "lr": 0.05},
        "hills": {"surface": "0.1*(x^2 + y^2) - cos(3*x) - cos(3*y)", "start": (-2.6, 2.2), "lr": 0.02, "noise": 1.0},
    }

    data: str = "none"
    """nothing is read: the surface is typed"""
    steps: int = 400
    every: int = 100
    model: Race.Config = field(default_factory=Race.Config)
    start: tuple[float, float] = (-1.5, 1.5)
    """where all begin"""
    lr: float = 0.01
    """learning rate of gd, sgd and momentum"""
    adaptive_lr: float = 0.05
    """learning rate of rmsprop, adam and muon, which is about the length of their steps"""
    beta: float = 0.9
    """how much of the last step is kept (momentum, adam, muon)"""
    noise: float = 0.3
    """how far a stochastic gradient is off; gd alone knows the true one"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("lr", "adaptive_lr", "noise"):
            if not getattr(self, name) >= 0:
                raise EngramError(f"{name} must not be negative or NaN, and is {getattr(self, name)}.")
        if not 0 <= self.beta < 1:
            raise EngramError(f"beta is a part, at least 0 and below 1, not {self.beta}.")

    @property
    def per_step(self) -> float:
        return 1

    def load(self) -> None:
        self.must_need_nothing()

    def learner(self, data: None) -> Racing:
        return Racing(Race(self.model), torch.tensor([self.start]), self.lr, self.adaptive_lr, self.beta)

    def batches(self, data: None) -> Noise:
        return Noise(self.noise, generator(self.seed, "noise"))

    def heights(self, model: Any) -> Tensor:
        found: Tensor = model(torch.cat([model.places[name].detach() for name in RACERS]))
        return found

    def evaluate(self, learner: Learner, data: None, split: str) -> dict[str, float]:
        """How low each racer is."""
        heights = self.heights(learner.model).tolist()
        return {"lowest": min(heights), **dict(zip(RACERS, heights, strict=True))}

    def figures(self, learner: Learner, data: None) -> Iterator[Figure]:
        assert isinstance(learner, Racing)
        path_TR2 = torch.stack(learner.path)
        yield views.paths(learner.model, path_TR2, RACERS)
        yield views.descent(learner.model, path_TR2, RACERS)
        yield views.lengths(path_TR2, RACERS)

    def probe(self, model: nn.Module, data: None, item: int) -> str:
        if not 0 <= item < len(RACERS):
            raise EngramError(f"item must be from 0 to {len(RACERS) - 1}, one of {', '.join(RACERS)}, not {item}.")
        place: Any = dict(model.named_parameters())[f"places.{RACERS[item]}"]
        x, y = place.detach()[0].tolist()
        return f"{RACERS[item]} is at {x:.4f}, {y:.4f}, where the surface is {model(place.detach())[0]:.4g}"

    def look(self, model: nn.Module, data: None, subject: Any) -> tuple[str, list[Figure]]:
        places: Any = model
        at = torch.stack([torch.cat([places.places[name].detach() for name in RACERS])])
        return self.probe(model, data, subject.item), [views.paths(places, at, RACERS)]

    def sample(self, learner: Learner, data: None, request: Request) -> Sample:
        """Where everybody is."""
        model: Any = learner.model
        at = torch.cat([model.places[name].detach() for name in RACERS])
        lines = [
            f"{name:<9} at {x:+.4f}, {y:+.4f}   height {h:.4g}"
            for name, (x, y), h in zip(RACERS, at.tolist(), self.heights(model).tolist(), strict=True)
        ]
        return Sample({"place": at}, "\n".join(lines))
