r"""Gradient learner: forward pass, loss, backward pass, optimizer step.

    E = \text{loss}(f_\theta(x), t)                         forward pass                       (1)
    g = \partial E / \partial \theta                        backward pass                      (2)
    g \leftarrow g \min(1, c / ||g||)                       gradient clipping                  (3)
    \kappa_t = \kappa w(t) d(t)                            warmup and decay                   (4)
    \theta \leftarrow \theta - \kappa_t u(g)                step of the optimizer              (5)

    Symbols:
        x, t          a batch: inputs and targets
        \theta        weights of the model f
        c             clip_grad_norm
        \kappa        peak learning rate
        u             update of the optimizer: SGD, Adam, Muon …

A learner takes one step on one batch and returns metrics; its state is explicit, so that a run resumes exactly. With
several processes each computes the gradients of its rows, and g is the mean over all (training/distributed.py).
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, Generic

import torch
from torch import nn

from engram.core import device
from engram.core.errors import EngramError
from engram.core.learner import Batch, Loss, M, Metrics
from engram.training import distributed
from engram.training.optimizer import (
    OptimizerConfig,
    build_optimizers,
    load_optimizer_state,
    optimizer_state,
    optimizer_step,
)


class GradientLearner(Generic[M]):
    """Trains a model by gradient descent on a loss."""

    def __init__(
        self,
        model: M,
        loss: Loss[M],
        optimization: OptimizerConfig,
        steps: int,
        terms: Callable[[Batch], int] = distributed.rows,
    ) -> None:
        """`terms` counts what the loss is the mean of: rows, or tokens."""
        self.model, self.loss, self.optimization, self.steps, self.terms = model, loss, optimization, steps, terms
        self.done = 0
        if optimization.grad_checkpointing:
            enable_grad_checkpointing(model)
        distributed.shard(model)
        self.optimizers = list(build_optimizers(model, optimization))

    def step(self, batch: Batch) -> Metrics:
        if not self.model.training:
            self.model.train()
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        metrics: Metrics = {}
        *others, last = micro_batches(batch, self.optimization.grad_accum, self.terms)
        for part, share in others:
            with distributed.no_sync(self.forward_loss):
                self._accumulate(part, share, metrics)
        self._accumulate(*last, metrics)
        distributed.average_scalars(self.model)
        if self.optimization.clip_grad_norm:
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.optimization.clip_grad_norm)  # (3)
            metrics["gradient"] = distributed.gather_full(norm)
        self.done += 1
        factor = self.optimization.lr_factor(self.done / self.steps)  # (4)
        optimizer_step(self.optimizers, factor)  # (5)
        return metrics

    @functools.cached_property
    def forward_loss(self) -> nn.Module:
        """Model and loss, wrapped for several processes when first needed: by then the model is on its device."""
        return distributed.wrap_ddp(self.model, self.loss)

    def _accumulate(self, part: Batch, share: float, metrics: Metrics) -> None:
        """Add the gradients and metrics of a micro-batch."""
        with self._precision():
            loss, more = self.forward_loss(part)  # (1)
        (loss if share == 1 else loss * share).backward()  # (2)
        for name, value in {"loss": loss.detach(), **more}.items():
            metrics[name] = metrics[name] + share * value if name in metrics else share * value

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        if self.optimization.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(device.device_of(self.model).type, torch.bfloat16)

    def to(self, place: torch.device) -> None:
        self.model.to(place)

    def state_dict(self) -> dict[str, Any]:
        return {"done": self.done, "optimizers": optimizer_state(self.optimizers)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.done = state["done"]
        for optimizer, before in zip(self.optimizers, state["optimizers"], strict=True):
            load_optimizer_state(optimizer, before)


def enable_grad_checkpointing(model: nn.Module) -> None:
    """Gradient checkpointing: recompute activations of blocks in the backward pass (Chen et al. 2016)."""
    blocks: list[Any] = distributed.blocks(model)
    if not blocks:
        raise EngramError(f"Gradient checkpointing needs a model made of blocks, and {type(model).__name__} has none.")
    for block in blocks:
        block.grad_checkpointing = True


def micro_batches(
    batch: Batch, parts: int, terms: Callable[[Batch], int] = distributed.rows
) -> Iterator[tuple[Batch, float]]:
    """This process's rows of a batch in `parts` micro-batches, each with its weight in the mean."""
    own, whole = distributed.shard_batch(batch), max(1, terms(batch))
    size, parts = distributed.rows(own), min(parts, distributed.rows(batch) // distributed.world_size())
    for i in range(parts):
        rows = slice(size * i // parts, size * (i + 1) // parts)
        part = {name: column[rows] for name, column in own.items()} if parts > 1 else own
        yield part, distributed.world_size() * terms(part) / whole
