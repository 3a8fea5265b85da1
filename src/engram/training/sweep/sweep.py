"""A sweep: trials of a recipe with settings that are varied, from which validation chooses.

sweep = Sweep.start(recipe, {"lr": "1e-4:1e-2", "batch": "32,64"}, path)    or    Sweep.open(path)
sweep.train(jobs=2)
sweep.best()

    sweep.json       recipe, space and number of trials
    journal.log      every trial, in the journal of Optuna
    trials/7/        the run folder of a trial
    worker-1.txt     what a worker process has said
    report.html

A sweep can be killed at any moment. Opened again it keeps the trials that have ended, resumes those that have not from
the checkpoints in their run folders, and goes on to the next.
"""

import dataclasses
import itertools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock, Timeout

from engram import __version__
from engram.core.config import flatten, from_json, override
from engram.core.device import resolve_device
from engram.core.errors import EngramError
from engram.core.files import read_json, write, writing
from engram.core.recipe import AnyRecipe
from engram.core.registry import get_recipe
from engram.data import absolute
from engram.training.run import next_folder
from engram.training.sweep.processes import TORCHRUN, Worker, WorkerPool
from engram.training.sweep.space import Space, spell
from engram.training.sweep.study import Study, Trial, import_optuna, repair
from engram.training.train import Interrupted, catch_signals

FORMAT = 1
"""version of the layout of the folder"""
FILE, JOURNAL = "sweep.json", "journal.log"
LOCK_SECONDS = 0.2
POLL_SECONDS = 0.2
"""how long a signal may wait"""


class Display(Protocol):
    """Shows the progress of a sweep."""

    def on_evaluation(self, sweep: "Sweep", number: int, step: int, value: float) -> None:
        """After every evaluation of a trial."""

    def on_trial(self, sweep: "Sweep", trial: Trial) -> None:
        """After every trial."""


