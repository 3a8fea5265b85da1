r"""Distributed training: several processes train one model with the same losses as one process alone.

Process p of P has the rows p, p + P, p + 2 P … of every batch:

    w_p = P n_p / n                   weight of its mean: 1 where a batch divides evenly        (1)
    g = 1 / P \sum_p w_p g_p          gradient of the mean over the whole batch                 (2)

    Symbols:
        n, n_p    terms of the loss in the batch and in its rows: rows, or tokens

Gradients are averaged while they are being computed (DDP), or weights, gradients and moments are sharded over the
processes and gathered where they are needed (FSDP2). Updates found without a gradient are averaged by
`average_updates`. Every collective of engram is in this file; with one process, nothing here does anything.

Decisions (to stop, a better evaluation) are made by the main process and broadcast, so that all do the same.
"""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from engram.core import global_batch
from engram.core.errors import EngramError, RemoteError
from engram.core.global_batch import is_local, local_only
from engram.core.learner import Batch, Loss

# torch.distributed.fsdp and .tensor take half a second to import: only whoever divides a model waits for them

T = TypeVar("T")
WRAPPED = ("loss", "packed")
"""methods beside `forward` that a model or a block is passed by"""
_meshes: list[Any] = []
"""how models are divided; none where each process has the whole model"""


def world_size() -> int:
    """Number of processes (P)."""
    joined = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if joined and not is_local() else 1


def rank() -> int:
    """Rank of this process (p)."""
    return distributed.get_rank() if world_size() > 1 else 0


def is_main() -> bool:
    """Whether this is the main process (rank 0), which evaluates, writes and prints."""
    return rank() == 0


# ---------------------------------------------------------------------- batches


def rows(batch: Batch) -> int:
    """Number of rows of a batch."""
    return len(next(iter(batch.values())))


def shard_batch(batch: Batch) -> Batch:
    """The rows of a batch that this process works on: every P-th."""
    if world_size() == 1:
        return batch
    if rows(batch) < world_size():
        raise EngramError(f"A batch of {rows(batch)} cannot be divided among {world_size()} processes: raise --batch.")
    return {name: column[rank() :: world_size()] for name, column in batch.items()}


def all_gather_rows(own_B: Tensor, size: int) -> Tensor:
    """Rows of all processes in the order of the whole batch, which has `size`; differentiable."""
    if len(own_B) == size:
        return own_B
    whole = own_B.new_zeros(size, *own_B.shape[1:])
    whole[rank() :: world_size()] = own_B
    return all_reduce_sum(whole)


# ---------------------------------------------------------------------- agreeing


def any_rank(*flags: bool) -> tuple[bool, ...]:
    """Each flag, true if it is true in any process."""
    if world_size() == 1:
        return flags
    raised = torch.tensor(flags, dtype=torch.int32)
    distributed.all_reduce(raised, distributed.ReduceOp.MAX)
    return tuple(map(bool, raised.tolist()))


def broadcast_from_main(work: Callable[[], T]) -> T:
    """Result of `work` in the main process, broadcast to all as JSON; an error there is raised in all."""
    if world_size() == 1:
        return work()
    if not is_main():
        outcome = json.loads(_broadcast_bytes(b""))
        if "error" in outcome:
            raise RemoteError(outcome["error"])
        return outcome["value"]  # type: ignore[no-any-return]
    try:
        with local_only():
            value = work()
    except Exception as error:
        _broadcast_bytes(json.dumps({"error": str(error)}).encode())
        raise
    _broadcast_bytes(json.dumps({"value": value}).encode())
    return value


def _broadcast_bytes(message: bytes) -> bytes:
    size = torch.tensor(len(message))
    distributed.broadcast(size, 0)
    content = torch.frombuffer(bytearray(message), dtype=torch.uint8) if is_main() else torch.empty(int(size)).byte()
    distributed.broadcast(content, 0)
    return bytes(content.numpy())


# ---------------------------------------------------------------------- averaging


