"""Look inside a running model: `tap` marks what is worth seeing, `watch` records it or puts something in its place.

A model calls `tap("hidden", h)` on its way. With nobody watching, that is a loop over an empty list. A watch knows
which module is running (it hooks every module of the model it is given), so that what module `blocks.3` taps as
`hidden` is called `blocks.3.hidden`, and takes the names that its patterns match (`*.hidden`, `blocks.[0-3].*`).

    with watch(model, "*.hidden") as seen:
        model(x)
    seen["blocks.3.hidden"]                             # the last value, detached; seen.all(name) gives every one
    with watch(model, replace={"blocks.3.hidden": torch.zeros_like}):
        model(x)                                        # a function of the value, or a tensor, takes its place

A compiled model runs uncompiled while it is watched, so nothing has to be built twice.
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
    """Show `value` to whoever watches, and go on with what they make of it."""
    for watching in _watches:
        value = watching.see(name, value)
    return value


def watched(name: str) -> bool:
    """Whether anybody here would see `name`: what is costly to make is made only for those who look."""
    return any(watching.wants(name) for watching in _watches)


def watching() -> bool:
    """Whether anybody watches anything."""
    return bool(_watches)


class Watch(Mapping[str, Tensor]):
    """What was seen, by full name: a context manager while the model runs, a mapping afterwards."""

    def __init__(self, model: nn.Module, patterns: tuple[str, ...], replace: Mapping[str, Replacement]) -> None:
        self.model, self.patterns, self.replace = model, patterns, dict(replace)
        self.records: dict[str, list[Tensor]] = {}
        self.replaced: set[str] = set()
        """patterns that something was replaced by"""
        self._running: list[str] = []  # names of the modules that are running, the innermost last
        self._undo = ExitStack()

    def full(self, name: str) -> str:
        """The name with that of the module which is running."""
        inside = self._running[-1] if self._running else ""
        return f"{inside}.{name}" if inside else name

    def wants(self, name: str) -> bool:
        name = self.full(name)
        return any(fnmatchcase(name, pattern) for pattern in (*self.patterns, *self.replace))

    def see(self, name: str, value: Tensor) -> Tensor:
        name = self.full(name)
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
        if exception[0] is None and (idle := [pattern for pattern in self.replace if pattern not in self.replaced]):
            raise EngramError(f"Nothing was replaced: no value by the name of {', '.join(idle)} passed by.")

    def all(self, name: str) -> list[Tensor]:
        """Every value seen under `name`, in order: a recurrent cell is passed many times."""
        return self.records[name]

    def __getitem__(self, name: str) -> Tensor:
        return self.records[name][-1]

    def __iter__(self) -> Iterator[str]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def __eq__(self, other: object) -> bool:  # a mapping compares its tensors, a watch is only itself
        return self is other

    __hash__ = object.__hash__


def watch(model: nn.Module, *patterns: str, replace: Mapping[str, Replacement] | None = None) -> Watch:
    """Record what `patterns` match and replace what the keys of `replace` match; without either, record all."""
    if not patterns and not replace:
        patterns = ("*",)
    return Watch(model, patterns, replace or {})
