"""Devices: the CPU, or a GPU per process.

Only learning by gradient moves to a GPU: the model, its optimizer and the batches. What is compiled for the processor
(neurons, word vectors, Boltzmann machines) stays where it is. Batches are made in memory that a GPU can fetch from
by itself (pinned), while it is still busy with the one before. Evaluations are written as if there were one device
only; while they go on, tensors that meet on two devices are brought together (`DevicePromotion`).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from engram.core.errors import EngramError, unknown

CPU = torch.device("cpu")
NAMES = ("auto", "cpu", "cuda")
"""names of devices"""


def resolve_device(name: str, local_rank: int = 0) -> torch.device:
    """Return the device named auto, cpu or cuda; each process of a machine has its own GPU."""
    if name not in NAMES:
        raise unknown("device", name, NAMES)
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return CPU
    if not torch.cuda.is_available():
        raise EngramError("There is no GPU here that torch can use: leave out --device.")
    if local_rank >= torch.cuda.device_count():
        raise EngramError(f"There are {torch.cuda.device_count()} GPUs here, and {local_rank + 1} processes or more.")
    return torch.device("cuda", local_rank)


def to_device(batch: Mapping[str, Any], device: torch.device) -> Mapping[str, Any]:
    """Move a batch to a device."""
    if device == CPU:
        return batch
    pinned = device.type == "cuda"
    return {
        name: (column.pin_memory() if pinned else column).to(device, non_blocking=True)
        if isinstance(column, Tensor)
        else column
        for name, column in batch.items()
    }


def device_of(model: nn.Module) -> torch.device:
    """The device of a model."""
    return next((weight.device for weight in model.parameters()), CPU)


class DevicePromotion(TorchFunctionMode):
    """Within, operations on tensors of several devices run on `device`.

    What is changed in place stays on its device, and random numbers are drawn on the device of their generator.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device

    def __torch_function__(
        self, function: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if function is Tensor.numpy:
            return args[0].cpu().numpy(**kwargs)
        leaves = tree_leaves((args, kwargs))
        places = {leaf.device for leaf in leaves if isinstance(leaf, Tensor) and leaf.ndim}
        drawing = [leaf.device for leaf in leaves if isinstance(leaf, torch.Generator)]
        places.update(drawing if places else [])
        if len(places) < 2:
            return function(*args, **kwargs)
        place = drawing[0] if drawing else args[0].device if in_place(function) else self.device
        args, kwargs = tree_map(lambda leaf: leaf.to(place) if isinstance(leaf, Tensor) else leaf, (args, kwargs))
        return function(*args, **kwargs)


def in_place(function: Callable[..., Any]) -> bool:
    """Whether a torch function changes its first argument in place."""
    name = getattr(function, "__name__", "")
    return name == "__setitem__" or name.startswith("__i") or (name.endswith("_") and not name.endswith("__"))
