"""What recipes have in common in which time passes: nothing is learnt, and a step is a stretch of time."""

from dataclasses import dataclass
from typing import Any, ClassVar

from engram.core.errors import EngramError
from engram.core.registry import Recipe


@dataclass(frozen=True, kw_only=True)
class Timed(Recipe):
    """A system that runs, stretch by stretch."""

    kind: ClassVar[str] = "neurons"
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
