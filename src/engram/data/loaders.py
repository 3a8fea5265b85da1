"""Batch loaders for data in memory.

One gather per batch, no worker processes and no Python loop over samples.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.data.dataset import Split, take_rows

Transform = Callable[[dict[str, Any], torch.Generator], dict[str, Any]]


class BatchLoader:
    """Endless shuffled batches of a split, reshuffled every epoch; the last incomplete batch is dropped.

    `state_dict` holds the generator's state at the start of the epoch, the position in the epoch and the generator's
    current state: loading draws the order again instead of saving it.
    """

    def __init__(
        self,
        split: Split,
        batch: int,
        generator: torch.Generator,
        transform: Transform = lambda batch, generator: batch,
    ) -> None:
        if len(split) == 0:
            raise EngramError("The data has no samples to train on.")
        self.split, self.generator, self.transform = split, generator, transform
        self.batch = min(batch, len(split))
        self._start_epoch()

    def _start_epoch(self) -> None:
        self.origin = self.generator.get_state()
        self.order = torch.randperm(len(self.split), generator=self.generator)
        self.position = 0

    def __iter__(self) -> "BatchLoader":
        return self

    def __next__(self) -> dict[str, Any]:
        if self.position + self.batch > len(self.split):
            self._start_epoch()
        index = self.order[self.position : self.position + self.batch]
        self.position += self.batch
        return self.transform(gather(self.split, index), self.generator)

    def state_dict(self) -> dict[str, Any]:
        return {"origin": self.origin, "position": self.position, "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["origin"])
        self._start_epoch()
        self.position = state["position"]
        self.generator.set_state(state["generator"])


class Constant:
    """The same batch again and again, for recipes without data."""

    def __init__(self, batch: dict[str, Any]) -> None:
        self.batch = batch

    def __next__(self) -> dict[str, Any]:
        return self.batch

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing: there is no state."""


def gather(split: Split, index: Tensor) -> dict[str, Any]:
    """Return the rows of every column at `index`."""
    return {name: take_rows(column, index) for name, column in split.columns.items()}
