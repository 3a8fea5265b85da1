"""Comparison page of several runs.

Results, curves against steps and time, and the settings in which they differ.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from engram.core.config import flatten
from engram.core.files import write, writing
from engram.plots import page
from engram.plots.curves import series
from engram.plots.figure import COLORS, Figure, line, plot
from engram.plots.report import headline
from engram.training.progress import clock
from engram.training.run import recipe_of
from engram.training.run_folder import RunFolder

Rows = Sequence[Mapping[str, Any]]


def write_comparison(paths: Sequence[Path], out: Path) -> Path:
    """Write the comparison page of several runs, which may be unfinished or of different recipes."""
    folders = {name: RunFolder.open(path) for name, path in zip(run_names(paths), paths, strict=True)}
    metrics = {name: folder.metrics() for name, folder in folders.items()}
    recipes = {name: recipe_of(folder) for name, folder in folders.items()}
    results = {
        name: {
            "recipe": recipes[name].name,
            "data": recipes[name].data,
            **headline(rows, recipes[name].learns),
            "time": duration(rows),
        }
        for name, rows in metrics.items()
    }
    content = page.page(
        "Comparison",
        " · ".join(folders),
        page.matrix("Results", results),
        page.figures(curves(metrics)),
        page.matrix("Different settings", differing_settings({name: flatten(one) for name, one in recipes.items()})),
    )
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    write(out, content)
    return out


def run_names(paths: Sequence[Path]) -> list[str]:
    """Names of the folders, or their paths if two names are equal."""
    short = [path.resolve().name for path in paths]
    return short if len(set(short)) == len(short) else [str(path) for path in paths]


def duration(rows: Rows) -> str:
    """Training time of a run."""
    return clock(max((row["seconds"] for row in rows if "seconds" in row), default=0.0))


def curves(metrics: Mapping[str, Rows]) -> Iterator[Figure]:
    """Curves of each metric that at least two runs have, against steps and against time."""
    counted: dict[str, int] = {}
    for rows in metrics.values():
        for name in {name for row in rows for name in row if "." not in name and name not in ("step", "seconds")}:
            counted[name] = counted.get(name, 0) + 1
    shared = sorted(name for name, count in counted.items() if count > 1 and not name.startswith("test_"))
    for name in sorted(shared, key=lambda name: (not name.startswith("valid_"), name)):
        for axis in ("step", "seconds"):
            traces = [
                line(*metric_series(rows, name, axis), run, line={"color": COLORS[i % len(COLORS)]})
                for i, (run, rows) in enumerate(metrics.items())
            ]
            over = "by step" if axis == "step" else "by time"
            caption = "Validation." if name.startswith("valid_") else "Training."
            label = name.removeprefix("valid_").replace("_", " ")
            yield Figure(f"{label} {over}", caption, plot(*traces, xaxis_title=axis, yaxis_title=label))


def metric_series(rows: Rows, name: str, axis: str) -> tuple[list[float], list[float]]:
    """Values of the axis and of the metric, where both are recorded."""
    found = [row for row in rows if name in row and axis in row]
    return [row[axis] for row in found], series(found, name)[1]


def differing_settings(each: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Settings in which the runs differ, for each run; "–" where a recipe has no such setting."""
    names = dict.fromkeys(name for one in each.values() for name in one)
    differ = [name for name in names if len({repr(one.get(name)) for one in each.values()}) > 1]
    return {run: {name: one.get(name, "–") for name in differ} for run, one in each.items()}
