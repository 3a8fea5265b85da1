"""engram run: train a recipe, or resume a run."""

import json as jsonlib
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.markup import escape

from engram.cli.catalog import catalog
from engram.cli.flags import call, parse_settings
from engram.cli.help import grouped, print_help, wants_help
from engram.cli.list import list_recipes
from engram.cli.main import INTERRUPTED
from engram.core.config import Settings, controls, flatten
from engram.core.errors import EngramError, unknown

if TYPE_CHECKING:
    from engram.training.run import Run


@dataclass(frozen=True, kw_only=True)
class TrainOptions(Settings):
    """How a run is trained and shown."""

    quiet: bool = False
    """show no progress"""
    verbose: bool = False
    """show all metrics in the progress, not only the loss and the best metric"""
    json: bool = False
    """print the final metrics as JSON"""
    tensorboard: bool = False
    """also write metrics for TensorBoard, into the run folder"""
    shard: bool = False
    """shard the model over the processes that torchrun started (FSDP2), instead of replicating it (DDP)"""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """device to train on; auto takes a GPU if there is one"""


@dataclass(frozen=True, kw_only=True)
class RunOptions(TrainOptions):
    """Where a run goes, and how it is trained and shown."""

    out: Path = Path()
    """run folder [default: runs/NAME-1, runs/NAME-2 …]"""
    resume: bool = False
    """resume the run in --out, or start one if there is none"""


DEFAULT = TrainOptions()


def command(argv: Sequence[str]) -> int:
    if argv and argv[0].startswith("-") and any(word.partition("=")[0] == "--resume" for word in argv):
        return call(resume, [word.removeprefix("--resume=") for word in argv if word != "--resume"], "run")
    if not argv or argv[0] in ("-h", "--help"):
        list_recipes()
        Console(highlight=False).print(
            "\n`engram run NAME` trains it, `engram run NAME --help` explains its flags, "
            "`engram run --resume DIR` resumes a run."
        )
        return 0
    name, *flags = argv
    if name.startswith("-"):
        raise EngramError(f"engram run begins with the name of a recipe or with --resume, not with {name}.")
    if wants_help(flags):
        return print_recipe_help(name, flags)
    from engram.training.run import Run

    recipe, options = parse_run(name, flags)
    out = options.out if options.out != Path() else None
    if options.resume and not out:
        raise EngramError("--resume beside a name needs --out, the folder to resume or to begin.")
    if options.resume and out and (out / "recipe.json").exists():
        changes = changed_limits(out, recipe)
        return train_run(lambda: Run.resume(out, **changes), options)
    return train_run(lambda: Run.start(recipe, out), options)


def preset_of(argv: Sequence[str]) -> str:
    """The preset that a command line names."""
    for i, word in enumerate(argv):
        if word.startswith("--preset"):
            return word.partition("=")[2] or (argv[i + 1] if i + 1 < len(argv) else "small")
    return "small"


def print_recipe_help(name: str, argv: Sequence[str]) -> int:
    """What `engram run NAME --help` shows: all flags with the defaults of the preset."""
    recipes = catalog()
    if name not in recipes:
        raise unknown("recipe", name, recipes)
    about, preset = recipes[name], preset_of(argv)
    if preset not in about["presets"]:
        raise unknown(f"preset of {name}", preset, about["presets"])
    print_help(
        f"engram run {name} [flags]",
        f"{about['title']}: {about['description']} Presets: {', '.join(about['presets'])}.",
        *grouped(about["presets"][preset]),
        ("run", controls(RunOptions())),
    )
    return 0


def parse_run(name: str, argv: Sequence[str]) -> tuple[Any, RunOptions]:
    """The recipe and the options of `engram run NAME`: flags on top of the preset that they name."""
    from engram.core.registry import get_recipe

    default = get_recipe(name).from_preset(preset_of(argv))
    parsed = parse_settings({"recipe": default, "run": RunOptions()}, argv, f"engram run {name}")
    return parsed["recipe"], parsed["run"]


def changed_limits(out: Path, recipe: Any) -> dict[str, Any]:
    """The limits that a command line sets anew for the run in `out`.

    In all else it must be the same recipe.
    """
    from engram.data import absolute
    from engram.training.run import recipe_of
    from engram.training.run_folder import RunFolder

    before = recipe_of(RunFolder.open(out))
    if before.name != recipe.name:
        raise EngramError(f"{out} holds a run of {before.name}, not of {recipe.name}.")
    was, wanted = flatten(before), {**flatten(recipe), "data": absolute(recipe.data)}
    changes = {name: value for name, value in wanted.items() if value != was[name]}
    if fixed := [f"--{name.rstrip('_').replace('_', '-')}" for name in changes if name not in ("steps", "minutes")]:
        raise EngramError(
            f"{out} holds a run with other settings of {', '.join(fixed)}: they cannot change on the way."
        )
    return changes


def resume(folder: Path, steps: int | None = None, minutes: float | None = None, run: TrainOptions = DEFAULT) -> int:
    """Resume a run from its newest checkpoint: engram run --resume DIR.

    Args:
        folder: the run folder
        steps: a new number of training steps in all
        minutes: a new limit of time in all
    """
    from engram.training.run import Run

    limits = {"steps": steps, "minutes": minutes}
    changes = {name: value for name, value in limits.items() if value is not None}
    return train_run(lambda: Run.resume(folder, **changes), run)


def train_run(start: Callable[[], "Run"], options: TrainOptions) -> int:
    """Train to the end, and say where everything is."""
    from engram.data.progress import silence
    from engram.plots.report import WriteReport
    from engram.training import distributed, process_group
    from engram.training.progress import ProgressBar, TensorBoard
    from engram.training.train import Callback, Interrupted, train

    with silence(options.quiet or options.json), process_group.join(options.shard, options.device):
        main, report = distributed.is_main(), WriteReport()
        callbacks: list[Callback] = []
        if main and not options.quiet:
            callbacks.append(ProgressBar(options.verbose))
        if main and options.tensorboard:
            callbacks.append(TensorBoard())
        run = start()
        console, folder = Console(highlight=False, soft_wrap=True), run.folder.path
        if run.finished and (folder / "report.html").exists():
            raise EngramError(f"{folder} is finished: add --steps or --minutes to train it further.")
        again = f"Resume with: [cyan]engram run --resume {escape(shlex.quote(str(folder)))}[/cyan]"
        try:
            with run.discard_on_failure():
                train(run, [*callbacks, report])
        except Interrupted:
            if main:
                console.print(f"Saved at step {run.step}. {again}")
            return INTERRUPTED
        except KeyboardInterrupt:
            console.print(f"Stopped at once; step {run.folder.checkpoints()[-1]} is saved. {again}")
            return INTERRUPTED
        if main:
            print_result(run, report.sample, options)
        return 0


def print_result(run: "Run", sample: Any, options: TrainOptions) -> None:
    """The final metrics and where the report is."""
    from engram.plots.report import headline

    folder = run.folder.path
    if options.json:
        last: dict[str, Any] = {}
        for line in run.folder.metrics():
            last.update(line)
        print(jsonlib.dumps({"run": str(folder), **last}))
        return
    if sample and sample.streams_text and not options.quiet:
        print(f"{sample.text}\n")
    metrics = headline(run.folder.metrics(), run.recipe.learns)
    values = "  ".join(f"{name} [bold]{value}[/bold]" for name, value in metrics.items())
    Console(highlight=False, soft_wrap=True).print(
        f"{run.recipe.title}: {values}\n[cyan]{escape(str(folder / 'report.html'))}[/cyan]"
    )
