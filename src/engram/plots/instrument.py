"""Instruments of the lab: interactive pages of single systems, and the endpoints that serve them.

A system with an instrument has two files beside its model: `instrument.py`, which responds, and `instrument.js`, which
draws. The lab finds them in the folder of the system.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from annotated_types import Ge, Le

from engram.core.config import check_bounds

Response = dict[str, Any]


class Endpoint(NamedTuple):
    """A function that responds to a page, and the dataclass of its arguments."""

    args: type
    function: Callable[..., Any]


ENDPOINTS: dict[str, Endpoint] = {}


def endpoint(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as an endpoint.

    The annotation of its first parameter is the dataclass of its arguments.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        first = next(iter(inspect.signature(function).parameters.values()))
        args = first.annotation if isinstance(first.annotation, type) else function.__globals__[first.annotation]
        ENDPOINTS[name] = Endpoint(args, function)
        return function

    return register


def check_limits(config: Any, limits: Mapping[str, tuple[float, float]]) -> None:
    """Refuse numbers outside the lowest and the highest value that an instrument allows for a field."""
    for name, (low, high) in limits.items():
        if hasattr(config, name):
            check_bounds(name, getattr(config, name), (Ge(low), Le(high)))


class Models(Protocol):
    """Runs and checkpoints that instruments open."""

    root: Path

    def open(self, source: str, step: int = -1) -> Any:
        """Load a run of the lab by its name, or a checkpoint by its path; step -1 is the newest."""


@dataclass(frozen=True, kw_only=True)
class Instrument:
    """Title and description of an instrument, and the folder of its scripts."""

    title: str
    about: str
    recipes: tuple[str, ...]
    """recipes whose runs it opens and whose pages link to it"""
    folder: Path
    """folder of instrument.js and of the scripts that it imports"""
    needs_run: bool = True
    """whether it opens a run, or has its own model"""


INSTRUMENTS: dict[str, Instrument] = {}


def register_instrument(name: str, **about: Any) -> None:
    """Add an instrument to those that the lab shows."""
    INSTRUMENTS[name] = Instrument(**about)
