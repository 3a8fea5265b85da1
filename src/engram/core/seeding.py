"""Reproducible random generators, and evaluation that does not change the random state of training."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from engram.core.errors import EngramError


def check_seed(seed: int) -> None:
    """Refuse a seed that a generator cannot take."""
    if not 0 <= seed < 2**63:
        raise EngramError(f"seed must be from 0 to 2^63 - 1, not {seed}.")


def generator(seed: int, purpose: str = "") -> torch.Generator:
    """Return a generator for one purpose, independent of those for other purposes."""
    mixed = seed
    for character in purpose:
        mixed = (mixed * 1_000_003 + ord(character)) % 2**63
    return torch.Generator().manual_seed(mixed)


@contextmanager
def isolated_eval(model: nn.Module, seed: int) -> Iterator[None]:
    """Evaluation mode without gradients, with a forked random state that is restored afterward."""
    training = model.training
    model.eval()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        try:
            yield
        finally:
            model.train(training)
