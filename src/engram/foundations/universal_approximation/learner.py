"""Refines the cells of the approximation until the error bound is small enough."""

from typing import Any

import numpy as np
import torch

from engram.core.learner import Batch, Metrics
from engram.foundations.universal_approximation.model import Approximation


class RefinementLearner:
    """Splits cells in which f varies too much, until the error bound is at most eps."""

    def __init__(self, model: Approximation, eps: float, random: torch.Generator) -> None:
        self.model, self.eps = model, eps
        inner = torch.rand(model.config.dimensions, 2, generator=random, dtype=torch.float64).sort(1).values
        self.edges = [np.concatenate([[0.0], 0.2 + 0.6 * one.numpy(), [1.0]]) for one in inner]
        self.radius = model.rebuild(self.edges)

    @property
    def tolerance(self) -> float:
        """Half the range that f may have in a cell."""
        return self.eps / (4 if self.model.config.dimensions == 1 else 14)

    @torch.no_grad()
    def step(self, batch: Batch) -> Metrics:
        if self.model.bound > self.eps:
            self.edges = [self.split_cells(axis) for axis in range(self.model.config.dimensions)]
            self.radius = self.model.rebuild(self.edges)
        return {"bound": self.model.bound.clone(), "units": self.model.used.prod().double()}

    def split_cells(self, axis: int) -> np.ndarray[Any, Any]:
        """Return the edges with cells of a wide range halved, the widest first if units are short."""
        radius = self.radius if self.radius.ndim == 1 else self.radius.amax(1 - axis)
        edges = self.edges[axis]
        wide = (radius > min(self.tolerance, 0.9 * float(radius.max()))).nonzero()[:, 0]
        free = self.model.config.max_units - (len(edges) - 1)
        chosen = wide[radius[wide].argsort(descending=True, stable=True)][:free].numpy()
        return np.sort(np.concatenate([edges, (edges[chosen] + edges[chosen + 1]) / 2]))

    def state_dict(self) -> dict[str, Any]:
        return {"edges": [torch.from_numpy(one.copy()) for one in self.edges]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.edges = [one.numpy().copy() for one in state["edges"]]
        self.radius = self.model.rebuild(self.edges)
