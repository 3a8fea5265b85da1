"""Several learners at once, each with its own model, on the same batches: what comparisons are made of."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from engram.core import together
from engram.core.errors import EngramError
from engram.core.learner import Batch, Learner, Metrics


class SideBySide:
    """Every learner takes a step on every batch; metrics are named after it."""

    def __init__(self, learners: Mapping[str, Learner], model: nn.Module | None = None) -> None:
        """`model` holds the models of the learners, and perhaps more; a dictionary of them if it is not given."""
        if together.dividing():
            raise EngramError("Models that learn side by side cannot be divided among processes: leave out --shard.")
        self.learners = dict(learners)
        self.model: Any = model or nn.ModuleDict({name: one.model for name, one in self.learners.items()})
        self.noise = {name: torch.get_rng_state() for name in self.learners}
        """where each one's dropout and the like goes on, so that who else is there makes no difference"""

    def step(self, batch: Batch) -> Metrics:
        metrics: Metrics = {}
        outside = torch.get_rng_state()
        for name, learner in self.learners.items():
            torch.set_rng_state(self.noise[name])
            metrics |= {f"{name}_{key}": value for key, value in learner.step(self.seen_by(name, batch)).items()}
            self.noise[name] = torch.get_rng_state()
        torch.set_rng_state(outside)
        return metrics

    def seen_by(self, name: str, batch: Batch) -> Batch:
        """The batch, or what of it is meant for this one: keys that begin with its name."""
        own = {key.removeprefix(f"{name}."): value for key, value in batch.items() if key.startswith(f"{name}.")}
        return {**{key: value for key, value in batch.items() if "." not in key}, **own}

    def state_dict(self) -> dict[str, Any]:
        return {
            "learners": {name: learner.state_dict() for name, learner in self.learners.items()},
            "noise": self.noise,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.noise = dict(state["noise"])
        for name, learner in self.learners.items():
            learner.load_state_dict(state["learners"][name])
