"""A moving average of the weights, which is what is kept in the end (Polyak & Juditsky 1992).

m_t    = min(m, (1 + t) / (10 + t))                short at first, so that the beginning is soon forgotten   (1)
theta' <- m_t theta' + (1 - m_t) theta             after every step of theta                                 (2)
"""

import copy
from typing import Any

import torch
from torch import nn

from engram.core import together
from engram.core.learner import Batch, Descent, Gradient, Loss, Metrics


class Average:
    """Follows the weights of `fast` with those of `slow`."""

    def __init__(self, slow: nn.Module, fast: nn.Module, memory: float) -> None:
        self.slow, self.fast, self.memory, self.done = slow, fast, memory, 0
        for weight in slow.parameters():
            weight.requires_grad_(False)

    @torch.no_grad()
    def follow(self) -> None:
        self.done += 1
        m = min(self.memory, (1 + self.done) / (10 + self.done))  # (1)
        torch._foreach_lerp_(list(self.slow.parameters()), list(self.fast.parameters()), 1 - m)  # (2)
        for slow, fast in zip(self.slow.buffers(), self.fast.buffers(), strict=True):
            slow.copy_(fast)


class AveragedGradient:
    """The learner `Gradient` on weights of its own, while the model is their average."""

    def __init__(self, model: nn.Module, loss: Loss, descent: Descent, steps: int, memory: float) -> None:
        self.model = model
        self.gradient = Gradient(copy.deepcopy(model), loss, descent, steps)
        together.shard(model)
        self.average = Average(model, self.gradient.model, memory)

    def step(self, batch: Batch) -> Metrics:
        metrics = self.gradient.step(batch)
        self.average.follow()
        return metrics

    def to(self, place: torch.device) -> None:
        self.model.to(place)
        self.gradient.to(place)

    def state_dict(self) -> dict[str, Any]:
        return {
            "gradient": self.gradient.state_dict(),
            "weights": together.full(self.gradient.model.state_dict(), everywhere=False),
            "averaged": self.average.done,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        together.take(self.gradient.model, state["weights"])
        self.gradient.load_state_dict(state["gradient"])
        self.average.done = state["averaged"]
