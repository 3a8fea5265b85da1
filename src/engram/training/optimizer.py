"""Optimizers, learning-rate schedules (warmup, stable, decay), and their state in checkpoints."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn

from engram.core.config import Settings
from engram.core.errors import EngramError, unknown
from engram.training import distributed
from engram.training.muon import Muon


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Settings):
    """Optimizer, learning-rate schedule, gradient clipping, accumulation and precision."""

    optimizer: str = "adamw"
    """sgd, momentum, rmsprop, adam, adamw, muon, or any other class of torch.optim"""
    lr: Annotated[float, Ge(0)] = 1e-3
    """peak learning rate"""
    momentum: Annotated[float, Ge(0)] = 0.9
    """momentum coefficient (momentum, muon)"""
    weight_decay: Annotated[float, Ge(0)] = 0.01
    """decoupled weight decay; not applied to biases and gains"""
    adamw_lr: Annotated[float, Ge(0)] = 0.0
    """learning rate of the AdamW part (embeddings, heads, gains, biases) when the optimizer is Muon; 0 means lr"""
    schedule: Literal["constant", "cosine", "linear"] = "cosine"
    """shape of the learning-rate decay"""
    stable_fraction: Annotated[float, Ge(0), Lt(1)] = 0.0
    """fraction of all steps at the peak learning rate, before it decays"""
    warmup: Annotated[float, Ge(0), Lt(1)] = 0.05
    """fraction of all steps in which the learning rate rises linearly from 0"""
    clip_grad_norm: Annotated[float, Ge(0)] = 0.0
    """clip the global gradient norm to this value; 0 disables"""
    grad_accum: Annotated[int, Ge(1)] = 1
    """gradient accumulation: split each batch into this many micro-batches, to save memory"""
    grad_checkpointing: bool = False
    """gradient checkpointing: recompute the activations of Transformer blocks in the backward pass, to save memory"""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16 is mixed precision: matrix products in 16 bits, weights in 32; slower on CPUs without bfloat16"""

    def __post_init__(self) -> None:
        super().__post_init__()
        optimizer_class(self.optimizer)
        if self.stable_fraction + self.warmup >= 1:
            raise EngramError(
                f"warmup and stable_fraction must leave steps for the decay, and are {self.warmup} and "
                f"{self.stable_fraction} of all steps."
            )

    def lr_factor(self, done: float) -> float:
        """Learning rate after the fraction `done` of all steps, as a multiple of `lr`."""
        if done < self.warmup:
            return done / self.warmup
        falling = max(0.0, done - self.warmup - self.stable_fraction) / (1 - self.warmup - self.stable_fraction)
        left = 1 - min(1.0, falling)
        return {"constant": 1.0, "linear": left, "cosine": 0.5 - 0.5 * math.cos(math.pi * left)}[self.schedule]


def optimizer_step(optimizers: Sequence[torch.optim.Optimizer], factor: float) -> None:
    """A step of each optimizer, at this fraction of its peak learning rate."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak_lr"] * factor
        optimizer.step()


def optimizer_state(optimizers: Sequence[torch.optim.Optimizer]) -> Any:
    """Return the moments of the optimizers; hyperparameters come from the recipe."""
    return distributed.gather_full(
        [{"state": optimizer.state_dict()["state"]} for optimizer in optimizers], everywhere=False
    )


def load_optimizer_state(optimizer: torch.optim.Optimizer, before: dict[str, Any]) -> None:
    """Load the moments of an optimizer; hyperparameters come from the recipe."""
    if any(
        isinstance(value, Tensor) and value.is_complex() for one in before["state"].values() for value in one.values()
    ):
        raise ValueError("a moment is complex")
    optimizer.load_state_dict({**optimizer.state_dict(), "state": before["state"]})
    for weight, state in optimizer.state.items():
        check_moments(optimizer, weight, state)
        for name, value in state.items():
            if isinstance(value, Tensor) and value.shape == weight.shape:
                # fused kernels walk through memory: a moment must lie there as its weight does
                state[name] = distributed.distribute_like(value, weight)


MOMENTS: dict[type[torch.optim.Optimizer], tuple[str, ...]] = {
    torch.optim.SGD: ("momentum_buffer",),
    torch.optim.Adam: ("step", "exp_avg", "exp_avg_sq"),
    torch.optim.AdamW: ("step", "exp_avg", "exp_avg_sq"),
    Muon: ("momentum",),
}
"""state that optimizers keep of a weight: moments of its shape, and the number of steps"""


def check_moments(optimizer: torch.optim.Optimizer, weight: Tensor, state: dict[str, Any]) -> None:
    """Raise an error if a moment and its weight differ in shape: a fused kernel would read past its end."""
    names = MOMENTS.get(type(optimizer))
    if names is None or not state:  # other optimizers look at what they are given
        return
    for name in names:
        if state[name].shape != (() if name == "step" else weight.shape):
            raise ValueError(f"{name} has the shape {tuple(state[name].shape)}")


def optimizer_class(name: str) -> type[torch.optim.Optimizer]:
    """Return the class of torch.optim named `name`, case-insensitive; "momentum" is SGD with momentum."""
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


def build_optimizers(model: nn.Module, optimization: OptimizerConfig) -> Iterator[torch.optim.Optimizer]:
    """One optimizer for all parameters; Muon takes the hidden matrices and leaves the rest to AdamW."""
    learning = {name: p for name, p in model.named_parameters() if p.requires_grad}
    weights = [p for p in learning.values() if p.ndim >= 2]
    others = [p for p in learning.values() if p.ndim < 2]
    name, lr, decay = optimization.optimizer.lower(), optimization.lr, optimization.weight_decay
    if name == "muon":
        outside = {id(p) for p in embeddings_and_heads(model)}
        matrices = [p for p in weights if p.ndim == 2 and id(p) not in outside]
        if matrices:
            yield _build_optimizer("muon", optimization, lr, [(matrices, decay)])
        name, lr = "adamw", optimization.adamw_lr or lr
        weights, others, decay = [], [p for p in weights if p.ndim != 2 or id(p) in outside] + others, 0.0
    groups = [(weights, decay), (others, 0.0)] if decay else [(weights + others, 0.0)]
    if weights or others:
        yield _build_optimizer(name, optimization, lr, groups)


def embeddings_and_heads(model: nn.Module) -> Iterator[nn.Parameter]:
    """Parameters of embeddings, learned positions and output heads."""
    for name, module in model.named_modules():
        last = name.rpartition(".")[2]
        if isinstance(module, nn.Embedding) or last == "head":
            yield from module.parameters()
        yield from (p for key, p in module.named_parameters(recurse=False) if key == "position")


def _build_optimizer(
    name: str, optimization: OptimizerConfig, lr: float, groups: list[tuple[list[nn.Parameter], float]]
) -> torch.optim.Optimizer:
    cls = optimizer_class(name)
    options: dict[str, Any] = {"momentum": optimization.momentum} if name in ("momentum", "muon") else {}
    if cls in (torch.optim.Adam, torch.optim.AdamW) or (cls is torch.optim.SGD and not distributed.is_sharding()):
        options["fused"] = True  # one kernel for all parameters: three times the default's speed on a CPU
    if optimization.optimizer.lower() == "muon" and name == "adamw":
        options["betas"] = (0.9, 0.95)  # as quick to forget as the momentum beside it
    parameters = [{"params": params, "weight_decay": decay} for params, decay in groups if params]
    optimizer = cls(parameters, lr=lr, **options)  # type: ignore[call-arg]
    for group in optimizer.param_groups:
        group["peak_lr"] = lr
    return optimizer