def average(tensors: Sequence[Tensor]) -> None:
    """Replace each tensor by its mean over the processes, in one all-reduce."""
    if world_size() == 1 or not tensors:
        return
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    distributed.all_reduce(flat)
    for tensor, mean in zip(tensors, (flat / world_size()).split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(mean.view_as(tensor))


def average_updates(changes: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Updates of weights by name, averaged over the processes and sharded like the weights."""
    if not is_sharded(model):
        average(list(changes.values()))
        return dict(changes)
    from torch.distributed.tensor import DTensor, Partial

    weights = dict(model.named_parameters())
    met: dict[str, Tensor] = {}
    for name, change in changes.items():
        weight: Any = weights[name]
        partial = DTensor.from_local(change / world_size(), weight.device_mesh, [Partial()])
        met[name] = partial.redistribute(weight.device_mesh, weight.placements)
    return met


class AllProcesses:
    """Reductions over a batch whose rows are spread over all processes (core/global_batch.py)."""

    def is_split(self) -> bool:
        return world_size() > 1

    def sum(self, x: Tensor) -> Tensor:
        return all_reduce_sum(x)

    def gather_rows(self, x: Tensor, size: int) -> Tensor:
        return all_gather_rows(x, size)

    def local_rows(self, x: Tensor) -> Tensor:
        return x[rank() :: world_size()]


global_batch.install(AllProcesses())


class Summed(torch.autograd.Function):
    """All-reduce sum; its backward pass all-reduces the gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # type: ignore[override]
        total = x.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return Summed.forward(ctx, gradient)


def all_reduce_sum(x: Tensor) -> Tensor:
    return x if world_size() == 1 else Summed.apply(x)


def all_gather(x: Tensor) -> list[Tensor]:
    """The tensors of all processes, in the order of their ranks; all have one shape."""
    if world_size() == 1:
        return [x]
    found = [torch.empty_like(x) for _ in range(world_size())]
    distributed.all_gather(found, x)
    return found


# ---------------------------------------------------------------------- models


def set_mesh(mesh: Any) -> Any:
    """Shard models over a device mesh from now on (FSDP2), or no longer; returns the mesh before."""
    before = _meshes[:]
    _meshes[:] = [mesh] if mesh else []
    return before


def is_sharding() -> bool:
    """Whether models are to be sharded (FSDP2)."""
    return bool(_meshes) and not is_local()


def shard(model: nn.Module) -> None:
    """Shard a model over the processes if asked for: block by block where it has blocks, then the rest."""
    if not is_sharding():
        return
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    for weight in model.parameters():
        weight.data = weight.data.contiguous()  # what lies channels last cannot be divided
    scalars = {weight for weight in model.parameters() if weight.ndim == 0}  # nor can these
    for part in (*blocks(model), model):
        fully_shard(part, mesh=_meshes[0], ignored_params=scalars)
        for method in WRAPPED:
            if hasattr(part, method):
                register_fsdp_forward_method(part, method)


def blocks(model: nn.Module) -> list[nn.Module]:
    """Blocks of a model: units of sharding and of gradient checkpointing."""
    return [module for module in model.modules() if hasattr(module, "grad_checkpointing")]


def groups(model: nn.Module) -> list[Any]:
    """The sharded modules of a model."""
    return [module for module in model.modules() if hasattr(module, "unshard")] if is_sharding() else []


def is_sharded(model: nn.Module) -> bool:
    return bool(groups(model))


class Pass(nn.Module):
    """A model and its loss as one module: what DistributedDataParallel wraps."""

    def __init__(self, model: nn.Module, loss: Loss[Any]) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        return self.loss(self.model, batch)


def wrap_ddp(model: nn.Module, loss: Loss[Any]) -> nn.Module:
    """Model and loss as one module whose gradients are averaged over the processes (DDP)."""
    passed = Pass(model, loss)
    learns = any(weight.requires_grad for weight in model.parameters())
    if world_size() == 1 or is_sharded(model) or not learns:
        return passed
    buffers = [name for name, _ in passed.named_buffers()]  # which are the same in every process by themselves
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(passed, buffers)
    return DistributedDataParallel(passed, gradient_as_bucket_view=True)


@contextlib.contextmanager
def no_sync(passed: nn.Module) -> Iterator[None]:
    """Within, gradients are accumulated without synchronization: more micro-batches follow."""
    for group in groups(passed):
        group.set_requires_gradient_sync(False, recurse=False)
    with passed.no_sync() if isinstance(passed, DistributedDataParallel) else contextlib.nullcontext():
        yield
    for group in groups(passed):
        group.set_requires_gradient_sync(True, recurse=False)


def average_scalars(model: nn.Module) -> None:
    """Average the gradients of scalar weights of a sharded model, which cannot be sharded."""
    if is_sharded(model):
        left = [weight.grad for weight in model.parameters() if not hasattr(weight, "full_tensor")]
        average([gradient for gradient in left if gradient is not None])


@contextlib.contextmanager
def unsharded(model: nn.Module) -> Iterator[None]:
    """Within, every process holds the full weights of a sharded model."""
    found = groups(model)
    for group in found:
        group.unshard()
    hooks = [(group, vars(group)["_forward_pre_hooks"], vars(group)["_forward_hooks"]) for group in found]
    methods = [(group, name, vars(group).pop(name)) for group in found for name in WRAPPED if name in vars(group)]
    for group in found:  # which would gather weights and divide them again with every pass
        vars(group).update(_forward_pre_hooks={}, _forward_hooks={})
    try:
        yield
    finally:
        for group, before, after in hooks:
            vars(group).update(_forward_pre_hooks=before, _forward_hooks=after)
        for group, name, method in methods:
            setattr(group, name, method)
        for group in found:
            group.reshard()


def gather_full(state: Any, everywhere: bool = True) -> Any:
    """A nested state with full tensors instead of shards: in every process, or in the main process alone."""
    if hasattr(state, "full_tensor"):
        whole: Tensor = state.full_tensor()
        if everywhere:
            return whole
        return whole.cpu() if is_main() else whole.new_empty(0)
    if isinstance(state, Mapping):
        return {name: gather_full(value, everywhere) for name, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(gather_full(value, everywhere) for value in state)
    return state


def distribute_like(value: Tensor, weight: Tensor) -> Tensor:
    """A full tensor sharded like a weight, on its device and with its memory layout."""
    if not hasattr(weight, "full_tensor"):
        return torch.empty_like(weight).copy_(value)
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = weight.device_mesh, weight.placements  # type: ignore[attr-defined]
    return distribute_tensor(value.to(weight.device), mesh, placements, src_data_rank=None)


def load_full(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Load full weights into a model, which may be sharded."""
    own = model.state_dict()
    model.load_state_dict({name: distribute_like(value, own[name]) for name, value in weights.items()})
