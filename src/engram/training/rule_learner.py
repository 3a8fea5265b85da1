"""Learners with a rule of their own.

The rule finds updates in its rows of a batch, and the frame averages them.

A rule knows nothing of processes. `find_updates` gives it the rows of the batch that this process works on, and the
whole weights even of a sharded model; what it finds is averaged over all rows of the batch, and sharded like the
weights (training/distributed.py).
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Generic

import torch
from torch import Tensor, nn

from engram.core.learner import Batch, M, Metrics
from engram.training import distributed
from engram.training.learner import micro_batches

Updates = dict[str, Tensor]
"""changes or gradients of weights by name"""
Rule = Callable[[Batch], tuple[Updates, Metrics]]
"""what it finds in rows of a batch: updates and metrics, each a mean over these rows or over all of the batch"""


def shard_models(*models: nn.Module) -> None:
    """Shard models over the processes if asked for (--shard): before optimizers see their weights."""
    for model in models:
        distributed.shard(model)


def find_updates(rule: Rule, batch: Batch, model: nn.Module, *others: nn.Module) -> tuple[Updates, Metrics]:
    """Return what a rule finds in a batch for a model, averaged over all rows.

    It may look at `others` too.
    """
    ((rows, share),) = micro_batches(batch, 1)
    with contextlib.ExitStack() as whole:
        for one in (model, *others):
            whole.enter_context(distributed.unsharded(one))
        found, metrics = rule(rows)
    if share != 1:
        found = {name: share * value for name, value in found.items()}
    return distributed.average_updates(found, model), {name: share * value for name, value in metrics.items()}


def find_gradients(loss: Tensor, model: nn.Module) -> Updates:
    """Return the gradients of a loss by the name of their weight; unused weights are left out."""
    weights = dict(model.named_parameters())
    for weight in weights.values():
        weight.grad = None
    loss.backward(inputs=list(weights.values()))
    found = {name: weight.grad for name, weight in weights.items() if weight.grad is not None}
    for weight in weights.values():
        weight.grad = None
    return found


def set_grads(gradients: Mapping[str, Tensor], model: nn.Module) -> None:
    """Set `.grad` of the weights, for an optimizer."""
    for name, weight in model.named_parameters():
        weight.grad = gradients.get(name)


def gather_whole(value: Tensor) -> Tensor:
    """Return a weight or an update whole, even if it is sharded."""
    whole: Tensor = distributed.gather_full(value)
    return whole


def shard_like_weights(values: Mapping[str, Tensor], model: nn.Module) -> Updates:
    """Return whole tensors, given by the names of weights, sharded as these weights are."""
    weights = dict(model.named_parameters())
    return {name: distributed.distribute_like(value, weights[name]) for name, value in values.items()}


def load_whole(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Load whole weights into a model, which may be sharded."""
    distributed.load_full(model, weights)


class RuleLearner(ABC, Generic[M]):
    """Trains a model by a learning rule.

    `find_update` says what to change, `apply_update` changes the weights.
    """

    def __init__(self, model: M, steps: int) -> None:
        self.model, self.steps, self.done = model, steps, 0

    @abstractmethod
    def find_update(self, rows: Batch) -> tuple[Updates, Metrics]:
        """Return updates by the name of their weight and metrics, as a `Rule` does."""

    @abstractmethod
    def apply_update(self, update: Updates) -> None:
        """Change the weights by the updates found in the whole batch."""

    @torch.no_grad()
    def step(self, batch: Batch) -> Metrics:
        update, metrics = find_updates(self.find_update, batch, self.model)
        self.apply_update(update)
        self.done += 1
        return metrics

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return what the next step depends on beside the model; tensors may be sharded."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`, whose tensors are whole."""
