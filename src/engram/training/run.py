"""A run in progress: everything that changes, and how it goes one step on.

run = Run.start(recipe, path)    or    Run.resume(path)
train(run, Progress())                                        # training/loop.py
"""

import contextlib
import dataclasses
import itertools
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engram.core import together
from engram.core.device import CPU, Roaming, moved
from engram.core.errors import EngramError
from engram.core.learner import Metrics
from engram.core.registry import Recipe, change, find, from_json, settings
from engram.core.seeding import aside, generator
from engram.core.size import no_larger_than
from engram.data import absolute
from engram.training import distributed
from engram.training.files import writing
from engram.training.folder import Checkpoint, RunFolder
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
        if together.dividing() and not together.divided(self.learner.model):
            raise EngramError(f"What {recipe.name} learns cannot be divided among processes: leave out --shard.")
        self.device = self._placed()
        if not together.first():
            self._own_noise()
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
            together.from_first(RunFolder(path).must_be_vacant)
        recipe = change(recipe, data=absolute(recipe.data))
        run = cls(recipe, RunFolder(path or RUNS))
        place = together.from_first(lambda: run._settle_in(path))
        if not together.first():
            run.folder = RunFolder(Path(place))
        run.save()
        began = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        about = {"recipe": recipe.name, "fields": dataclasses.asdict(recipe), "machine": machine(), "began": began}
        together.from_first(lambda: run.folder.seal(about))
        return run

    def _settle_in(self, path: Path | None) -> str:
        """Make the folder and what does not change in it; returns where it is."""
        self.folder = RunFolder.create(path or next_folder(self.recipe.name))
        config = dataclasses.asdict(self.learner.model.config)  # type: ignore[call-overload]
        self.folder.write_json("config.json", {"architecture": type(self.learner.model).__name__, **config})
        for name, content in self.recipe.files(self.data).items():
            self.folder.write(name, content)
        return str(self.folder.path)

    @classmethod
    def open(cls, path: Path, step: int | None = None) -> "Run":
        """A run to look at: as its checkpoint of `step` has it, or the newest, or the best if it was stopped early."""
        folder = RunFolder.open(path)
        recipe, checkpoint = recipe_of(folder), folder.load(step)  # before anything slow: either may be damaged
        with no_larger_than(folder.size(), folder.path):
            run = cls(recipe, folder)
        run._restore(checkpoint)
        if run.finished and step is None:
            run._take_best()
        return run

    @classmethod
    def resume(cls, path: Path, **changes: Any) -> "Run":
        """A run to go on with; the folder is claimed, and metrics past the checkpoint are forgotten."""
        folder = RunFolder.open(path)
        together.from_first(folder.claim)
        recipe, checkpoint = change(recipe_of(folder), **changes), folder.load()
        with no_larger_than(folder.size(), folder.path):
            run = cls(recipe, folder)
        about = run._restore(checkpoint)
        if run.recipe.steps <= run.step and "steps" in changes:
            raise EngramError(f"{path} is at step {run.step} already: --steps must be more.")
        together.from_first(lambda: run._tidy(about.get("metrics_bytes"), bool(changes)))
        together.from_first(lambda: warn_of_other_threads(folder))
        if changes:
            run.stopped = run.finished = False
        return run

    def _tidy(self, metrics_bytes: Any, changed: bool) -> None:
        """Let the folder be as the checkpoint knows it: the run may have died just before or after."""
        self.folder.cut_metrics(metrics_bytes)
        self.folder.settle(self.step, self.kept, self.published)
        if changed:
            fields = dataclasses.asdict(self.recipe)
            self.folder.write_json("recipe.json", {**self.folder.read_json("recipe.json"), "fields": fields})

    def _restore(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """Take everything from a checkpoint, and return what else it says."""
        model, state, about = checkpoint
        fill(self.learner.model, model, self.folder.path)
        try:
            if not alike(self._state(), state):
                raise TypeError("a state of another form")
            self.learner.load_state_dict(state["learner"])
            self.batches.load_state_dict(state["batches"])
            self._take_noise(state)
            self.step, self.seconds = state["step"], state["seconds"]
            self.stopped, self.finished = state["stopped"], state["finished"]
            self.best_step, self.best_value = state["best"]
            self.window = [
                {name: torch.tensor(value, dtype=torch.float64) for name, value in line.items()}
                for line in state["window"]
            ]
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
            raise EngramError(f"The checkpoint in {self.folder.path} does not fit its recipe.json.") from None
        return about

    def _placed(self) -> torch.device:
        """Move what can learn there to the device of this process; returns where it learns."""
        move = getattr(self.learner, "to", None)
        if move is None or distributed.device() == CPU:
            return CPU
        move(distributed.device())
        return distributed.device()

    def _own_noise(self) -> None:
        """Dropout and the like must not be the same in every process."""
        torch.manual_seed(generator(self.recipe.seed, f"process {together.rank()}").initial_seed())

    def _noise(self) -> Tensor:
        """Where this process's noise goes on: in memory, and on its GPU."""
        gpu = [torch.cuda.get_rng_state(self.device)] if self.device.type == "cuda" else []
        return torch.cat([torch.get_rng_state(), *gpu])

    def _take_noise(self, state: Mapping[str, Any]) -> None:
        """Go on with one's own noise; a process or a GPU that was not there before begins its own."""
        noises = [state["rng"], *state.get("other_rngs", [])]
        if not together.first() and len(noises) != together.world():
            return
        memory, gpu = noises[together.rank()].tensor_split([len(torch.get_rng_state())])
        torch.set_rng_state(memory)
        if len(gpu) and self.device.type == "cuda":
            torch.cuda.set_rng_state(gpu, self.device)

    def save(self, weights: dict[str, Tensor] | None = None) -> None:
        """Write a checkpoint: after it, this run can be continued exactly from here."""
        self._meet_window()
        state = self._state()
        weights = together.full(weights or self.learner.model.state_dict(), everywhere=False)
        together.from_first(lambda: self.folder.save(self.step, weights, state, self.kept, self.published))

    def _state(self) -> dict[str, Any]:
        """All that the next step depends on beside the weights."""
        rng, *others = together.gathered(self._noise())
        state = {
            "step": self.step,
            "seconds": self.seconds,
            "stopped": self.stopped,
            "finished": self.finished,
            "best": (self.best_step, self.best_value),
            "window": [{name: float(value) for name, value in line.items()} for line in self.window],
            "rng": rng,
            "learner": self.learner.state_dict(),
            "batches": self.batches.state_dict(),
        }
        return state | {"other_rngs": others} if others else state

    @property
    def kept(self) -> set[int]:
        """The steps whose checkpoints are not forgotten: the best, if there is patience, and some to look back at."""
        best = {self.best_step} if self.recipe.patience else set()
        return best | milestones(self.step, self.recipe.every, self.recipe.keep)

    @property
    def published(self) -> int:
        """The step whose weights are the run's result: the last, or in the end the best if there was patience."""
        return self.best_step if self.finished and self.recipe.patience else self.step

    # ------------------------------------------------------------------ going on

    def advance(self) -> None:
        """One step."""
        self.window.append(self.learner.step(moved(next(self.batches), self.device)))
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
        self._meet_window()
        names = dict.fromkeys(name for line in self.window for name in line)
        values = {name: [float(line[name]) for line in self.window if name in line] for name in names}
        self.window = []
        return self._write({name: sum(series) / len(series) for name, series in values.items()})

    def _meet_window(self) -> None:
        """Let measurements be those of all processes; what is NaN or infinite is written down nowhere."""
        if together.world() > 1:
            values = torch.tensor(
                [float(value) for line in self.window for value in line.values()], dtype=torch.float64
            )
            together.average([values])
            met = iter(values)
            self.window = [{name: next(met) for name in line} for line in self.window]
        for i, line in enumerate(self.window):
            for name, value in line.items():
                if not math.isfinite(value):
                    raise NotFinite(self, name, float(value), self.step - len(self.window) + i + 1)

    def evaluate(self, split: str) -> dict[str, Any]:
        """A line of metrics with how good the model is on a split."""
        with together.whole(self.learner.model):
            measured = together.from_first(lambda: self._measure(split))
        return self._write({f"{split}_{name}": value for name, value in measured.items()})

    def _measure(self, split: str) -> dict[str, float]:
        meeting = contextlib.nullcontext() if self.device == CPU else Roaming(self.device)
        with aside(self.learner.model, self.recipe.seed), meeting:
            measured = self.recipe.evaluate(self.learner, self.data, split)
        for name, value in measured.items():
            if not math.isfinite(value):
                raise NotFinite(self, f"{split}_{name}", value, self.step)
        return measured

    def _write(self, values: dict[str, float]) -> dict[str, Any]:
        line = {"step": self.step, "seconds": round(self.tick(), 3), **values}
        together.from_first(lambda: self.folder.append_metrics([line]))
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
            together.take(self.learner.model, self.folder.load(self.best_step)[0])


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


def warn_of_other_threads(folder: RunFolder) -> None:
    """Say that bits may differ where a run resumes with another number of threads than it was begun with."""
    recorded = folder.read_json("recipe.json").get("machine")
    before = recorded.get("threads") if isinstance(recorded, dict) else None
    if isinstance(before, int) and before != (threads := torch.get_num_threads()):
        print(
            f"engram: {folder.path} was started with {before} thread{'s'[: before != 1]} and resumes with {threads}: "
            f"its numbers may differ in their last bits from an uninterrupted run; set OMP_NUM_THREADS={before} "
            "to keep them",
            file=sys.stderr,
        )


def alike(known: Any, found: Any) -> bool:
    """Whether a state has the form of one that is known: the same names, and values of the same kinds.

    What is empty or none at the beginning may be anything later; how many processes there were may differ.
    """
    if isinstance(known, Mapping):
        names = known.keys() - {"other_rngs"}
        return isinstance(found, Mapping) and all(name in found and alike(known[name], found[name]) for name in names)
    if isinstance(known, (list, tuple)):
        same = type(known) is type(found) and (not known or len(known) == len(found))
        return same and all(map(alike, known, found))
    if known is None:
        return True
    if isinstance(known, Tensor):
        return isinstance(found, Tensor)
    if type(known) is int:
        return type(found) is int and (0 if known >= 0 else -(2**63)) <= found < 2**63  # what counts something
    return type(known) is type(found) or (type(known) is float and type(found) is int)


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
    together.take(model, weights)
