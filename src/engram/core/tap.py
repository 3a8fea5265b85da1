"""Record and replace activations: a model names them with `tap`, `watch` records or replaces them.

A model calls `tap("hidden", h)` in its forward pass; without a watch, that is a loop over an empty list. A watch hooks
every module, so that the tap `hidden` of the module `blocks.3` is called `blocks.3.hidden`, and records the names that
its patterns match (`*.hidden`, `blocks.[0-3].*`).

    with watch(model, "*.hidden") as activations:
        model(x)
    activations["blocks.3.hidden"]                      # the last value, detached; activations.all(name) has all
    with watch(model, replace={"blocks.3.hidden": torch.zeros_like}):
        model(x)                                        # replaced by a function of the value, or a tensor

A compiled model runs uncompiled while it is watched.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from engram.core.errors import EngramError

Replacement = Tensor | Callable[[Tensor], Tensor]

_watches: list["Watch"] = []


def tap(name: str, value: Tensor) -> Tensor:
    """Let active watches record or replace `value`; return the value to continue with."""
    for watch in _watches:
        value = watch.observe(name, value)
    return value


def is_watched(name: str) -> bool:
    """Return whether a watch records or replaces `name`, for values that are costly to compute."""
    return any(watch.matches(name) for watch in _watches)


def is_watching() -> bool:
    """Return whether any watch is active."""
    return bool(_watches)


class Watch(Mapping[str, Tensor]):
    """Recorded activations by full name: a context manager while the model runs, a mapping afterward."""

    def __init__(self, model: nn.Module, patterns: tuple[str, ...], replace: Mapping[str, Replacement]) -> None:
        self.model, self.patterns, self.replace = model, patterns, dict(replace)
        self.records: dict[str, list[Tensor]] = {}
        self.replaced: set[str] = set()
        """patterns that replaced a value"""
        self._running: list[str] = []  # names of the running modules, the innermost last
        self._undo = ExitStack()

    def full_name(self, name: str) -> str:
        """Return the name prefixed with that of the running module."""
        module = self._running[-1] if self._running else ""
        return f"{module}.{name}" if module else name

    def matches(self, name: str) -> bool:
        name = self.full_name(name)
        return any(fnmatchcase(name, pattern) for pattern in (*self.patterns, *self.replace))

    def observe(self, name: str, value: Tensor) -> Tensor:
        name = self.full_name(name)
        for pattern, replacement in self.replace.items():
            if fnmatchcase(name, pattern):
                value = replacement(value) if callable(replacement) else replacement.expand_as(value)
                self.replaced.add(pattern)
        if any(fnmatchcase(name, pattern) for pattern in self.patterns):
            self.records.setdefault(name, []).append(value.detach())
        return value

    def __enter__(self) -> "Watch":
        for name, module in self.model.named_modules():
            name = name.removeprefix("_orig_mod").lstrip(".")  # where torch.compile wrapped the model
            enter = module.register_forward_pre_hook(lambda module, args, name=name: self._running.append(name))
            leave = module.register_forward_hook(lambda module, args, out: self._leave(), always_call=True)
            self._undo.callback(enter.remove)
            self._undo.callback(leave.remove)
        if "torch._dynamo" in sys.modules:  # otherwise nothing is compiled, and importing it takes seconds
            self._undo.enter_context(torch.compiler.set_stance("force_eager"))
        _watches.append(self)
        self._undo.callback(_watches.remove, self)
        return self

    def _leave(self) -> None:
        self._running.pop()

    def __exit__(self, *exception: Any) -> None:
        self._undo.close()
        if exception[0] is None and (unused := [pattern for pattern in self.replace if pattern not in self.replaced]):
            raise EngramError(f"Nothing was replaced: there is no activation named {', '.join(unused)}.")

    def all(self, name: str) -> list[Tensor]:
        """Return all values recorded under `name`, in order: a recurrent cell runs many times."""
        return self.records[name]

    def __getitem__(self, name: str) -> Tensor:
        return self.records[name][-1]

    def __iter__(self) -> Iterator[str]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def __eq__(self, other: object) -> bool:  # a mapping would compare tensors
        return self is other

    __hash__ = object.__hash__


def watch(model: nn.Module, *patterns: str, replace: Mapping[str, Replacement] | None = None) -> Watch:
    """Record activations that match `patterns`, replace those that match keys of `replace`.

    By default record all.
    """
    if not patterns and not replace:
        patterns = ("*",)
    return Watch(model, patterns, replace or {})