class Sweep:
    """Recipe, search space, folder and trials of one sweep."""

    def __init__(self, recipe: AnyRecipe, space: Space, path: Path, trials: int, prune: bool) -> None:
        self.recipe, self.space, self.path, self.prune = recipe, space, path, prune
        self.count = limit_trials(trials, space)
        self._study: Study | None = None

    # ------------------------------------------------------------------ start and open

    @classmethod
    def start(
        cls, recipe: AnyRecipe, space: Mapping[str, Any], path: Path | None = None, trials: int = 20, prune: bool = True
    ) -> "Sweep":
        """Start a sweep in a new folder, by default runs/NAME-sweep-1, …; on failure nothing is created."""
        import_optuna()
        if not recipe.learns:
            raise EngramError(f"{recipe.name} is simulated and does not learn: there is nothing to choose by.")
        if path is not None and ((path / FILE).exists() or (path / "recipe.json").exists()):
            raise EngramError(f"{path} already holds a {'sweep' if (path / FILE).exists() else 'run'}: name another.")
        recipe = override(recipe, data=absolute(recipe.data))
        checked = Space(recipe, {name: spell(value) for name, value in space.items()})
        limit_trials(trials, checked)
        recipe.load()  # what is wrong with the data shows here, and what is not on this machine is downloaded once
        path = path or next_folder(f"{recipe.name}-sweep")
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        sweep = cls(recipe, checked, path, trials, prune)
        sweep.write_settings()
        return sweep

    @classmethod
    def open(cls, path: Path) -> "Sweep":
        """Open the sweep of a folder."""
        import_optuna()
        if not (path / FILE).exists():
            raise EngramError(f"{path} holds no sweep: it has no {FILE}.")
        about = read_json(path / FILE)
        try:
            if about["format"] != FORMAT:
                raise EngramError(
                    f"{path} has sweep format {about['format']!r}, and engram {__version__} reads {FORMAT}."
                )
            recipe: AnyRecipe = from_json(get_recipe(about["recipe"])(), about["fields"])
            space, trials, prune = dict(about["space"]), int(about["trials"]), bool(about["prune"])
        except (AttributeError, KeyError, TypeError, ValueError):
            raise EngramError(f"{path / FILE} is damaged: it does not describe a sweep.") from None
        return cls(recipe, Space(recipe, space), path, trials, prune)

    def extend(self, trials: int) -> None:
        """Set another number of trials in all."""
        self.count = limit_trials(trials, self.space)
        self.write_settings()

    def write_settings(self) -> None:
        """Write sweep.json, which completes the folder."""
        about = {
            "format": FORMAT, "engram": __version__, "recipe": self.recipe.name,
            "fields": dataclasses.asdict(self.recipe), "space": self.space.texts, "trials": self.count,
            "prune": self.prune,
        }  # fmt: skip
        write(self.path / FILE, json.dumps(about, indent=1, ensure_ascii=False).encode())

    def check_same(self, recipe: AnyRecipe, space: Mapping[str, str], prune: bool) -> None:
        """Refuse to go on with other settings."""
        wanted = {**flatten(recipe), "data": absolute(recipe.data), **space, "prune": prune}
        known = {**flatten(self.recipe), **self.space.texts, "prune": self.prune}
        if recipe.name != self.recipe.name:
            raise EngramError(f"{self.path} holds a sweep of {self.recipe.name}, not of {recipe.name}.")
        if different := [f"--{name.rstrip('_').replace('_', '-')}" for name in known if known[name] != wanted[name]]:
            raise EngramError(
                f"{self.path} holds a sweep with other settings of {', '.join(different)}: name another folder."
            )

    # ------------------------------------------------------------------ results

    @property
    def study(self) -> Study:
        """The study, read from the journal when it is first asked for."""
        if self._study is None:
            self._study = Study(self.path / JOURNAL, self.space, self.prune)
        return self._study

    @property
    def metric(self) -> str:
        """Name of the metric that chooses."""
        return self.recipe.best[0]

    def ranked(self) -> list[Trial]:
        """All trials, the best first: complete ones by their metric, then pruned ones by how far they came."""
        sign = 1 if self.recipe.best[1] == "min" else -1
        order = ("complete", "pruned", "diverged", "failed", "running")

        def key(trial: Trial) -> tuple[Any, ...]:
            value = float("inf") if trial.value is None else sign * trial.value
            return order.index(trial.state), -trial.step if trial.state == "pruned" else 0, value, trial.number

        return sorted(self.study.trials(), key=key)

    def best(self) -> Trial:
        """The trial that validation chooses."""
        ranked = self.ranked()
        if not ranked or ranked[0].state != "complete":
            why = next((f"; trial {one.number}: {one.error}" for one in ranked if one.error), "")
            raise EngramError(f"No trial of {self.path} was completed{why.rstrip('.')}.")
        return ranked[0]

    def folder(self, trial: Trial) -> Path:
        """Run folder of a trial."""
        return self.path / "trials" / str(trial.number)

    # ------------------------------------------------------------------ train

    def train(self, jobs: int = 1, device: str = "auto", display: Display | None = None) -> None:
        """Train all trials that are left, `jobs` at a time; on a stop signal, save them and raise Interrupted."""
        if jobs < 1:
            raise EngramError(f"jobs must be at least 1, not {jobs}.")
        resolve_device(device)
        if all(name in os.environ for name in TORCHRUN):
            raise EngramError("A sweep starts its own processes, --jobs of them: run it without torchrun.")
        lock = FileLock(self.path / ".lock")
        with writing(self.path):
            try:
                lock.acquire(timeout=LOCK_SECONDS)
            except Timeout:
                raise EngramError(f"{self.path} is in use by another process, which must end first.") from None
        try:
            repair(self.path / JOURNAL)
            self._study = None  # the journal may have grown since it was read
            self._train(jobs, device, display)
        finally:
            lock.release()

    def _train(self, jobs: int, device: str, display: Display | None) -> None:
        known = self.study.trials()
        waiting = [trial for trial in known if trial.state == "running"]
        new = max(0, self.count - len(known))
        with (
            catch_signals() as signals,
            WorkerPool(self.path, max(1, min(jobs, len(waiting) + new)), device) as pool,
        ):
            while waiting or new or pool.busy():
                if signals:
                    raise Interrupted(f"{self.path} was interrupted and saved.")
                while (waiting or new) and (worker := pool.idle()):
                    if not waiting:
                        new -= 1
                        waiting.append(self.study.propose())
                    self._assign(worker, waiting.pop(0))
                for worker, message in pool.receive(POLL_SECONDS):
                    trial = self._handle(pool, worker, message, display)
                    waiting += [trial] if trial else []

    def _assign(self, worker: Worker, trial: Trial) -> None:
        """Let a worker train a trial."""
        recipe = self.space.apply(trial.params)
        worker.trial = trial.number
        folder = str(self.folder(trial).resolve())
        fields = dataclasses.asdict(recipe)
        worker.send({"number": trial.number, "folder": folder, "recipe": recipe.name, "fields": fields})

    def _handle(
        self, pool: WorkerPool, worker: Worker, message: dict[str, Any] | None, display: Display | None
    ) -> Trial | None:
        """Record what a worker says; return a trial that it has given up and that can be resumed."""
        number = worker.trial
        if message is None:
            message = {"state": "failed", "error": pool.remove(worker)}
        if number is None:  # it has ended after its last trial
            return None
        if "state" not in message:
            self.study.report(number, message["step"], message["value"])
            if display:
                display.on_evaluation(self, number, message["step"], message["value"])
            worker.send({"prune": self.study.should_prune(number, message["step"])})
            return None
        worker.trial = None
        if message["state"] == "stopped":
            return self.study.trials()[number]
        if message["state"] == "complete":
            self.study.report(number, message["step"], message["value"])
        self.study.finish(
            number, message["state"], message.get("value"), message.get("seconds", 0.0), message.get("error", "")
        )
        if display:
            display.on_trial(self, self.study.trials()[number])
        return None


def limit_trials(trials: int, space: Space) -> int:
    """The number of trials, or of the combinations of values if these are fewer."""
    if trials < 1:
        raise EngramError(f"trials must be at least 1, not {trials}.")
    return sum(1 for _ in itertools.islice(space.combinations(), trials)) if space.finite else trials


def sweep(
    name: str,
    space: Mapping[str, Any],
    *,
    trials: int = 20,
    jobs: int = 1,
    out: str | Path | None = None,
    preset: str = "small",
    prune: bool = True,
    device: str = "auto",
    display: Display | None = None,
    **changes: Any,
) -> Sweep:
    """Search the settings in `space`, (low, high) or a list of choices each.

    A sweep in the folder `out` goes on.
    """
    recipe = get_recipe(name).from_preset(preset, **changes)
    path, texts = Path(out) if out else None, {name: spell(value) for name, value in space.items()}
    if path and (path / FILE).exists():
        found = Sweep.open(path)
        found.check_same(recipe, texts, prune)
        found.extend(trials)
    else:
        found = Sweep.start(recipe, texts, path, trials, prune)
    found.train(jobs, device, display)
    return found
