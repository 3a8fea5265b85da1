"""A run in progress: everything that changes, and how it goes one step on.

run = Run.start(recipe, path)    or    Run.resume(path)
train(run, Progress())                                        # training/loop.py
"""

import contextlib
import dataclasses
import itertools
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.learner import Metrics
from engram.core.registry import Recipe, change, find, from_json, settings
from engram.core.seeding import aside
from engram.data import absolute
from engram.training.folder import RunFolder, writing
from engram.training.machine import machine

RUNS = Path("runs")
"""where runs go that were given no folder"""


class Run:
    """Recipe, data, learner and batches of one run, its position, and the folder it is kept in."""

    def __init__(self, recipe: Recipe, folder: RunFolder) -> None:
        self.recipe, self.folder = recipe, folder
        torch.manual_seed(recipe.seed)
        self.data = recipe.reload(folder.path) if folder.holds_run() else recipe.load()
        self.learner = recipe.learner(self.data)
        self.batches = recipe.batches(self.data)
        self.step = 0
        self.seconds = 0.0
        self.best_step, self.best_value = 0, math.inf
        self.stopped = False  # no more steps: only the test is left
        self.finished = False
        self.window: list[Metrics] = []  # what the steps since the last line of metrics measured
        self.start_clock()

    # ------------------------------------------------------------------ beginning, opening, saving

    @classmethod
    def start(cls, recipe: Recipe, path: Path | None = None) -> "Run":
        """A new run in a new folder, runs/NAME-1 or the next free number; nothing is created if it cannot begin."""
        if path:
            RunFolder(path).must_be_vacant()
        recipe = change(recipe, data=absolute(recipe.data))
        run = cls(recipe, RunFolder(path or RUNS))
        run.folder = RunFolder.create(path or next_folder(recipe.name))
        config = dataclasses.asdict(run.learner.model.config)  # type: ignore[call-overload]
        run.folder.write_json("config.json", {"architecture": type(run.learner.model).__name__, **config})
        for name, content in recipe.files(run.data).items():
            run.folder.write(name, content)
        run.save()
        began = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        about = {"recipe": recipe.name, "fields": dataclasses.asdict(recipe), "machine": machine(), "began": began}
        run.folder.seal(about)
        return run

    @classmethod
    def open(cls, path: Path, step: int | None = None) -> "Run":
        """A run to look at: as its checkpoint of `step` has it, or the newest, or the best if it was stopped early."""
        folder = RunFolder.open(path)
        run = cls(recipe_of(folder), folder)
        run._load(step)
        if run.finished and step is None:
            run._take_best()
        return run

    @classmethod
    def resume(cls, path: Path, **changes: Any) -> "Run":
        """A run to go on with; the folder is claimed, and metrics past the checkpoint are forgotten."""
        folder = RunFolder.open(path)
        folder.claim()
        run = cls(change(recipe_of(folder), **changes), folder)
        about = run._load()
        if run.recipe.steps <= run.step and "steps" in changes:
            raise EngramError(f"{path} is at step {run.step} already: --steps must be more.")
        folder.cut_metrics(about["metrics_bytes"])
        folder.publish(run.published)  # the run may have died just before it did so
        if changes:
            fields = dataclasses.asdict(run.recipe)
            folder.write_json("recipe.json", {**folder.read_json("recipe.json"), "fields": fields})
            run.stopped = run.finished = False
        return run

    def _load(self, step: int | None = None) -> dict[str, Any]:
        """Take everything from a checkpoint, and return what else it says."""
        model, state, about = self.folder.load(step)
        fill(self.learner.model, model, self.folder.path)
        try:
            self.learner.load_state_dict(state["learner"])
            self.batches.load_state_dict(state["batches"])
            torch.set_rng_state(state["rng"])
            self.step, self.seconds = state["step"], state["seconds"]
            self.stopped, self.finished = state["stopped"], state["finished"]
            self.best_step, self.best_value = state["best"]
            window = state["window"]
        except (KeyError, ValueError, RuntimeError):
            raise EngramError(f"The checkpoint in {self.folder.path} does not fit its recipe.json.") from None
        self.window = [
            {name: torch.tensor(value, dtype=torch.float64) for name, value in line.items()} for line in window
        ]
        return about

    def save(self, weights: dict[str, Tensor] | None = None) -> None:
        """Write a checkpoint: after it, this run can be continued exactly from here."""
        self._check_window()
        state = {
            "step": self.step,
            "seconds": self.seconds,
            "stopped": self.stopped,
            "finished": self.finished,
            "best": (self.best_step, self.best_value),
            "window": [{name: float(value) for name, value in line.items()} for line in self.window],
            "rng": torch.get_rng_state(),
            "learner": self.learner.state_dict(),
            "batches": self.batches.state_dict(),
        }
        keep = {self.best_step} if self.recipe.patience else set()
        keep |= milestones(self.step, self.recipe.every, self.recipe.keep)
        self.folder.save(self.step, weights or self.learner.model.state_dict(), state, keep, self.published)

    @property
    def published(self) -> int:
        """The step whose weights are the run's result: the last, or in the end the best if there was patience."""
        return self.best_step if self.finished and self.recipe.patience else self.step

    # ------------------------------------------------------------------ going on

    def advance(self) -> None:
        """One step."""
        self.window.append(self.learner.step(next(self.batches)))
        self.step += 1

    def start_clock(self) -> None:
        """Only time spent on the run counts, not time spent before it."""
        self._clock = time.perf_counter()

    def tick(self) -> float:
        """Count the time since the last tick, and return all of it."""
        now = time.perf_counter()
        self.seconds, self._clock = self.seconds + now - self._clock, now
        return self.seconds

    def record(self) -> dict[str, Any]:
        """A line of metrics with the means over the steps since the last one."""
        self._check_window()
        names = dict.fromkeys(name for line in self.window for name in line)
        values = {name: [float(line[name]) for line in self.window if name in line] for name in names}
        self.window = []
        return self._write({name: sum(series) / len(series) for name, series in values.items()})

    def _check_window(self) -> None:
        """Nothing that is NaN or infinite is written down, neither as a metric nor into a checkpoint."""
        for i, line in enumerate(self.window):
            for name, value in line.items():
                if not math.isfinite(value):
                    raise NotFinite(self, name, float(value), self.step - len(self.window) + i + 1)

    def evaluate(self, split: str) -> dict[str, Any]:
        """A line of metrics with how good the model is on a split."""
        with aside(self.learner.model, self.recipe.seed):
            measured = self.recipe.evaluate(self.learner, self.data, split)
        for name, value in measured.items():
            if not math.isfinite(value):
                raise NotFinite(self, f"{split}_{name}", value, self.step)
        return self._write({f"{split}_{name}": value for name, value in measured.items()})

    def _write(self, values: dict[str, float]) -> dict[str, Any]:
        line = {"step": self.step, "seconds": round(self.tick(), 3), **values}
        self.folder.append_metrics([line])
        return line

    def judge(self, line: dict[str, Any]) -> None:
        """Remember the best evaluation, and stop if there was no better one for as long as the recipe's patience."""
        name, wanted = self.recipe.best
        if name in line:
            value = line[name] if wanted == "min" else -line[name]
            if value < self.best_value:
                self.best_step, self.best_value = self.step, value
        waited = (self.step - self.best_step) / self.recipe.every
        if self.recipe.patience and waited >= self.recipe.patience:
            self.stopped = True

    def finish(self) -> dict[str, Any]:
        """The end: take the best weights if stopping early was asked for, and measure on the test split."""
        last = {name: value.clone() for name, value in self.learner.model.state_dict().items()}
        self._take_best()
        line = self.evaluate("test")
        self.finished = True
        self.save(last)
        return line

    def _take_best(self) -> None:
        if self.recipe.patience and self.best_step != self.step:
            self.learner.model.load_state_dict(self.folder.load(self.best_step)[0])


