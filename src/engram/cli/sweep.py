"""engram sweep: search the hyper-parameters of a recipe."""

import json as jsonlib
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import Ge
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from engram.cli.catalog import catalog
from engram.cli.flags import call, parse_settings
from engram.cli.help import grouped, print_help, wants_help
from engram.cli.main import INTERRUPTED
from engram.cli.run import preset_of
from engram.cli.table import print_table
from engram.core.config import Settings, controls
from engram.core.errors import EngramError, unknown

if TYPE_CHECKING:
    from engram.training.sweep.study import Trial
    from engram.training.sweep.sweep import Sweep

USAGE = "engram sweep {} --FLAG LOW:HIGH --FLAG A,B,C [flags]"
SYNTAX = (
    "Searches settings given as a range LOW:HIGH or as choices A,B,C; the best validation result wins. A range "
    "is searched on a logarithmic scale if HIGH is at least 10 times LOW and both are above 0, and holds integers if "
    "the setting is an integer. One value fixes a setting, as in `engram run`."
)
BEST = 10
"""trials in the table that is printed"""


@dataclass(frozen=True, kw_only=True)
class SessionOptions(Settings):
    """How trials are trained and shown."""

    jobs: Annotated[int, Ge(1)] = 1
    """trials that are trained at the same time, each in a process with its share of the threads"""
    quiet: bool = False
    """show no progress"""
    json: bool = False
    """print the best settings and all trials as JSON"""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """device to train on; auto takes a GPU if there is one"""


@dataclass(frozen=True, kw_only=True)
class SweepOptions(SessionOptions):
    """Where a sweep goes, how many trials it has, and how they are trained and shown."""

    trials: Annotated[int, Ge(1)] = 20
    """number of trials, at most the number of combinations of choices"""
    prune: bool = True
    """stop trials early that are worse than others at the same step (ASHA)"""
    out: Path = Path()
    """folder of the sweep; one that holds this sweep already is resumed [default: runs/NAME-sweep-1 …]"""


DEFAULT = SessionOptions()


def command(argv: Sequence[str]) -> int:
    if argv and argv[0].startswith("-") and any(word.partition("=")[0] == "--resume" for word in argv):
        return call(resume, [word.removeprefix("--resume=") for word in argv if word != "--resume"], "sweep")
    if not argv or argv[0] in ("-h", "--help"):
        print_help(
            "engram sweep NAME --FLAG LOW:HIGH --FLAG A,B,C [flags]", SYNTAX, ("sweep", controls(SweepOptions()))
        )
        print(
            "\n`engram sweep NAME --help` explains the flags of a recipe, `engram sweep --resume DIR` resumes a sweep."
        )
        return 0
    name, *flags = argv
    if name.startswith("-"):
        raise EngramError(f"engram sweep begins with the name of a recipe or with --resume, not with {name}.")
    if wants_help(flags):
        return print_sweep_help(name, flags)
    from engram.core.registry import get_recipe
    from engram.training.sweep.sweep import FILE, Sweep

    default = get_recipe(name).from_preset(preset_of(flags))
    space, rest = split_space(default, flags)
    parsed = parse_settings({"recipe": default, "sweep": SweepOptions()}, rest, f"engram sweep {name}")
    recipe, options = parsed["recipe"], parsed["sweep"]
    out = options.out if options.out != Path() else None
    if out and (out / FILE).exists():
        found = Sweep.open(out)
        found.check_same(recipe, space, options.prune)
        found.extend(options.trials)
    else:
        found = Sweep.start(recipe, space, out, options.trials, options.prune)
    return train_sweep(found, options)


def print_sweep_help(name: str, argv: Sequence[str]) -> int:
    """What `engram sweep NAME --help` shows: the syntax, and all flags with the defaults of the preset."""
    recipes, preset = catalog(), preset_of(argv)
    if name not in recipes:
        raise unknown("recipe", name, recipes)
    if preset not in recipes[name]["presets"]:
        raise unknown(f"preset of {name}", preset, recipes[name]["presets"])
    groups = grouped(recipes[name]["presets"][preset])
    print_help(USAGE.format(name), SYNTAX, *groups, ("sweep", controls(SweepOptions())))
    return 0


