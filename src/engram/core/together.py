"""Several processes that learn one thing: the same batch, the same weights, the same losses as one process alone.

P processes, of which number p has the rows p, p + P, p + 2 P … of every batch:

    w_p = P terms_p / terms                  what its mean weighs: 1 where a batch divides evenly         (1)
    g = 1/P sum_p w_p g_p                    the gradient of the mean over the whole batch                (2)

`terms` counts what a loss is the mean of: rows, or tokens where rows have different numbers of them. Gradients meet
while they are still being computed (DistributedDataParallel), or weights, gradients and moments are divided among the
processes and only gathered where they are needed (FSDP2). Learners that find their changes without a gradient average
them themselves (`average`, `meet`). Alone, nothing here does anything.

What is decided (stop, a better evaluation) is decided once and told to the others, so that all go the same way.
"""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from engram.core.errors import Elsewhere, EngramError

# torch.distributed.fsdp and .tensor take half a second to import: only whoever divides a model waits for them

T = TypeVar("T")
Batch = Mapping[str, Any]
Loss = Callable[[nn.Module, Batch], tuple[Tensor, dict[str, Tensor]]]
WRAPPED = ("loss", "packed")
"""methods beside `forward` that a model or a block is passed by"""
_alone: list[bool] = []
"""raised while this process does something by itself"""
_meshes: list[Any] = []
"""how models are divided; none where each process has the whole model"""


def world() -> int:
    """How many processes there are (P)."""
    joined = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if joined and not _alone else 1


def rank() -> int:
    """Which of them this is (p)."""
    return distributed.get_rank() if world() > 1 else 0


def first() -> bool:
    """Whether this is the one that evaluates, writes and speaks."""
    return rank() == 0


# ---------------------------------------------------------------------- batches


def rows(batch: Batch) -> int:
    """How many items a batch has."""
    return len(next(iter(batch.values())))


def own(batch: Batch) -> Batch:
    """The rows of a batch that are for this process."""
    if world() == 1:
        return batch
    if rows(batch) < world():
        raise EngramError(f"A batch of {rows(batch)} cannot be divided among {world()} processes: raise --batch.")
    return {name: column[rank() :: world()] for name, column in batch.items()}


def everyone(own_B: Tensor, size: int) -> Tensor:
    """The rows of all processes in their place in the whole batch, which has `size`; gradients find their way back."""
    if len(own_B) == size:
        return own_B
    whole = own_B.new_zeros(size, *own_B.shape[1:])
    whole[rank() :: world()] = own_B
    return summed(whole)


# ---------------------------------------------------------------------- agreeing


def any_of(*flags: bool) -> tuple[bool, ...]:
    """Each flag, raised if any process raises it."""
    if world() == 1:
        return flags
    raised = torch.tensor(flags, dtype=torch.int32)
    distributed.all_reduce(raised, distributed.ReduceOp.MAX)
    return tuple(map(bool, raised.tolist()))


def from_first(work: Callable[[], T]) -> T:
    """What the first process makes of it, told to the others, which wait; it goes as JSON. An error ends them all."""
    if world() == 1:
        return work()
    if not first():
        outcome = json.loads(_told(b""))
        if "error" in outcome:
            raise Elsewhere(outcome["error"])
        return outcome["value"]  # type: ignore[no-any-return]
    try:
        with alone():
            value = work()
    except Exception as error:
        _told(json.dumps({"error": str(error)}).encode())
        raise
    _told(json.dumps({"value": value}).encode())
    return value


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Within, there is only this process: what it does waits for nobody."""
    _alone.append(True)
    try:
        yield
    finally:
        _alone.pop()


def _told(message: bytes) -> bytes:
    size = torch.tensor(len(message))
    distributed.broadcast(size, 0)
    content = torch.frombuffer(bytearray(message), dtype=torch.uint8) if first() else torch.empty(int(size)).byte()
    distributed.broadcast(content, 0)
    return bytes(content.numpy())


# ---------------------------------------------------------------------- averaging


def average(tensors: Sequence[Tensor]) -> None:
    """Let each be its mean over the processes; all of them go in one message."""
    if world() == 1 or not tensors:
        return
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    distributed.all_reduce(flat)
    for tensor, mean in zip(tensors, (flat / world()).split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(mean.view_as(tensor))


def meet(changes: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Changes of weights, by name, as their mean over the processes, and lying as the weights do."""
    if not divided(model):
        average(list(changes.values()))
        return dict(changes)
    from torch.distributed.tensor import DTensor, Partial

    weights = dict(model.named_parameters())
    met: dict[str, Tensor] = {}
    for name, change in changes.items():
        weight: Any = weights[name]
        partial = DTensor.from_local(change / world(), weight.device_mesh, [Partial()])
        met[name] = partial.redistribute(weight.device_mesh, weight.placements)
    return met


