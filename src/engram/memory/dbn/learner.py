"""Greedy layer-wise training of a deep belief network (Hinton, Osindero & Teh 2006; Bengio et al. 2007)."""

from typing import Any

import torch

from engram.core.learner import Batch, Metrics
from engram.memory.dbn.model import DBN
from engram.memory.rbm.learner import ContrastiveDivergence, ContrastiveDivergenceConfig
from engram.nn.bernoulli import sample_bernoulli
from engram.training import distributed


class GreedyLayerwise:
    """Learner that trains the RBMs one after the other, each for an equal share of the steps."""

    def __init__(
        self, model: DBN, config: ContrastiveDivergenceConfig, batch: int, steps: int, generator: torch.Generator
    ) -> None:
        self.model, self.steps, self.done, self.generator = model, steps, 0, generator
        self.share = -(-steps // len(model.layers))
        self.learners = [ContrastiveDivergence(rbm, config, batch, self.share, generator) for rbm in model.layers]

    @torch.no_grad()
    def step(self, batch: Batch) -> Metrics:
        level = min(self.done // self.share, len(self.learners) - 1)
        with distributed.unsharded(self.model):
            below = self.model.up(batch["visible"], level)
        visible = sample_bernoulli(below, self.generator) if level else below
        metrics = self.learners[level].step({"visible": visible})
        self.done += 1
        return metrics | {"layer": torch.tensor(float(level + 1))}

    def state_dict(self) -> dict[str, Any]:
        return {"done": self.done, "learners": [learner.state_dict() for learner in self.learners]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.done = state["done"]
        for learner, saved in zip(self.learners, state["learners"], strict=True):
            learner.load_state_dict(saved)
