"""Several runs side by side: their curves against steps and against time, their results, and what was set otherwise."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from engram.core.registry import settings
from engram.figures import page
from engram.figures.curves import series
from engram.figures.figure import COLOURS, Figure, line, plot
from engram.figures.report import headline
from engram.training.files import write, writing
from engram.training.folder import RunFolder
from engram.training.progress import clock
from engram.training.run import recipe_of

Rows = Sequence[Mapping[str, Any]]


def write_comparison(paths: Sequence[Path], out: Path) -> Path:
    """One page for several runs, which may be of different recipes and need not be finished."""
    folders = {name: RunFolder.open(path) for name, path in zip(names_of(paths), paths, strict=True)}
    metrics = {name: folder.metrics() for name, folder in folders.items()}
    recipes = {name: recipe_of(folder) for name, folder in folders.items()}
    results = {
        name: {
            "recipe": recipes[name].name,
            "data": recipes[name].data,
            **headline(rows, recipes[name].learns),
            "time": spent(rows),
        }
        for name, rows in metrics.items()
    }
    content = page.page(
        "Side by side",
        " · ".join(folders),
        page.matrix("Results", results),
        page.figures(curves(metrics)),
        page.matrix("What was set otherwise", otherwise({name: settings(one) for name, one in recipes.items()})),
    )
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    write(out, content)
    return out


def names_of(paths: Sequence[Path]) -> list[str]:
    """The folders' own names, or where two are alike the whole paths."""
    short = [path.resolve().name for path in paths]
    return short if len(set(short)) == len(short) else [str(path) for path in paths]


def spent(rows: Rows) -> str:
    return clock(max((row["seconds"] for row in rows if "seconds" in row), default=0.0))


def curves(metrics: Mapping[str, Rows]) -> Iterator[Figure]:
    """Each metric that two runs have, against the step and against the time."""
    counted: dict[str, int] = {}
    for rows in metrics.values():
        for name in {name for row in rows for name in row if "." not in name and name not in ("step", "seconds")}:
            counted[name] = counted.get(name, 0) + 1
    shared = sorted(name for name, count in counted.items() if count > 1 and not name.startswith("test_"))
    for name in sorted(shared, key=lambda name: (not name.startswith("valid_"), name)):
        for axis in ("step", "seconds"):
            traces = [
                line(*along(rows, name, axis), run, line={"color": COLOURS[i % len(COLOURS)]})
                for i, (run, rows) in enumerate(metrics.items())
            ]
            where = "step by step" if axis == "step" else "for the time it took"
            caption = "Validation." if name.startswith("valid_") else "While learning."
            label = name.removeprefix("valid_").replace("_", " ")
            yield Figure(f"{label}, {where}", caption, plot(*traces, xaxis_title=axis, yaxis_title=label))


def along(rows: Rows, name: str, axis: str) -> tuple[list[float], list[float]]:
    found = [row for row in rows if name in row and axis in row]
    return [row[axis] for row in found], series(found, name)[1]


def otherwise(each: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The settings in which the runs differ, run by run; «–» where a recipe has no such setting."""
    names = dict.fromkeys(name for one in each.values() for name in one)
    differ = [name for name in names if len({repr(one.get(name)) for one in each.values()}) > 1]
    return {run: {name: one.get(name, "–") for name in differ} for run, one in each.items()}
