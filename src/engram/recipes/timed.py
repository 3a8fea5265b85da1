"""What recipes have in common in which time passes: nothing is learnt, and a step is a stretch of time."""

import copy
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.learner import Batch, Learner
from engram.core.registry import Item, Recipe
from engram.figures.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Timed(Recipe):
    """A system that runs, stretch by stretch."""

    kind: ClassVar[str] = "neurons"
    learns: ClassVar[bool] = False
    unit: ClassVar[str] = "ms"

    steps: int = 20
    """how many stretches of time to let pass"""
    every: int = 10
    """stretches between two evaluations, each followed by a checkpoint"""
    stretch_ms: float = 100.0
    """length of a stretch"""
    model: Any
    """what runs"""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.must_last("stretch_ms")

    def must_last(self, name: str) -> None:
        """Refuse a time that is shorter than a time step."""
        if not getattr(self, name) >= self.model.step_ms:
            raise EngramError(f"{name} must be at least step_ms ({self.model.step_ms}), not {getattr(self, name)}.")

    @property
    def per_step(self) -> float:
        return self.stretch_ms

    @property
    def stretch(self) -> int:
        """Time steps in a stretch."""
        return round(self.stretch_ms / self.model.step_ms)

    @abstractmethod
    def moment(self, data: Any, item: int) -> tuple[str, Batch]:
        """What `engram look` lets pass, and a line that says what it is."""

    @abstractmethod
    def at_rest(self, model: Any, item: int) -> Learner:
        """A learner for that, to which nothing has happened yet."""

    @abstractmethod
    def views(self, learner: Any, passed: Batch) -> Iterator[Figure]:
        """What happened while `passed` did: of a moment, or of the whole run."""

    def look(self, model: nn.Module, data: Any, subject: Item) -> tuple[str, list[Figure]]:
        said, passed = self.moment(data, subject.item)
        learner = self.at_rest(copy.deepcopy(model), subject.item)
        learner.step(passed)
        return said, list(self.views(learner, passed))

    def input_from(self, data: Tensor, item: int, most_ms: float) -> tuple[str, Batch]:
        """The input from time step `item` on."""
        if not 0 <= item < len(data):
            raise EngramError(f"item must be a time step from 0 to {len(data) - 1}, not {item}.")
        passed, step_ms = data[item : item + round(most_ms / self.model.step_ms)], self.model.step_ms
        said = f"{len(passed) * step_ms:g} ms of the input from {item * step_ms:g} ms on, beginning at rest"
        return said, {"current": passed}