def split_space(default: Any, argv: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Ranges and choices by the names of the settings, and the rest of a command line."""
    from engram.training.sweep.space import varies

    known = {control["flag"]: control for control in controls(default)}
    space: dict[str, str] = {}
    rest, words = list[str](), list(argv)
    while words:
        word = words.pop(0)
        flag, equals, text = word.partition("=")
        control = known.get(flag.removeprefix("--").replace("_", "-")) if flag.startswith("--") else None
        if control is None or not varies(text if equals else words[0] if words else "", control):
            rest.append(word)
            continue
        if control["name"] in space:
            raise EngramError(f"{flag} is given twice.")
        space[control["name"]] = text if equals else words.pop(0)
    return space, rest


def resume(folder: Path, trials: int | None = None, sweep: SessionOptions = DEFAULT) -> int:
    """Resume a sweep: engram sweep --resume DIR.

    Args:
        folder: the folder of the sweep
        trials: a new number of trials in all
    """
    from engram.training.sweep.sweep import Sweep

    found = Sweep.open(folder)
    if trials is not None:
        found.extend(trials)
    return train_sweep(found, sweep)


def train_sweep(sweep: "Sweep", options: SessionOptions) -> int:
    """Train all trials, write the report, and print the best."""
    from engram.plots.sweep import write_sweep_report
    from engram.training.train import Interrupted

    console = Console(highlight=False, soft_wrap=True)
    again = f"Resume with: [cyan]engram sweep --resume {escape(shlex.quote(str(sweep.path)))}[/cyan]"
    progress = Progress(sweep, options.quiet)
    try:
        with progress.status:
            sweep.train(options.jobs, options.device, progress)
    except Interrupted:
        ended = sum(trial.state != "running" for trial in sweep.study.trials())
        console.print(f"Saved; {ended} of {sweep.count} trials have ended. {again}")
        return INTERRUPTED
    except KeyboardInterrupt:
        console.print(f"Stopped at once; every trial is saved as of its last checkpoint. {again}")
        return INTERRUPTED
    report = write_sweep_report(sweep)
    sweep.best()
    if options.json:
        print(jsonlib.dumps(as_json(sweep), ensure_ascii=False))
    else:
        print_result(sweep, report)
    return 0


class Progress:
    """A line for every trial that has ended, and on a terminal one of those that are trained."""

    def __init__(self, sweep: "Sweep", quiet: bool) -> None:
        self.console = Console(stderr=True, highlight=False, quiet=quiet)
        self.status = self.console.status(f"{sweep.recipe.name}: {sweep.count} trials")
        self.began, self.ended = time.perf_counter(), 0
        self.latest: dict[int, str] = {}

    def on_evaluation(self, sweep: "Sweep", number: int, step: int, value: float) -> None:
        """Show the newest metric of a trial."""
        from engram.plots.report import number as spell

        self.latest[number] = f"trial {number} at step {step:,}: {spell(sweep.metric, value)}"
        self.status.update(" · ".join(self.latest[one] for one in sorted(self.latest)))

    def on_trial(self, sweep: "Sweep", trial: "Trial") -> None:
        """Print settings, metric and state of a trial, and the time that is left."""
        from engram.plots.sweep import row
        from engram.training.progress import clock

        self.latest.pop(trial.number, None)
        self.ended += 1
        done = sum(one.state != "running" for one in sweep.study.trials())
        passed = time.perf_counter() - self.began
        left = (sweep.count - done) * passed / self.ended
        cells = "  ".join(f"{name} {value}" for name, value in row(sweep, trial).items() if name != "state")
        text = f"trial {trial.number:<3} {trial.state:9} {cells}  ({done}/{sweep.count}, {clock(left)} left)"
        self.console.print(Text(f"{text} {trial.error}".rstrip()), soft_wrap=True)


def print_result(sweep: "Sweep", report: Path) -> None:
    """The best trials, the command that trains with the best settings, and where the report is."""
    from engram.plots.report import command as run_command
    from engram.plots.sweep import row

    best = sweep.best()
    print_table([{"trial": one.number, **row(sweep, one)} for one in sweep.ranked()[:BEST]], json=False)
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"\nTrial {best.number} is the best; its run is in [cyan]{escape(str(sweep.folder(best)))}[/cyan]. "
        f"Train it anew with:\n[cyan]{escape(run_command(sweep.space.apply(best.params)))}[/cyan]\n"
        f"[cyan]{escape(str(report))}[/cyan]"
    )


def as_json(sweep: "Sweep") -> dict[str, Any]:
    """The best settings, and all trials."""
    from engram.plots.report import command as run_command

    def trial_json(trial: "Trial") -> dict[str, Any]:
        return {
            "number": trial.number, "state": trial.state, "settings": dict(trial.settings), "value": trial.value,
            "step": trial.step, "seconds": trial.seconds, "folder": str(sweep.folder(trial)), "error": trial.error,
        }  # fmt: skip

    best = sweep.best()
    return {
        "sweep": str(sweep.path),
        "metric": sweep.metric,
        "best": {**trial_json(best), "command": run_command(sweep.space.apply(best.params))},
        "trials": [trial_json(trial) for trial in sweep.study.trials()],
    }
