"""Sums over the global batch: local with one process, all-reduced with several.

For layers and losses that need them. With several processes, each of which holds some of the rows,
training/distributed.py installs the reduction over all of them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor


class Reduction(Protocol):
    """Differentiable reductions over the global batch."""

    def is_split(self) -> bool:
        """Whether other processes hold rows of the batch too."""

    def sum(self, x: Tensor) -> Tensor:
        """The sum of x over the processes."""

    def gather_rows(self, x: Tensor, size: int) -> Tensor:
        """The rows of all processes, in their place in the whole batch, which has `size`."""

    def local_rows(self, x: Tensor) -> Tensor:
        """The rows of this process, of all in the batch."""


class Local:
    """One process holds all rows."""

    def is_split(self) -> bool:
        return False

    def sum(self, x: Tensor) -> Tensor:
        return x

    def gather_rows(self, x: Tensor, size: int) -> Tensor:
        return x

    def local_rows(self, x: Tensor) -> Tensor:
        return x


_reductions: list[Reduction] = [Local()]


def install(reduction: Reduction) -> None:
    """Install the reduction that `batch_sum` and `gather_rows` use."""
    _reductions[:] = [reduction]


def is_split() -> bool:
    """Whether other processes hold rows of the batch too."""
    return _reductions[0].is_split()


def batch_sum(x: Tensor) -> Tensor:
    """Return the sum over all rows of the batch, given the sum over rows of this process."""
    return _reductions[0].sum(x)


def batch_sums(*vectors: Tensor) -> tuple[Tensor, ...]:
    """Return the sum of each vector over all rows of the batch, in one all-reduce."""
    if not is_split():
        return vectors
    return batch_sum(torch.cat(vectors)).split([len(one) for one in vectors])


def gather_rows(x: Tensor, size: int) -> Tensor:
    """Return the rows of the whole batch of `size`, given those of this process."""
    return _reductions[0].gather_rows(x, size)


def local_rows(x: Tensor) -> Tensor:
    """Return the rows of this process, given those of the whole batch."""
    return _reductions[0].local_rows(x)


_local: list[bool] = []


@contextmanager
def local_only() -> Iterator[None]:
    """Within this context, the process works alone and waits for no other."""
    _local.append(True)
    try:
        yield
    finally:
        _local.pop()


def is_local() -> bool:
    """Return whether this process works alone."""
    return bool(_local)
