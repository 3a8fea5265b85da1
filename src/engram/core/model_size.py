"""Size limits of models.

A file of a few bytes or a mistyped number can ask for more memory than there is.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.nn import init
from torch.nn.modules import module
from torch.overrides import TorchFunctionMode

from engram.core.errors import EngramError
from engram.core.memory import available_memory, gigabytes

TIMES = 8
"""how much larger than its weights a model may be: 8 or 16 bits become 32, and a learner may hold copies"""
ALWAYS = 256 << 20
"""bytes that a model may have whatever its weights: computed buffers are not saved"""
PARTS = 20_000
"""most modules that a model may have"""

BUILDING = (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)
"""errors of a model that cannot be built from a configuration"""


@contextmanager
def limit_model_size(weights: int, source: object) -> Iterator[None]:
    """Abort model construction once its parameters exceed what the checkpoint's size can justify."""

    def refuse() -> None:
        raise EngramError(f"{source} describes a model that is far larger than its weights.")

    with limit_construction(weights * TIMES + ALWAYS, PARTS, refuse):
        try:
            yield
        except BUILDING as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
            raise EngramError(f"The model that {source} describes cannot be built: {reason}.") from error


@contextmanager
def limit_to_memory(copies: int) -> Iterator[None]:
    """Abort model construction once `copies` of its parameters exceed the available memory.

    Copies: gradients, moments.
    """
    available = available_memory()
    if available is None:
        yield
        return

    def refuse() -> None:
        held = "its weights take" if copies == 1 else "its weights, their gradients and the optimizer's moments take"
        raise EngramError(
            f"The model is too large: {held} more than the {gigabytes(available)} of memory that are available."
        )

    with limit_construction(available // copies, math.inf, refuse):
        yield


@contextmanager
def limit_construction(bytes_: int, parts: float, refuse: Callable[[], None]) -> Iterator[None]:
    """Call `refuse` once models built within exceed these bytes of parameters and buffers, or modules."""

    def count(owner: Any, name: str, value: Any) -> None:
        nonlocal bytes_, parts
        bytes_ -= value.numel() * value.element_size() if isinstance(value, Tensor) else 0
        parts -= 1
        if bytes_ < 0 or parts < 0:
            refuse()

    handles = [
        module.register_module_parameter_registration_hook(count),
        module.register_module_buffer_registration_hook(count),
        module.register_module_module_registration_hook(count),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


INITIALIZATIONS = (init.normal_, init.uniform_, init.kaiming_uniform_, init.xavier_uniform_)


class SkipRandomWeights(TorchFunctionMode):
    """Leaves out the random initialization of models built within, whose weights are loaded afterwards.

    Numbers that a method would draw are 0, for `trunc_normal_` draws again until they lie between its bounds.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in INITIALIZATIONS:
            return args[0] if args else kwargs["tensor"]
        if func in (Tensor.normal_, Tensor.uniform_):
            return args[0].zero_()
        return func(*args, **(kwargs or {}))


def bytes_of(weights: Mapping[str, Tensor]) -> int:
    """Bytes of tensors."""
    return sum(value.numel() * value.element_size() for value in weights.values())
