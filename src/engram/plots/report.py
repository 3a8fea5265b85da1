"""Report, samples and inspection page of a run."""

import io
import itertools
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from engram.core.config import flatten
from engram.core.device import CPU
from engram.core.errors import EngramError
from engram.core.memory import check_memory
from engram.core.recipe import AnyRecipe, Sample, SampleRequest
from engram.core.seeding import check_seed, generator, isolated_eval
from engram.core.tap import watch
from engram.data.progress import announce
from engram.plots import network, page
from engram.plots.curves import curves
from engram.plots.images import png
from engram.training import distributed, process_group
from engram.training.progress import clock
from engram.training.run import Run
from engram.training.train import Callback

MANY = 10_000
"""samples from which on their memory is estimated before they are drawn"""


class WriteReport(Callback):
    """Writes samples and the report of a run that has finished, in the main process."""

    sample: Sample | None = None
    """sample drawn at the end"""

    def on_finish(self, run: Run) -> None:
        if distributed.is_main():
            sharded = distributed.is_sharded(run.learner.model)
            process_group.leave()
            with process_group.train_on(CPU):
                run = Run.open(run.folder.path) if sharded or run.device != CPU else run
            try:
                self.sample, _ = write_sample(run)
            except Exception as error:
                write_report(run, note=f"No samples could be drawn: {error}")
                if not isinstance(error, EngramError):
                    raise
                announce(f"no samples could be drawn: {error}")
            else:
                write_report(run, self.sample)


def write_report(run: Run, sample: Sample | None = None, note: str = "") -> Path:
    """Write report.html into the run folder, with the text of a language model, or a note instead."""
    recipe, about, metrics = run.recipe, run.folder.read_json("recipe.json"), run.folder.metrics()
    with isolated_eval(run.learner.model, recipe.seed):
        figures = page.figures([*curves(metrics, recipe.learns), *recipe.figures(run.learner, run.data)])
    changed = [name for name, _ in differences(recipe)]
    info = getattr(run.data, "info", None)
    parameters = sum(p.numel() for p in run.learner.model.parameters())
    began = str(about.get("began", "–"))
    subtitle = f"{recipe.name} on {recipe.data} · {run.step:,} steps · {clock(run.seconds)} · {began[:10]}"
    content = page.page(
        recipe.title,
        subtitle,
        page.cards(
            headline(metrics, recipe.learns)
            | {"time": clock(run.seconds)}
            | ({"parameters": f"{parameters:,}"} if parameters else {})
        ),
        page.code("Samples", note) if note else "",
        page.code("Generated text", sample.text) if sample and sample.streams_text else "",
        figures,
        page.code("Reproduce", f"{command(recipe)}\n\n{python(recipe)}"),
        page.side_by_side(
            page.table("Recipe", flatten(recipe) | flatten(run.learner.model.config), changed),
            page.table("Data", data_rows(info) if info else {"data": recipe.data}),
            page.table(
                "Machine", {**machine_rows(about.get("machine")), "engram": about.get("engram"), "began": began}
            ),
        ),
    )
    return run.folder.write("report.html", content)


def write_inspection(run: Run, args: Any) -> Path:
    """Write inspect.html into the run folder."""
    description, views = inspect_run(run, args)
    content = page.page(f"{run.recipe.title}: inspection", description, page.figures(views))
    return run.folder.write("inspect.html", content)


def inspect_run(run: Run, args: Any) -> tuple[str, list[Any]]:
    """Return a description and the figures of an item, by default the activations at every tap."""
    model = run.learner.model
    with isolated_eval(model, run.recipe.seed):
        found = run.recipe.inspect(model, run.data, args)
        if found is None:
            with watch(model) as activations:
                description = run.recipe.trace(model, run.data, args.item)
            found = description, list(network.activation_figures(activations))
    return found


