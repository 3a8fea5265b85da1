"""How a batch changes a model.

A learner takes one step on one batch and says what it measured; its state is explicit, so that a run can stop and
continue exactly. `Gradient` is the learner of most systems. Its step is the loop of note 003 §10.2:

    y = net(X);   E = loss(y, T)                                     (1)
    zero_grad();  E.backward()                                       (2)
    g <- g min(1, clip / |g|)                                        (3)
    kappa_t = kappa warmup(t) decay(t)                               (4)
    theta <- theta - kappa_t update(g)                               (5)

Several processes take each their rows of the batch, and g is the mean over all of it (core/together.py).
"""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from engram.core import device, together
from engram.core.errors import EngramError, unknown
from engram.core.muon import Muon

Batch = together.Batch
Metrics = dict[str, Tensor]
Loss = together.Loss


class Learner(Protocol):
    """What the loop drives, whatever the model learns by, and even if it learns nothing and is only simulated."""

    @property
    def model(self) -> nn.Module:
        """What is changed."""

    def step(self, batch: Batch) -> Metrics:
        """Let the batch change the model, and return scalars worth watching."""

    def state_dict(self) -> dict[str, Any]:
        """All that the next step depends on, apart from the model's own state: tensors, numbers, strings."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""


@dataclass(frozen=True, kw_only=True)
class Descent:
    """How to go downhill."""

    optimizer: str = "adamw"
    """sgd, momentum, rmsprop, adam, adamw, muon, or any other class of torch.optim"""
    lr: float = 1e-3
    """learning rate at its highest"""
    momentum: float = 0.9
    """how much of the last update is kept (momentum, muon)"""
    weight_decay: float = 0.01
    """pull of matrices and kernels towards zero; biases and gains are left alone"""
    rest_lr: float = 0.0
    """learning rate of AdamW beside muon, for embeddings, heads, gains and biases; 0 means lr"""
    schedule: Literal["constant", "cosine", "linear"] = "cosine"
    """how the learning rate falls after warming up"""
    hold: float = 0.0
    """part of all steps at the highest learning rate, before it falls"""
    warmup: float = 0.05
    """part of all steps in which the learning rate rises from zero"""
    clip: float = 0.0
    """largest norm of the whole gradient; 0 leaves it alone"""
    accumulate: int = 1
    """parts a batch is cut into, to be passed one after the other in less memory"""
    recompute: bool = False
    """forget what happens inside the blocks of a Transformer and compute it again on the way back: less memory"""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16 multiplies in 16 bits and keeps weights in 32: quicker on hardware that can, slower on other"""

    def __post_init__(self) -> None:
        optimizer_class(self.optimizer)
        if not 0 <= self.warmup < 1:
            raise EngramError(f"warmup is a part of all steps, at least 0 and below 1, not {self.warmup}.")
        if not 0 <= self.hold < 1 - self.warmup:
            raise EngramError(f"hold and warmup are parts of all steps and must leave some to fall, not {self.hold}.")
        if self.accumulate < 1:
            raise EngramError(f"accumulate must be at least 1, not {self.accumulate}.")
        for name in ("lr", "rest_lr", "momentum", "weight_decay", "clip"):
            if not getattr(self, name) >= 0:
                raise EngramError(f"{name} must not be negative or NaN, and is {getattr(self, name)}.")

    def rate(self, done: float) -> float:
        """The learning rate after a part `done` of all steps, as a multiple of `lr`."""
        if done < self.warmup:
            return done / self.warmup
        falling = max(0.0, done - self.warmup - self.hold) / (1 - self.warmup - self.hold)
        left = 1 - min(1.0, falling)
        return {"constant": 1.0, "linear": left, "cosine": 0.5 - 0.5 * math.cos(math.pi * left)}[self.schedule]


