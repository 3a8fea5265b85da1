"""What is said while something takes long: a line on the terminal, and the progress bar of a download."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.text import Text

_silent = ContextVar("silent", default=False)


@contextmanager
def silence(silent: bool = True) -> Iterator[None]:
    """Within, nothing is announced."""
    token = _silent.set(silent or _silent.get())
    try:
        yield
    finally:
        _silent.reset(token)


def announce(what: str) -> None:
    """Print a line on standard error that says what takes long now."""
    if not _silent.get():
        print(f"engram: {what}", file=sys.stderr, flush=True)


class ReceivedColumn(DownloadColumn):
    """Bytes received of the total, if the total is known."""

    def render(self, task: Task) -> Text:
        return super().render(task) if task.total else Text()


class Progress:
    """Progress bar; package managers report no total, so their bar only pulses."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.bar = Bar(
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), ReceivedColumn(), TimeElapsedColumn(),
            console=Console(stderr=True), transient=True, disable=_silent.get() or not sys.stderr.isatty(),
        )  # fmt: skip
        self.task = self.bar.add_task(name, total=None)

    def __enter__(self) -> Self:
        if self.bar.disable:
            announce(f"downloading {self.name}")
        self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.bar.stop()

    def start(self, what: str) -> None:
        """Start a new task of unknown length."""
        self.bar.reset(self.task, description=f"{self.name}: {what}", total=None)

    def set_total(self, count: int) -> None:
        """Set the total number of bytes; 0 means unknown."""
        self.bar.update(self.task, total=count or None)

    def update(self, count: int) -> None:
        self.bar.update(self.task, advance=count)
