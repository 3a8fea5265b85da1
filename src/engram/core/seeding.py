"""Randomness that a seed reproduces bit for bit, and that never leaks from looking into learning."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from engram.core.errors import EngramError


def check_seed(seed: int) -> None:
    if not 0 <= seed < 2**63:
        raise EngramError(f"seed must be from 0 to 2^63 - 1, not {seed}.")


def generator(seed: int, purpose: str = "") -> torch.Generator:
    """A generator of its own for each purpose, so that more of one kind of randomness does not shift another."""
    mixed = seed
    for character in purpose:
        mixed = (mixed * 1_000_003 + ord(character)) % 2**63
    return torch.Generator().manual_seed(mixed)


@contextmanager
def aside(model: nn.Module, seed: int) -> Iterator[None]:
    """Evaluate or draw without a trace: evaluation mode, no gradients, and the global generator put back after."""
    training = model.training
    model.eval()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        try:
            yield
        finally:
            model.train(training)
