"""Models that somebody else describes: built as far as their weights justify it, and no further.

A few bytes of a configuration can ask for more numbers than a machine has room for. Weights cannot: they are there.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.nn.modules import module

from engram.core.errors import EngramError

TIMES = 8
"""how much larger than its weights a model may be: those of 8 or 16 bits become 32, and a learner may hold copies"""
ALWAYS = 256 << 20
"""bytes that a model may have whatever its weights: tables that are computed are not saved"""
PARTS = 20_000
"""layers, and layers within layers"""


@contextmanager
def no_larger_than(weights: int, source: object) -> Iterator[None]:
    """Refuse to build a model that weights of so many bytes cannot be those of, as soon as it shows."""
    bytes_, parts = weights * TIMES + ALWAYS, PARTS

    def count(owner: Any, name: str, value: Any) -> None:
        nonlocal bytes_, parts
        bytes_ -= value.numel() * value.element_size() if isinstance(value, Tensor) else 0
        parts -= 1
        if bytes_ < 0 or parts < 0:
            raise EngramError(f"{source} describes a model that is far larger than its weights.")

    handles = [
        module.register_module_parameter_registration_hook(count),
        module.register_module_buffer_registration_hook(count),
        module.register_module_module_registration_hook(count),
    ]
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise EngramError(f"The model that {source} describes cannot be built: {reason}.") from error
    finally:
        for handle in handles:
            handle.remove()


def bytes_of(weights: Mapping[str, Tensor]) -> int:
    """What tensors take."""
    return sum(value.numel() * value.element_size() for value in weights.values())
