"""Registry of data sets: each is registered where it is defined.

Command line, docs and tests read the registry.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from engram.core.errors import EngramError, unknown
from engram.data.dataset import Info, Parts
from engram.data.sources import DataSource

Builder = Callable[..., Parts]


@dataclass(frozen=True)
class Entry:
    """A data set: its description, and either the function that generates it or its sources."""

    info: Info
    sources: tuple[DataSource, ...] = ()
    generate: Builder | None = None
    """function of the options of `load` that generates the data"""
    arrange: Builder | None = None
    """function of the cached data and the options of `load` that chooses the splits of a downloaded data set"""

    def options(self) -> dict[str, Any]:
        """Return the options that `load` takes for this data set, with their defaults."""
        function = self.generate or self.arrange
        return get_options(function) if function else {}


def get_options(function: Builder) -> dict[str, Any]:
    """Return the keyword-only arguments of a function with their defaults."""
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


def register_generated(name: str, **about: Any) -> Callable[[Builder], Builder]:
    """Decorator: register a function that generates a data set; `about` completes its `Info`."""

    def register(function: Builder) -> Builder:
        info = Info(name=name, license="none needed", source="generated", **about)
        ENTRIES[name] = Entry(info, generate=function)
        return function

    return register


def register_downloaded(name: str, *sources: DataSource, arrange: Builder | None = None, **about: Any) -> None:
    """Register a data set that is downloaded from the first source that delivers.

    `about` completes its `Info`.
    """
    first = sources[0].archives[0]
    sha256 = first.sha256 or first.contents[0]
    info = Info(name=name, source=", ".join(map(str, sources)), sha256=sha256, **about)
    ENTRIES[name] = Entry(info, sources=sources, arrange=arrange)


def get_entry(name: str) -> Entry:
    """Return the registry entry of a data set."""
    if name not in ENTRIES:
        raise unknown("data set", name, ENTRIES)
    return ENTRIES[name]
