"""The report of a run, its samples, and the page that looks inside: what a person reads when learning is over."""

import io
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from engram.core.errors import EngramError
from engram.core.registry import Recipe, Request, Sample, settings
from engram.core.seeding import aside, check_seed, generator
from engram.core.tap import watch
from engram.figures import network, page
from engram.figures.curves import curves
from engram.figures.pictures import png
from engram.training.progress import clock
from engram.training.run import Run


def write_report(run: Run, made: Sample | None = None) -> Path:
    """report.html in the run folder, with what the model said where it is one that speaks."""
    recipe, about, metrics = run.recipe, run.folder.read_json("recipe.json"), run.folder.metrics()
    with aside(run.learner.model, recipe.seed):
        drawn = page.figures([*curves(metrics, recipe.learns), *recipe.figures(run.learner, run.data)])
    changed = [name for name, _ in differences(recipe)]
    info = getattr(run.data, "info", None)
    learnt = sum(p.numel() for p in run.learner.model.parameters())
    began = str(about.get("began", "–"))
    subtitle = f"{recipe.name} on {recipe.data} · {run.step:,} steps · {clock(run.seconds)} · {began[:10]}"
    content = page.page(
        recipe.title,
        subtitle,
        page.cards(
            headline(metrics, recipe.learns)
            | {"time": clock(run.seconds)}
            | ({"parameters": f"{learnt:,}"} if learnt else {})
        ),
        page.code("What it says", made.text) if made and made.aloud else "",
        drawn,
        page.code("Do it again", f"{command(recipe)}\n\n{python(recipe)}"),
        page.side_by_side(
            page.table("Recipe", settings(recipe) | settings(run.learner.model.config), changed),
            page.table("Data", data_rows(info) if info else {"data": recipe.data}),
            page.table(
                "Machine", {**machine_rows(about.get("machine")), "engram": about.get("engram"), "began": began}
            ),
        ),
    )
    return run.folder.write("report.html", content)


def write_look(run: Run, subject: Any) -> Path:
    """look.html in the run folder."""
    what, views = looked(run, subject)
    return run.folder.write("look.html", page.page(f"{run.recipe.title}, inside", what, page.figures(views)))


def looked(run: Run, subject: Any) -> tuple[str, list[Any]]:
    """What is looked at, and the views that the recipe has of it, or every tap while one item passes through."""
    model = run.learner.model
    with aside(model, run.recipe.seed):
        found = run.recipe.look(model, run.data, subject)
        if found is None:
            with watch(model) as seen:
                what = run.recipe.probe(model, run.data, subject.item)
            found = what, list(network.inside(seen))
    return found


def write_sample(
    run: Run,
    count: int | None = None,
    seed: int | None = None,
    ask: Any = None,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[Sample, list[Path]]:
    """samples/STEP.npz and, if there is a picture, samples/STEP.png; samples/STEP.txt for a recipe that writes."""
    seed = run.recipe.seed if seed is None else seed
    made = sampled(run, count, seed, run.recipe.Ask() if ask is None else ask, say)
    name = f"samples/{run.step:09d}-{seed}"
    file = io.BytesIO()
    np.savez_compressed(file, **{key: value.numpy() for key, value in made.arrays.items()})  # type: ignore[arg-type]
    paths = [run.folder.write(f"{name}.npz", file.getvalue())]
    if made.image is not None:
        paths.append(run.folder.write(f"{name}.png", png(made.image, scale=3)))
    if made.aloud:
        paths.append(run.folder.write(f"{name}.txt", made.text.encode()))
    return made, paths


def sampled(run: Run, count: int | None, seed: int, ask: Any, say: Callable[[str], None] = lambda text: None) -> Sample:
    """What the model makes when it is asked."""
    count = run.recipe.samples if count is None else count
    if count < 1:
        raise EngramError(f"count must be at least 1, not {count}.")
    check_seed(seed)
    with aside(run.learner.model, seed):
        request = Request(count, generator(seed, "sample"), ask, say)
        return run.recipe.sample(run.learner, run.data, request)


def headline(metrics: list[dict[str, Any]], learns: bool = True) -> dict[str, str]:
    """The last values of the test metrics, or of the validation metrics if there was no test yet.

    Where only time passes there is nothing to test, and the names do without.
    """
    latest: dict[str, Any] = {}
    for row in metrics:
        latest.update(row)
    for prefix in ("test_", "valid_", ""):
        chosen = {name: value for name, value in latest.items() if name.startswith(prefix) and "." not in name}
        chosen = {name: value for name, value in chosen.items() if name not in ("step", "seconds")}
        if chosen:
            short = {name: name if learns else name.removeprefix(prefix) for name in chosen}
            return {short[name].replace("_", " "): number(name, value) for name, value in chosen.items()}
    return {}


def number(name: str, value: float) -> str:
    return f"{value:.2%}" if name.endswith("accuracy") else f"{value:.4g}"


def command(recipe: Recipe) -> str:
    """The command line that does the same."""
    words = ["engram", "run", recipe.name]
    for name, value in differences(recipe):
        flag = name.rstrip("_").replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", *(str(part) for part in (value if isinstance(value, tuple) else (value,)))]
    return shlex.join(words)


def python(recipe: Recipe) -> str:
    """The Python that does the same."""
    arguments = [repr(recipe.name), *(f"{name}={value!r}" for name, value in differences(recipe))]
    return f"import engram\nengram.run({', '.join(arguments)})"


def differences(recipe: Recipe) -> Iterator[tuple[str, Any]]:
    """The settings that differ from those of the recipe's preset, and the preset itself if it is not the default."""
    usual = settings(type(recipe).from_preset(recipe.preset))
    if recipe.preset != "small":
        yield "preset", recipe.preset
    yield from ((name, value) for name, value in settings(recipe).items() if value != usual[name])


def machine_rows(machine: Any) -> dict[str, Any]:
    return dict(machine) if isinstance(machine, dict) else {"machine": "–"}


def data_rows(info: Any) -> dict[str, str]:
    return {
        "name": info.name,
        "title": info.title,
        "items": ", ".join(f"{name} {size:,}" for name, size in info.sizes.items()),
        "columns": ", ".join(f"{name} ({kind})" for name, kind in info.columns.items()),
        "licence": info.licence,
        "source": info.source,
        "sha256": info.sha256 or "–",
    }
