"""Trains one network per regularizer on the same batches."""

from typing import Any

import torch
from torch.nn import functional as F

from engram.core.learner import Batch, Metrics
from engram.foundations.regularization.model import Regularization
from engram.training.learner import GradientLearner
from engram.training.multi_learner import MultiLearner


class RegularizationLearner(MultiLearner):
    """Trains four networks; a fifth keeps the weights of the first at its lowest validation loss."""

    def __init__(
        self, model: Regularization, learners: dict[str, GradientLearner[Any]], valid: Batch, valid_every: int
    ) -> None:
        super().__init__(learners, model)
        self.valid, self.valid_every, self.steps, self.lowest = valid, valid_every, 0, float("inf")

    def step(self, batch: Batch) -> Metrics:
        metrics = super().step(batch)
        self.steps += 1
        if self.steps % self.valid_every == 0:
            self.update_early_stopping()
        return metrics

    @torch.no_grad()
    def update_early_stopping(self) -> None:
        """Keep the weights of the network without regularizer if its validation loss is the lowest so far (2)."""
        nets = self.model.nets
        loss = F.cross_entropy(nets["none"].eval()(self.valid["image"]), self.valid["label"]).item()
        if loss < self.lowest:
            self.lowest = loss
            nets["early_stopping"].load_state_dict(nets["none"].state_dict())

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"steps": self.steps, "lowest": self.lowest}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.steps, self.lowest = state["steps"], state["lowest"]
