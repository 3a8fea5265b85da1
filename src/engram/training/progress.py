"""Progress of a run: a bar in a terminal, plain lines anywhere else; TensorBoard.

The bar shows throughput and time left.
"""

import contextlib
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from engram.core.errors import EngramError
from engram.training.run import Run
from engram.training.train import Callback

SECONDS_BETWEEN_UPDATES = 0.1


class Throughput:
    """Items per second and time left, from the steps of this session."""

    def __init__(self, run: Run) -> None:
        self.run, self.start, self.start_step = run, time.perf_counter(), run.step

    def __str__(self) -> str:
        done, passed = self.run.step - self.start_step, time.perf_counter() - self.start
        if not done:
            return ""
        recipe = self.run.recipe
        left = (recipe.steps - self.run.step) * passed / done
        if recipe.minutes:
            left = min(left, max(0.0, 60 * recipe.minutes - self.run.seconds))
        return f"{recipe.items_per_step * done / passed:,.0f} {recipe.unit_of(self.run.data)}/s, {clock(left)} left"


class ProgressBar(Callback):
    """A bar on a terminal.

    Elsewhere a line after every evaluation: the loss, the best metric and the throughput.

    `verbose` shows all metrics.
    """

    def __init__(self, verbose: bool = False) -> None:
        self.verbose = verbose

    def on_start(self, run: Run, signals: Sequence[int]) -> None:
        self.console = Console(stderr=True, highlight=False)
        self.throughput, self.updated, self.latest = Throughput(run), 0.0, dict[str, Any]()
        self.bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[throughput]}", style="cyan"),
            TextColumn("{task.fields[metrics]}", style="green"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.bar.start()
        self.task = self.bar.add_task(
            run.recipe.name, total=run.recipe.steps, completed=run.step, throughput="", metrics=""
        )

    def on_step(self, run: Run) -> None:
        if not self.bar.disable and time.perf_counter() - self.updated > SECONDS_BETWEEN_UPDATES:
            self._update(run)

    def _update(self, run: Run) -> None:
        self.updated = time.perf_counter()
        metrics = self._metrics(run)
        self.bar.update(self.task, completed=run.step, throughput=str(self.throughput), metrics=metrics)

    def _metrics(self, run: Run) -> str:
        return brief(self.latest if self.verbose else main_metrics(self.latest, run.recipe.best_metric(self.latest)[0]))

    def on_metrics(self, run: Run, metrics: dict[str, Any], evaluated: bool) -> None:
        self.latest.update(metrics)
        if evaluated and self.bar.disable:
            text = f"step {metrics['step']}/{run.recipe.steps}  {self._metrics(run)}  {self.throughput}"
            with contextlib.suppress(OSError):  # a full disk under the log is no reason to stop
                self.console.print(Text(text), soft_wrap=True)

    def on_finish(self, run: Run) -> None:
        self._update(run)
        self.bar.stop()

    def on_exit(self) -> None:
        self.bar.stop()


class TensorBoard(Callback):
    """Writes every line of metrics for TensorBoard, into the run folder."""

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise EngramError("TensorBoard is not installed: `pip install engram[tensorboard]`.") from None
        self.new_writer: Any = SummaryWriter

    def on_start(self, run: Run, signals: Sequence[int]) -> None:
        self.writer = self.new_writer(str(run.folder.path / "tensorboard"))

    def on_metrics(self, run: Run, metrics: dict[str, Any], evaluated: bool) -> None:
        for name, value in metrics.items():
            if name not in ("step", "seconds"):
                self.writer.add_scalar(name, value, metrics["step"])

    def on_exit(self) -> None:
        self.writer.close()


def main_metrics(metrics: dict[str, Any], best: str) -> dict[str, Any]:
    """The training loss, or what stands for it, and the metric that decides which evaluation is the best."""
    evaluated = ("step", "seconds", "valid_", "test_")
    training = [name for name in metrics if not name.startswith(evaluated)]
    loss = next((name for name in training if "loss" in name), training[0] if training else "")
    chosen = (loss, best, f"test_{best.removeprefix('valid_')}")
    return {name: metrics[name] for name in chosen if name in metrics}


def brief(metrics: dict[str, Any]) -> str:
    """Metrics in a few characters; those with a dot in their name are detail for the figures."""
    return "  ".join(f"{n} {v:.4g}" for n, v in metrics.items() if n not in ("step", "seconds") and "." not in n)


def clock(seconds: float) -> str:
    """Seconds as minutes and seconds: 61 -> 1:01."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
