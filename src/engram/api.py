"""Train from Python, on a named data set, on files or on data in memory.

run = engram.run("cnn", data="fashion", steps=500)       # a data set by name, or a path
run = engram.run("mlp", data=(X, y))                     # arrays; or a data frame with target="price"
run = engram.run("gpt", data="some text …")              # a text, a list of texts, an iterator
run = engram.run(resume="runs/cnn-1", steps=1000)        # resumes a run

run.model, run.metrics, run.history, run.figures(), run.report, run.path
"""

import contextlib
import functools
import html
import keyword
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from torch import nn

from engram.core.errors import EngramError, unknown
from engram.core.memory import allocation_error, is_allocation_failure
from engram.core.registry import get_recipe
from engram.core.seeding import isolated_eval
from engram.data import python_data
from engram.data.progress import silence
from engram.hub.load import load
from engram.plots.curves import curves
from engram.plots.figure import Figure
from engram.plots.page import figures, page
from engram.plots.report import WriteReport
from engram.training import process_group
from engram.training.progress import ProgressBar
from engram.training.run import Run
from engram.training.train import train

PARTS = ("train", "valid", "test")
"""columns of the table of metrics"""
FLAG = re.compile(r"(?<!\S)--(no-)?([a-z][a-z-]*)(?: ([A-Z]{2,}|\d[\d.e-]*\d|\d))?")
"""a flag of the command line, with the value that follows it if it is a placeholder or a number"""


