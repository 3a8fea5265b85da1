r"""Exponential moving average (EMA) of the weights, which is the model that is kept.

Polyak & Juditsky 1992.

m_t = \min(m, (1 + t) / (10 + t))                          decay: small at first               (1)
\bar\theta \leftarrow m_t \bar\theta + (1 - m_t) \theta      after every update of the weights   (2)

Symbols:
    \theta       weights that are trained
    \bar\theta   their moving average
    m            ema_decay
"""

import copy
from typing import Any, Generic

import torch
from torch import nn

from engram.core.learner import Batch, Loss, M, Metrics
from engram.training import distributed
from engram.training.learner import GradientLearner
from engram.training.optimizer import OptimizerConfig


class EMA:
    """Keeps the weights of `average` as the moving average of those of `model`."""

    def __init__(self, average: nn.Module, model: nn.Module, decay: float) -> None:
        self.average, self.model, self.decay, self.done = average, model, decay, 0
        for weight in average.parameters():
            weight.requires_grad_(False)

    @torch.no_grad()
    def update(self) -> None:
        """Move the average toward the weights."""
        self.done += 1
        m = min(self.decay, (1 + self.done) / (10 + self.done))  # (1)
        torch._foreach_lerp_(list(self.average.parameters()), list(self.model.parameters()), 1 - m)  # (2)
        for average, buffer in zip(self.average.buffers(), self.model.buffers(), strict=True):
            average.copy_(buffer)


class EMALearner(Generic[M]):
    """`GradientLearner` on a copy of the model, while the model itself is the EMA of its weights."""

    def __init__(self, model: M, loss: Loss[M], optimization: OptimizerConfig, steps: int, decay: float) -> None:
        self.model = model
        self.gradient = GradientLearner(copy.deepcopy(model), loss, optimization, steps)
        distributed.shard(model)
        self.average = EMA(model, self.gradient.model, decay)

    def step(self, batch: Batch) -> Metrics:
        metrics = self.gradient.step(batch)
        self.average.update()
        return metrics

    def to(self, place: torch.device) -> None:
        self.model.to(place)
        self.gradient.to(place)

    def state_dict(self) -> dict[str, Any]:
        return {
            "gradient": self.gradient.state_dict(),
            "weights": distributed.gather_full(self.gradient.model.state_dict(), everywhere=False),
            "averaged": self.average.done,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        distributed.load_full(self.gradient.model, state["weights"])
        self.gradient.load_state_dict(state["gradient"])
        self.average.done = state["averaged"]