def gradients(loss: Tensor, model: nn.Module) -> dict[str, Tensor]:
    """The gradients of the weights of a model, by name, lying as the weights do; those that play no part have none."""
    weights = dict(model.named_parameters())
    for weight in weights.values():
        weight.grad = None
    loss.backward(inputs=list(weights.values()))
    found = {name: weight.grad for name, weight in weights.items() if weight.grad is not None}
    for weight in weights.values():
        weight.grad = None
    return found


def give(found: Mapping[str, Tensor], model: nn.Module) -> None:
    """Let the gradients of weights, by name, be the means over the processes of what each has found."""
    met = meet(found, model)
    for name, weight in model.named_parameters():
        weight.grad = met.get(name)


class Summed(torch.autograd.Function):
    """The sum over the processes; backwards, so are the slopes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # type: ignore[override]
        total = x.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:  # type: ignore[override]
        return Summed.forward(ctx, slope)


def summed(x: Tensor) -> Tensor:
    return x if world() == 1 else Summed.apply(x)


def gathered(x: Tensor) -> list[Tensor]:
    """What each process has in its place, as large for each."""
    if world() == 1:
        return [x]
    found = [torch.empty_like(x) for _ in range(world())]
    distributed.all_gather(found, x)
    return found


# ---------------------------------------------------------------------- models


def divide(mesh: Any) -> Any:
    """From now on divide models among the processes of a mesh, or no longer; returns what was before."""
    before = _meshes[:]
    _meshes[:] = [mesh] if mesh else []
    return before


def dividing() -> bool:
    """Whether models are to be divided."""
    return bool(_meshes) and not _alone


def shard(model: nn.Module) -> None:
    """Divide a model among the processes, if that is asked for: block by block where it has blocks, then the rest."""
    if not dividing():
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
    """Parts that are passed one after the other, each as a whole: they can be gathered or computed again alone."""
    return [module for module in model.modules() if hasattr(module, "recomputed")]


def groups(model: nn.Module) -> list[Any]:
    """The parts of a model that are divided, each as a group."""
    return [module for module in model.modules() if hasattr(module, "unshard")] if dividing() else []


def divided(model: nn.Module) -> bool:
    return bool(groups(model))


class Pass(nn.Module):
    """A model and its loss as one module: what DistributedDataParallel wraps."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        return self.loss(self.model, batch)


def spread(model: nn.Module, loss: Loss) -> nn.Module:
    """The loss of a batch, whose gradients will be the mean over the processes."""
    passed = Pass(model, loss)
    learns = any(weight.requires_grad for weight in model.parameters())
    if world() == 1 or divided(model) or not learns:
        return passed
    buffers = [name for name, _ in passed.named_buffers()]  # which are the same in every process by themselves
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(passed, buffers)
    return DistributedDataParallel(passed, gradient_as_bucket_view=True)


@contextlib.contextmanager
def keeping(passed: nn.Module) -> Iterator[None]:
    """Within, gradients are kept to oneself: there is more to come of the same batch."""
    for group in groups(passed):
        group.set_requires_gradient_sync(False, recurse=False)
    with passed.no_sync() if isinstance(passed, DistributedDataParallel) else contextlib.nullcontext():
        yield
    for group in groups(passed):
        group.set_requires_gradient_sync(True, recurse=False)


def average_scalars(model: nn.Module) -> None:
    """Average the gradients of what cannot be divided in a model that is."""
    if divided(model):
        left = [weight.grad for weight in model.parameters() if not hasattr(weight, "full_tensor")]
        average([gradient for gradient in left if gradient is not None])


@contextlib.contextmanager
def whole(model: nn.Module) -> Iterator[None]:
    """Within, every process has all weights of a model that is divided, as plain as any other's."""
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


def full(state: Any, everywhere: bool = True) -> Any:
    """A nested state in which nothing is divided any more: in every process, or in the memory of the first alone."""
    if hasattr(state, "full_tensor"):
        whole: Tensor = state.full_tensor()
        if everywhere:
            return whole
        return whole.cpu() if first() else whole.new_empty(0)
    if isinstance(state, Mapping):
        return {name: full(value, everywhere) for name, value in state.items()}
    if isinstance(state, (list, tuple)):
        return type(state)(full(value, everywhere) for value in state)
    return state


def like(value: Tensor, weight: Tensor) -> Tensor:
    """A whole tensor laid out as a weight is: divided as it, on its device, in its order in memory."""
    if not hasattr(weight, "full_tensor"):
        return torch.empty_like(weight).copy_(value)
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = weight.device_mesh, weight.placements  # type: ignore[attr-defined]
    return distribute_tensor(value.to(weight.device), mesh, placements, src_data_rank=None)


def take(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Put whole weights into a model, which may be divided."""
    own = model.state_dict()
    model.load_state_dict({name: like(value, own[name]) for name, value in weights.items()})