class TrainedRun:
    """A run that has been trained: its model, metrics and figures."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @functools.cached_property
    def model(self) -> nn.Module:
        """The resulting model, in eval mode, with its tokenizer or with `predict` if it has one."""
        return load(self.path)

    @property
    def metrics(self) -> "MetricTable":
        """The final metrics, a dictionary that is shown as a table."""
        found = MetricTable()
        for row in self.history:
            found.update(row)
        return found

    @property
    def history(self) -> list[dict[str, float]]:
        """All recorded metrics, a row for each line of metrics.jsonl.

        `pandas.DataFrame(run.history)` is a table.
        """
        return self.run.folder.metrics()

    @property
    def path(self) -> Path:
        """The run folder."""
        return self.run.folder.path

    @property
    def report(self) -> Path:
        """The report, an HTML page."""
        return self.path / "report.html"

    def figures(self) -> "Figures":
        """The figures of the report: learning curves, and those of the recipe."""
        run = self.run
        with isolated_eval(run.learner.model, run.recipe.seed):
            return Figures([*curves(self.history, run.recipe.learns), *run.recipe.figures(run.learner, run.data)])

    def __repr__(self) -> str:
        last = {name: value for name, value in self.metrics.items() if name.startswith("test_") and "." not in name}
        values = ", ".join(f"{name}={value:.4g}" for name, value in last.items())
        return f"<run of {self.run.recipe.name} in {self.path}, step {self.run.step}: {values}>"


class MetricTable(dict[str, float]):
    """Metrics by name, shown as a table; `pandas.Series(run.metrics)` is a column."""

    def rows(self) -> dict[str, tuple[str, str, str]]:
        """Return the values of training, validation and test by the name of the metric, in order of name."""
        found: dict[str, list[str]] = {}
        for name, value in self.items():
            if "." in name:  # detail for the figures
                continue
            part = next((i for i, part in enumerate(PARTS) if i and name.startswith(f"{part}_")), 0)
            metric = name.removeprefix(f"{PARTS[part]}_") if part else name
            found.setdefault(metric, [""] * len(PARTS))[part] = f"{value:.4g}"
        return {name: (values[0], values[1], values[2]) for name, values in found.items()}

    def __repr__(self) -> str:
        lines = [("metric", *PARTS), *((name, *values) for name, values in self.rows().items())]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip() for line in lines
        )

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("metric", *PARTS))
        body = "".join(
            f"<tr><th>{html.escape(name)}</th>{''.join(f'<td>{value}</td>' for value in values)}</tr>"
            for name, values in self.rows().items()
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class Figures(Sequence[Figure]):
    """Figures of a run; the last expression of a notebook cell shows them."""

    def __init__(self, figures: Sequence[Figure]) -> None:
        self.list = list(figures)

    def __len__(self) -> int:
        return len(self.list)

    def __getitem__(self, index: Any) -> Any:
        """Return a figure by its place or title."""
        if not isinstance(index, str):
            return self.list[index]
        named = {figure.title: figure for figure in self.list}
        if index not in named:
            raise unknown("figure", index, named)
        return named[index]

    def __iter__(self) -> Iterator[Figure]:
        return iter(self.list)

    def __repr__(self) -> str:
        return f"<figures: {', '.join(figure.title for figure in self.list)}>"

    def save(self, path: str | Path) -> list[Path]:
        """Save all as one page, .html; or each as .png, .svg or .pdf, with its title in the name."""
        path = Path(path)
        if path.suffix == ".html":
            path.write_bytes(page("Figures", "", figures(self.list)))
            return [path]
        names = [re.sub(r"\W+", "-", figure.title.lower()).strip("-") for figure in self.list]
        return [
            figure.save(path.with_name(f"{path.stem}-{i}-{name}{path.suffix}"))
            for i, (name, figure) in enumerate(zip(names, self.list, strict=True), 1)
        ]

    def _repr_html_(self) -> str:
        return "".join(figure.to_html() for figure in self.list)


def run(
    name: str | None = None,
    *,
    data: Any = None,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    preset: str = "small",
    device: Literal["auto", "cpu", "cuda"] = "auto",
    quiet: bool = False,
    **changes: Any,
) -> TrainedRun:
    """Train a recipe, or resume a run; everything is kept in a run folder.

    Args:
        name: recipe, as `engram list` shows it; left out when resuming
        data: name of a data set, a path, or data in memory: an array, (X, y), a data frame, a Hugging Face data set, a
            text, a list of texts, an iterator of texts or rows
        out: run folder; by default runs/NAME-1, runs/NAME-2 …
        resume: run folder to resume, with `steps` or `minutes` as new limits if given
        preset: named set of defaults
        device: "cpu", "cuda", or "auto" for a GPU if there is one
        quiet: show no progress
        changes: settings of the recipe, as `engram run NAME --help` lists them (`weight_decay=0.1`)
    """
    if (name is None) == (resume is None):
        raise EngramError("engram.run takes the name of a recipe, or resume=FOLDER.")
    with errors_in_python(), silence(quiet), process_group.join(device=device):
        run = (
            _resume(Path(resume), data, changes)
            if resume is not None
            else _start(str(name), data, out, preset, changes)
        )
        train(run, [*([] if quiet else [ProgressBar()]), WriteReport()])
    return TrainedRun(run)


@contextlib.contextmanager
def errors_in_python() -> Iterator[None]:
    """Context manager: errors name arguments and calls of Python instead of flags and commands."""
    try:
        yield
    except EngramError as error:
        error.args = (to_python(str(error)),)
        raise
    except (MemoryError, OverflowError, RuntimeError, ValueError) as error:
        if not is_allocation_failure(error):
            raise
        raise EngramError(to_python(str(allocation_error(error)))) from error


def to_python(sentence: str) -> str:
    """Translate a sentence for the command line: `--batch` is `batch=`, and data in memory have no name."""
    sentence = re.sub(r"`engram run --resume ([^`]+)`", _resuming, sentence)
    parts = python_data.describe_stored(sentence).split("`")
    parts[::2] = [FLAG.sub(_argument, part) for part in parts[::2]]  # commands in backticks stay as they are
    return "`".join(parts)


def _resuming(command: re.Match[str]) -> str:
    """Return the call for a command that resumes a run."""
    return f'`engram.run(resume="{shlex.split(command[1])[0]}")`'


def _argument(flag: re.Match[str]) -> str:
    """Return a flag and the placeholder or number that follows it as an argument of Python."""
    negated, name, value = flag.groups()
    name = name.replace("-", "_") + ("_" if keyword.iskeyword(name) else "")
    if negated:
        return f"`{name}=False`"
    return f"`{name}=`" if value is None else f"`{name}={value}`" if value[0].isdigit() else f'`{name}="{value}"`'


def _start(name: str, data: Any, out: str | Path | None, preset: str, changes: dict[str, Any]) -> Run:
    cls = get_recipe(name)
    if isinstance(data, Path):
        data = str(data)
    in_memory = data is not None and (not isinstance(data, str) or python_data.is_text(data))
    given = {} if data is None else {"data": python_data.store(data) if in_memory else data}
    lists = {field: tuple(value) for field, value in changes.items() if isinstance(value, list)}
    return Run.start(cls.from_preset(preset, **given, **{**changes, **lists}), Path(out) if out else None)


def _resume(folder: Path, data: Any, changes: dict[str, Any]) -> Run:
    fixed = [*([] if data is None else ["data"]), *(name for name in changes if name not in ("steps", "minutes"))]
    if fixed:
        raise EngramError(f"A resumed run keeps its settings: {', '.join(fixed)} cannot change, steps and minutes can.")
    return Run.resume(folder, **changes)