def write_sample(
    run: Run,
    count: int | None = None,
    seed: int | None = None,
    args: Any = None,
    say: Callable[[str], None] = lambda text: None,
) -> tuple[Sample, list[Path]]:
    """Draw samples and write them as samples/STEP-SEED.npz, .png of images, .txt of text.

    Other ones are kept.
    """
    seed = run.recipe.seed if seed is None else seed
    sample = sample_run(run, count, seed, run.recipe.SampleArgs() if args is None else args, say)
    file = io.BytesIO()
    np.savez_compressed(file, **{key: value.numpy() for key, value in sample.arrays.items()})  # type: ignore[arg-type]
    contents = {".npz": file.getvalue()}
    if sample.image is not None:
        contents[".png"] = png(sample.image, scale=3)
    if sample.streams_text:
        contents[".txt"] = sample.text.encode()
    name = free_name(run.folder.path, f"samples/{run.step:09d}-{seed}", contents)
    return sample, [run.folder.write(f"{name}{suffix}", content) for suffix, content in contents.items()]


def free_name(folder: Path, name: str, contents: Mapping[str, bytes]) -> str:
    """Return the first of NAME, NAME-2, NAME-3 … under which no file of these suffixes is replaced."""
    for number in itertools.count(1):
        numbered = name if number == 1 else f"{name}-{number}"
        places = {folder / f"{numbered}{suffix}": content for suffix, content in contents.items()}
        if all(not place.exists() or place.read_bytes() == content for place, content in places.items()):
            return numbered
    raise AssertionError("unreachable")


def sample_run(
    run: Run, count: int | None, seed: int, args: Any, say: Callable[[str], None] = lambda text: None
) -> Sample:
    """Draw samples from the model of a run."""
    count = run.recipe.samples if count is None else count
    if count < 1:
        raise EngramError(f"count must be at least 1, not {count}.")
    check_seed(seed)
    if count > MANY:
        one = draw(run, SampleRequest(1, generator(seed, "size"), args), seed)
        check_memory(count * sample_bytes(one), f"{count:,} samples", "take a smaller --count")
    return draw(run, SampleRequest(count, generator(seed, "sample"), args, say), seed)


def draw(run: Run, request: SampleRequest, seed: int) -> Sample:
    """Draw the samples of a request in evaluation mode."""
    with isolated_eval(run.learner.model, seed):
        return run.recipe.sample(run.learner, run.data, request)


def sample_bytes(sample: Sample) -> int:
    """Return the bytes of a sample's arrays, image and text."""
    tensors = [*sample.arrays.values(), *([] if sample.image is None else [sample.image])]
    return sum(value.numel() * value.element_size() for value in tensors) + len(sample.text)


def headline(metrics: list[dict[str, Any]], learns: bool = True) -> dict[str, str]:
    """Return the last metrics as text: of the test, else of validation, of a simulation without split."""
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
    """A metric as text; accuracies in percent."""
    return f"{value:.2%}" if name.endswith("accuracy") else f"{value:.4g}"


def command(recipe: AnyRecipe) -> str:
    """Return the command that reproduces a run."""
    words = ["engram", "run", recipe.name]
    for name, value in differences(recipe):
        flag = name.rstrip("_").replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", *(str(part) for part in (value if isinstance(value, tuple) else (value,)))]
    return shlex.join(words)


def python(recipe: AnyRecipe) -> str:
    """Return the Python code that reproduces a run."""
    arguments = [repr(recipe.name), *(f"{name}={value!r}" for name, value in differences(recipe))]
    return f"import engram\nengram.run({', '.join(arguments)})"


def differences(recipe: AnyRecipe) -> Iterator[tuple[str, Any]]:
    """Yield the settings that differ from those of the preset, and the preset if it is not the default."""
    usual = flatten(type(recipe).from_preset(recipe.preset))
    if recipe.preset != "small":
        yield "preset", recipe.preset
    yield from ((name, value) for name, value in flatten(recipe).items() if value != usual[name])


def machine_rows(machine: Any) -> dict[str, Any]:
    """Rows of the table about the machine."""
    return dict(machine) if isinstance(machine, dict) else {"machine": "–"}


def data_rows(info: Any) -> dict[str, str]:
    """Rows of the table about the data set."""
    return {
        "name": info.name,
        "title": info.title,
        "items": ", ".join(f"{name} {size:,}" for name, size in info.sizes.items()),
        "columns": ", ".join(f"{name} ({kind})" for name, kind in info.columns.items()),
        "license": info.license,
        "source": info.source,
        "sha256": info.sha256 or "–",
        **({"notes": "; ".join(info.notes)} if info.notes else {}),
    }
