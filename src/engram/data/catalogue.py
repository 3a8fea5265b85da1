"""The table of data sets. Each is entered once, where it is made; the command line, the docs and the tests read it."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from engram.core.errors import EngramError, unknown
from engram.data.dataset import Info, Parts
from engram.data.sources import Source

Make = Callable[..., Parts]


@dataclass(frozen=True)
class Entry:
    """A known data set: what is said of it, and either the function that generates it or its sources."""

    info: Info
    sources: tuple[Source, ...] = ()
    generate: Make | None = None
    """takes the options of `load`; for generated sets"""
    arrange: Make | None = None
    """takes what is in the cache and the options of `load`; for sets from packages whose splits can be chosen"""

    def options(self) -> dict[str, Any]:
        """The options that `load` takes for this set, with their defaults."""
        function = self.generate or self.arrange
        return options_of(function) if function else {}


def options_of(function: Make) -> dict[str, Any]:
    """A function's options are its keyword-only arguments; with their defaults."""
    parameters = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in parameters if one.kind is one.KEYWORD_ONLY}


def check_options(what: str, options: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse an option that `what` does not have."""
    if given and not options:
        raise EngramError(f"There are no options for {what}, and {', '.join(given)} was given.")
    for name in given:
        if name not in options:
            raise unknown(f"option for {what}", name, options)


ENTRIES: dict[str, Entry] = {}


def generated(name: str, **about: Any) -> Callable[[Make], Make]:
    """Enter a set that is made by a function of keyword options; `about` is the rest of its `Info` at the defaults."""

    def enter(function: Make) -> Make:
        info = Info(name=name, licence="none needed", source="generated", **about)
        ENTRIES[name] = Entry(info, generate=function)
        return function

    return enter


def packaged(name: str, *sources: Source, arrange: Make | None = None, **about: Any) -> None:
    """Enter a set that is obtained from the first of its sources that delivers; `about` is the rest of its `Info`."""
    first = sources[0].archives[0]
    sha256 = first.sha256 or first.contents[0]
    info = Info(name=name, source=", ".join(map(str, sources)), sha256=sha256, **about)
    ENTRIES[name] = Entry(info, sources=sources, arrange=arrange)


def entry(name: str) -> Entry:
    """The entry of a known set."""
    if name not in ENTRIES:
        raise unknown("data set", name, ENTRIES)
    return ENTRIES[name]
