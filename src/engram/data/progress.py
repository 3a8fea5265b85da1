"""A bar on the terminal while a data set is obtained, or one plain line where nobody watches a bar."""

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.text import Text


class Received(DownloadColumn):
    """How much has come of how much, where that is known."""

    def render(self, task: Task) -> Text:
        return super().render(task) if task.total else Text()


class Progress:
    """What is being done and how far it is; package managers do not say how far they are, so their bar only moves."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.bar = Bar(
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), Received(), TimeElapsedColumn(),
            console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty(),
        )  # fmt: skip
        self.task = self.bar.add_task(name, total=None)

    def __enter__(self) -> Self:
        if self.bar.disable:
            print(f"engram: obtaining {self.name}", file=sys.stderr)
        self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.bar.stop()

    def doing(self, what: str) -> None:
        """Begin something new, of unknown length."""
        self.bar.reset(self.task, description=f"{self.name}: {what}", total=None)

    def expect(self, count: int) -> None:
        """The number of bytes to come, if it is known (not 0)."""
        self.bar.update(self.task, total=count or None)

    def advance(self, count: int) -> None:
        self.bar.update(self.task, advance=count)
