"""What a person sees while it learns: a bar with speed and time left in a terminal, plain lines anywhere else."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar
from rich.text import Text

from engram.core.errors import EngramError

if TYPE_CHECKING:
    from engram.training.run import Run

SECONDS_BETWEEN_UPDATES = 0.1


class Progress:
    """Shows a run; `quiet` shows nothing, and a TensorBoard writer may listen in."""

    def __init__(self, quiet: bool = False, tensorboard: bool = False) -> None:
        self.quiet = quiet
        self.console = Console(stderr=True, highlight=False)
        self.new_writer = tensorboard_writer() if tensorboard else None

    @contextlib.contextmanager
    def of(self, run: "Run", asked: Sequence[int] = ()) -> Iterator[None]:
        """While `run` goes on; `asked` are the signals that have asked it to stop."""
        self.run, self.asked, self.said = run, asked, 0.0
        self.latest: dict[str, Any] = {}
        self.began, self.began_at = time.perf_counter(), run.step
        columns = (
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[pace]}", style="cyan"),
            TextColumn("{task.fields[values]}", style="green"),
        )
        hidden = self.quiet or not self.console.is_terminal
        with self._writer(run.folder.path), Bar(*columns, console=self.console, disable=hidden) as self.bar:
            self.task = self.bar.add_task(
                run.recipe.name, total=run.recipe.steps, completed=run.step, pace="", values=""
            )
            yield
            self.moved(always=True)

    @contextlib.contextmanager
    def _writer(self, folder: Path) -> Iterator[None]:
        self.writer = self.new_writer(str(folder / "tensorboard")) if self.new_writer else None
        try:
            yield
        finally:
            if self.writer:
                self.writer.close()

    def moved(self, always: bool = False) -> None:
        """One step further; the screen is touched ten times a second at most."""
        now = time.perf_counter()
        if self.bar.disable or not (always or now - self.said > SECONDS_BETWEEN_UPDATES):
            return
        self.said = now
        self.bar.update(self.task, completed=self.run.step, pace=self.pace(), values=brief(self.latest))

    def show(self, line: dict[str, Any], important: bool = False) -> None:
        """A line of metrics: into the bar, or as a line of its own where there is no bar and it is important."""
        self.latest.update(line)
        if self.writer:
            for name, value in line.items():
                if name not in ("step", "seconds"):
                    self.writer.add_scalar(name, value, line["step"])
        if important and not self.quiet and not self.console.is_terminal:
            text = f"step {line['step']}/{self.run.recipe.steps}  {brief(self.latest)}  {self.pace()}"
            with contextlib.suppress(OSError):  # a full disk under the log is no reason to stop
                self.console.print(Text(text), soft_wrap=True)

    def pace(self) -> str:
        """Throughput and time left, from the steps of this session."""
        done, passed = self.run.step - self.began_at, time.perf_counter() - self.began
        if not done:
            return ""
        recipe = self.run.recipe
        left = (recipe.steps - self.run.step) * passed / done
        if recipe.minutes:
            left = min(left, max(0.0, 60 * recipe.minutes - self.run.seconds))
        return f"{recipe.per_step * done / passed:,.0f} {recipe.unit}/s, {clock(left)} left"


def brief(line: dict[str, Any]) -> str:
    """The metrics of a line in a few characters; what has a dot in its name is detail for the figures."""
    return "  ".join(f"{n} {v:.4g}" for n, v in line.items() if n not in ("step", "seconds") and "." not in n)


def clock(seconds: float) -> str:
    """61 -> 1:01"""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def tensorboard_writer() -> Any:
    """The class of TensorBoard's writers, if it is installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise EngramError("TensorBoard is not installed: `pip install engram[tensorboard]`.") from None
    return SummaryWriter