REMEDIES = {
    "lr": "a lower --lr",
    "warmup": "more --warmup",
    "clip": "a --clip of 1",
    "step_ms": "a smaller --step-ms",
}


class NotFinite(EngramError):
    """Learning has come apart."""

    def __init__(self, run: Run, name: str, value: float, step: int) -> None:
        fitting = [remedy for field, remedy in REMEDIES.items() if field in settings(run.recipe)]
        saved = run.folder.checkpoints()[-1]
        super().__init__(
            f"{name} became {value} at step {step}: try {' or '.join(fitting)}; "
            f"the checkpoint of step {saved} in {run.folder.path} is intact."
        )


def milestones(step: int, every: int, most: int) -> set[int]:
    """Steps up to `step` that are evaluated, `most` of them or up to half as many; farther apart as a run goes on."""
    apart = every
    while most and step // apart > most:
        apart *= 2
    return set(range(0, step + 1, apart)) if most else set()


def next_folder(name: str, within: Path = RUNS) -> Path:
    """The first of NAME-1, NAME-2 … that is not there yet, made at once so that nobody else takes it."""
    with writing(within):
        within.mkdir(exist_ok=True)
        for number in itertools.count(1):
            with contextlib.suppress(FileExistsError):
                (path := within / f"{name}-{number}").mkdir()
                return path
    raise AssertionError("numbers do not end")


def recipe_class(folder: RunFolder) -> type[Recipe]:
    """The kind of recipe that a folder was made by."""
    name = folder.read_json("recipe.json").get("recipe")
    if not isinstance(name, str):
        raise EngramError(f"{folder.path / 'recipe.json'} is damaged: it names no recipe.")
    return find(name)


def recipe_of(folder: RunFolder) -> Recipe:
    """The recipe that a folder was made by, with its settings."""
    fields = folder.read_json("recipe.json").get("fields")
    if not isinstance(fields, dict):
        raise EngramError(f"{folder.path / 'recipe.json'} is damaged: it has no fields.")
    recipe: Recipe = from_json(recipe_class(folder)(), fields)
    return recipe


def fill(model: nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    """Put weights into a model; what is missing, left over or misshapen is named."""
    own = model.state_dict()
    wrong = [f"{name} is missing" for name in own if name not in weights]
    wrong += [f"{name} is not part of the model" for name in weights if name not in own]
    wrong += [
        f"{name} is {tuple(value.shape)} and should be {tuple(own[name].shape)}"
        for name, value in weights.items()
        if name in own and own[name].shape != value.shape
    ]
    if wrong:
        raise EngramError(f"The weights in {path} do not fit the model: {'; '.join(wrong)}.")
    model.load_state_dict(weights)
