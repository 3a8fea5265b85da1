"""Learner of a modern Hopfield network: stores the patterns of every batch."""

from typing import Any

import torch

from engram.core.learner import Batch, Metrics
from engram.memory.modern_hopfield.model import ModernHopfield


class ModernHopfieldLearner:
    """Store the patterns of every batch until the memory is full."""

    def __init__(self, model: ModernHopfield) -> None:
        self.model = model

    @torch.no_grad()
    def step(self, batch: Batch) -> Metrics:
        x_BN = batch["pattern"][: self.model.config.patterns - int(self.model.stored)]
        self.model.store(x_BN)
        return {"energy": self.model.energy(batch["pattern"]).mean() / self.model.config.units}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass
