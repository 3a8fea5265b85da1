"""Batches from memory: an index and a gather, no worker processes and no Python per sample."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.data.dataset import Split, pick

Transform = Callable[[dict[str, Any], torch.Generator], dict[str, Any]]


class Batches:
    """Endless shuffled batches of a split; a new order every epoch, the remainder that fills no batch left out.

    The state is the generator as it was when the epoch began, the position in the epoch and the generator as it is:
    the order is drawn again, not saved.
    """

    def __init__(self, split: Split, batch: int, generator: torch.Generator, transform: Transform) -> None:
        if len(split) == 0:
            raise EngramError("The data has no items to learn from.")
        self.split, self.generator, self.transform = split, generator, transform
        self.batch = min(batch, len(split))
        self._begin()

    def _begin(self) -> None:
        self.origin = self.generator.get_state()
        self.order = torch.randperm(len(self.split), generator=self.generator)
        self.position = 0

    def __iter__(self) -> "Batches":
        return self

    def __next__(self) -> dict[str, Any]:
        if self.position + self.batch > len(self.split):
            self._begin()
        index = self.order[self.position : self.position + self.batch]
        self.position += self.batch
        return self.transform(gather(self.split, index), self.generator)

    def state_dict(self) -> dict[str, Any]:
        return {"origin": self.origin, "position": self.position, "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["origin"])
        self._begin()
        self.position = state["position"]
        self.generator.set_state(state["generator"])


class Same:
    """One batch for ever, for what reads no data."""

    def __init__(self, batch: dict[str, Any]) -> None:
        self.batch = batch

    def __next__(self) -> dict[str, Any]:
        return self.batch

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """There is no position."""


def gather(split: Split, index: Tensor) -> dict[str, Any]:
    return {name: pick(column, index) for name, column in split.columns.items()}
