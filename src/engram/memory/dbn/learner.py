"""Greedy layer-wise training of a deep belief network (Hinton et al. 2006; Bengio et al. 2007)."""

from typing import Any

import torch

from engram.core.learner import Batch, Metrics
from engram.memory.dbn.model import DBN
from engram.memory.rbm.learner import ContrastiveDivergence, ContrastiveDivergenceConfig
from engram.nn.bernoulli import sample_bernoulli_rows
from engram.training.rule_learner import RuleLearner, Updates


class GreedyLayerwise(RuleLearner[DBN]):
    """Learner that trains the RBMs one after the other, each for an equal share of the steps."""

    def __init__(
        self, model: DBN, config: ContrastiveDivergenceConfig, batch: int, steps: int, generator: torch.Generator
    ) -> None:
        super().__init__(model, steps)
        self.batch, self.generator = batch, generator
        self.share = -(-steps // len(model.layers))
        self.learners = [ContrastiveDivergence(rbm, config, batch, self.share, generator) for rbm in model.layers]

    @property
    def level(self) -> int:
        """The layer that is trained in this step."""
        return min(self.done // self.share, len(self.learners) - 1)

    def find_update(self, rows: Batch) -> tuple[Updates, Metrics]:
        """Return the update of one RBM by the binary activity of the layer below."""
        level = self.level
        visible = self.model.up(rows["visible"], level)
        if level:
            visible = sample_bernoulli_rows(visible, self.generator, self.batch)
        update, metrics = self.learners[level].find_update({"visible": visible})
        metrics["layer"] = torch.tensor(float(level + 1))
        return {f"rbms.{level}.{name}": value for name, value in update.items()}, metrics

    def apply_update(self, update: Updates) -> None:
        learner = self.learners[self.level]
        learner.apply_update({name.rpartition(".")[2]: value for name, value in update.items()})
        learner.done += 1

    def state_dict(self) -> dict[str, Any]:
        return {"done": self.done, "learners": [learner.state_dict() for learner in self.learners]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.done = state["done"]
        for learner, saved in zip(self.learners, state["learners"], strict=True):
            learner.load_state_dict(saved)