class Gradient:
    """Forward, loss, zero_grad, backward, step."""

    def __init__(
        self, model: nn.Module, loss: Loss, descent: Descent, steps: int, terms: Callable[[Batch], int] = together.rows
    ) -> None:
        """`terms` counts what the loss is the mean of."""
        self.model, self.loss, self.descent, self.steps, self.terms = model, loss, descent, steps, terms
        self.done = 0
        if descent.recompute:
            recompute(model)
        together.shard(model)
        self.optimizers = list(optimizers(model, descent))

    def step(self, batch: Batch) -> Metrics:
        if not self.model.training:
            self.model.train()
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        metrics: Metrics = {}
        *others, last = cut(batch, self.descent.accumulate, self.terms)
        for part, share in others:
            with together.keeping(self.passed):
                self._pass(part, share, metrics)
        self._pass(*last, metrics)
        together.average_scalars(self.model)
        if self.descent.clip:
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.descent.clip)  # (3)
            metrics["gradient"] = together.full(norm)
        self.done += 1
        rate = self.descent.rate(self.done / self.steps)  # (4)
        descend(self.optimizers, rate)  # (5)
        return metrics

    @functools.cached_property
    def passed(self) -> nn.Module:
        """(1), made when it is first needed: by then the model is on its device."""
        return together.spread(self.model, self.loss)

    def _pass(self, part: Batch, share: float, metrics: Metrics) -> None:
        """Add the gradients and metrics of a part of the batch."""
        with self._precision():
            loss, more = self.passed(part)  # (1)
        (loss if share == 1 else loss * share).backward()  # (2)
        for name, value in {"loss": loss.detach(), **more}.items():
            metrics[name] = metrics[name] + share * value if name in metrics else share * value

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        if self.descent.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(device.of(self.model).type, torch.bfloat16)

    def to(self, place: torch.device) -> None:
        self.model.to(place)

    def state_dict(self) -> dict[str, Any]:
        return {"done": self.done, "optimizers": saved(self.optimizers)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.done = state["done"]
        for optimizer, before in zip(self.optimizers, state["optimizers"], strict=True):
            restore(optimizer, before)


def descend(optimizers: Sequence[torch.optim.Optimizer], rate: float) -> None:
    """A step of each optimiser, at this part of its highest learning rate."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["highest_lr"] * rate
        optimizer.step()


def saved(optimizers: Sequence[torch.optim.Optimizer]) -> Any:
    """Moments of optimisers, for a checkpoint; their options are the recipe's, and the learning rate its schedule's."""
    return together.full([{"state": optimizer.state_dict()["state"]} for optimizer in optimizers], everywhere=False)


def restore(optimizer: torch.optim.Optimizer, before: dict[str, Any]) -> None:
    """Put an optimiser back to where it was saved: its moments, for its options are the recipe's."""
    if any(
        isinstance(value, Tensor) and value.is_complex() for one in before["state"].values() for value in one.values()
    ):
        raise ValueError("a moment is complex")
    optimizer.load_state_dict({**optimizer.state_dict(), "state": before["state"]})
    for weight, state in optimizer.state.items():
        must_fit(optimizer, weight, state)
        for name, value in state.items():
            if isinstance(value, Tensor) and value.shape == weight.shape:
                # fused kernels walk through memory: a moment must lie there as its weight does
                state[name] = together.like(value, weight)


MOMENTS: dict[type[torch.optim.Optimizer], tuple[str, ...]] = {
    torch.optim.SGD: ("momentum_buffer",),
    torch.optim.Adam: ("step", "exp_avg", "exp_avg_sq"),
    torch.optim.AdamW: ("step", "exp_avg", "exp_avg_sq"),
    Muon: ("momentum",),
}
"""what optimisers remember of a weight that has learnt: numbers as many as it has, and how many steps"""


def must_fit(optimizer: torch.optim.Optimizer, weight: Tensor, state: dict[str, Any]) -> None:
    """Refuse moments that are not those of their weight: a fused kernel would walk past their end."""
    names = MOMENTS.get(type(optimizer))
    if names is None or not state:  # other optimisers look at what they are given
        return
    for name in names:
        if state[name].shape != (() if name == "step" else weight.shape):
            raise ValueError(f"{name} has the shape {tuple(state[name].shape)}")


def recompute(model: nn.Module) -> None:
    """Let blocks forget what happens inside them, and compute it again on the way back (Chen et al. 2016)."""
    blocks: list[Any] = together.blocks(model)
    if not blocks:
        raise EngramError(f"recompute is for models that are made of blocks, and {type(model).__name__} has none.")
    for block in blocks:
        block.recomputed = True


def cut(batch: Batch, parts: int, terms: Callable[[Batch], int] = together.rows) -> Iterator[tuple[Batch, float]]:
    """This process's rows of a batch in `parts`, as many in every process, each with its weight in the mean."""
    own, whole = together.own(batch), max(1, terms(batch))
    size, parts = together.rows(own), min(parts, together.rows(batch) // together.world())
    for i in range(parts):
        rows = slice(size * i // parts, size * (i + 1) // parts)
        part = {name: column[rows] for name, column in own.items()} if parts > 1 else own
        yield part, together.world() * terms(part) / whole


def optimizer_class(name: str) -> type[torch.optim.Optimizer]:
    """The class of torch.optim that goes by `name`, in any case of letters; «momentum» is SGD with momentum."""
    known = {
        key.lower(): value
        for key, value in vars(torch.optim).items()
        if isinstance(value, type) and issubclass(value, torch.optim.Optimizer)
    }
    for unfit in ("optimizer", "lbfgs", "sparseadam"):  # the base, one that needs a closure, one for sparse gradients
        known.pop(unfit, None)
    known |= {"momentum": torch.optim.SGD, "muon": Muon}
    if name.lower() not in known:
        raise unknown("optimizer", name, known)
    return known[name.lower()]


def optimizers(model: nn.Module, descent: Descent) -> Iterator[torch.optim.Optimizer]:
    """One optimiser for all parameters; Muon takes the matrices inside and leaves the rest to AdamW."""
    learning = {name: p for name, p in model.named_parameters() if p.requires_grad}
    weights = [p for p in learning.values() if p.ndim >= 2]
    others = [p for p in learning.values() if p.ndim < 2]
    name, lr, decay = descent.optimizer.lower(), descent.lr, descent.weight_decay
    if name == "muon":
        outside = {id(p) for p in outer(model)}
        matrices = [p for p in weights if p.ndim == 2 and id(p) not in outside]
        if matrices:
            yield _optimizer("muon", descent, lr, [(matrices, decay)])
        name, lr = "adamw", descent.rest_lr or lr
        weights, others, decay = [], [p for p in weights if p.ndim != 2 or id(p) in outside] + others, 0.0
    groups = [(weights, decay), (others, 0.0)] if decay else [(weights + others, 0.0)]
    if weights or others:
        yield _optimizer(name, descent, lr, groups)


def outer(model: nn.Module) -> Iterator[nn.Parameter]:
    """What takes tokens in and gives answers out: tables of embeddings and positions, and heads."""
    for name, module in model.named_modules():
        last = name.rpartition(".")[2]
        if isinstance(module, nn.Embedding) or last == "head":
            yield from module.parameters()
        yield from (p for key, p in module.named_parameters(recurse=False) if key == "position")


def _optimizer(
    name: str, descent: Descent, lr: float, groups: list[tuple[list[nn.Parameter], float]]
) -> torch.optim.Optimizer:
    cls = optimizer_class(name)
    options: dict[str, Any] = {"momentum": descent.momentum} if name in ("momentum", "muon") else {}
    if cls in (torch.optim.Adam, torch.optim.AdamW) or (cls is torch.optim.SGD and not together.dividing()):
        options["fused"] = True  # one kernel for all parameters: three times the default's speed on a CPU
    if descent.optimizer.lower() == "muon" and name == "adamw":
        options["betas"] = (0.9, 0.95)  # as quick to forget as the momentum beside it
    parameters = [{"params": params, "weight_decay": decay} for params, decay in groups if params]
    optimizer = cls(parameters, lr=lr, **options)  # type: ignore[call-arg]
    for group in optimizer.param_groups:
        group["highest_lr"] = lr
    return optimizer
