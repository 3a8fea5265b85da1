"""Several learners trained side by side on the same batches, each with its own model, to compare them."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from engram.core.errors import EngramError
from engram.core.learner import Batch, Learner, Metrics
from engram.training import distributed


class MultiLearner:
    """Trains every learner on every batch; metrics are prefixed by its name."""

    def __init__(self, learners: Mapping[str, Learner[Any]], model: nn.Module | None = None) -> None:
        """`model`: module containing all learners' models; by default, an `nn.ModuleDict` of them."""
        if distributed.is_sharding():
            raise EngramError("Models that are trained side by side cannot be sharded: leave out --shard.")
        self.learners = dict(learners)
        self.model: Any = model or nn.ModuleDict({name: one.model for name, one in self.learners.items()})
        self.rng_states = {name: torch.get_rng_state() for name in self.learners}
        """random state of each learner, so that it does not depend on the others"""

    def step(self, batch: Batch) -> Metrics:
        metrics: Metrics = {}
        outside = torch.get_rng_state()
        for name, learner in self.learners.items():
            torch.set_rng_state(self.rng_states[name])
            metrics |= {f"{name}_{key}": value for key, value in learner.step(self.columns_for(name, batch)).items()}
            self.rng_states[name] = torch.get_rng_state()
        torch.set_rng_state(outside)
        return metrics

    def columns_for(self, name: str, batch: Batch) -> Batch:
        """The columns of a batch that are for all learners or, by their prefix, for this one."""
        own = {key.removeprefix(f"{name}."): value for key, value in batch.items() if key.startswith(f"{name}.")}
        return {**{key: value for key, value in batch.items() if "." not in key}, **own}

    def state_dict(self) -> dict[str, Any]:
        return {
            "learners": {name: learner.state_dict() for name, learner in self.learners.items()},
            "noise": self.rng_states,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rng_states = dict(state["noise"])
        for name, learner in self.learners.items():
            learner.load_state_dict(state["learners"][name])
