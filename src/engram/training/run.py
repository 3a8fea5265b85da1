"""A run in progress: recipe, data, learner, batches, step.

run = Run.start(recipe, path)    or    Run.resume(path)
train(run, [ProgressBar()])                                   # training/train.py
"""

import contextlib
import dataclasses
import itertools
import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engram.core.config import flatten, from_json, override
from engram.core.device import CPU, DevicePromotion, to_device
from engram.core.errors import EngramError
from engram.core.files import writing
from engram.core.learner import Metrics
from engram.core.model_size import limit_model_size
from engram.core.recipe import AnyRecipe
from engram.core.registry import get_recipe
from engram.core.seeding import generator, isolated_eval
from engram.data import absolute
from engram.training import distributed, process_group
from engram.training.machine import machine, warn_of_other_threads
from engram.training.run_folder import Checkpoint, RunFolder
from engram.training.start_checks import check_batch, check_start

RUNS = Path("runs")
"""default folder of runs"""


class Run:
    """Recipe, data, learner, batches, position and folder of one run."""

    def __init__(self, recipe: AnyRecipe, folder: RunFolder) -> None:
        self.recipe, self.folder = recipe, folder
        torch.manual_seed(recipe.seed)
        fresh = not folder.holds_run()
        self.data = recipe.load() if fresh else recipe.reload(folder.path)
        with check_start(recipe, self.data) if fresh else contextlib.nullcontext():
            self.learner = recipe.learner(self.data)
        self.batches = recipe.batches(self.data)
        if fresh:
            check_batch(recipe, self.data, self.batches)
        if distributed.is_sharding() and not distributed.is_sharded(self.learner.model):
            raise EngramError(f"{recipe.name} cannot be sharded over processes: leave out --shard.")
        self.device = self._to_device()
        if not distributed.is_main():
            self._seed_rank()
        self.step = 0
        self.seconds = 0.0
        self.best_step, self.best_value = 0, math.inf
        self.stopped = False  # no more steps: only the test is left
        self.finished = False
        self.window: list[Metrics] = []  # metrics of the steps since the last line of metrics
        self.start_clock()

    # ------------------------------------------------------------------ start, open, save

    @classmethod
    def start(cls, recipe: AnyRecipe, path: Path | None = None) -> "Run":
        """Start a run in a new folder, by default runs/NAME-1, NAME-2 …; on failure nothing is created."""
        if path:
            distributed.broadcast_from_main(RunFolder(path).check_vacant)
        recipe = override(recipe, data=absolute(recipe.data))
        run = cls(recipe, RunFolder(path or RUNS))
        created = distributed.broadcast_from_main(lambda: run._create_folder(path))
        if not distributed.is_main():
            run.folder = RunFolder(Path(created))
        with run.discard_on_failure():
            run.save()
            began = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            about = {"recipe": recipe.name, "fields": dataclasses.asdict(recipe), "machine": machine(), "began": began}
            distributed.broadcast_from_main(lambda: run.folder.finalize(about))
        return run

    @contextlib.contextmanager
    def discard_on_failure(self) -> Iterator[None]:
        """Delete the folder of a new run that fails before its first step: there is nothing in it to resume."""
        try:
            yield
        except Exception:
            if self.step == 0 and distributed.is_main():
                self.folder.discard()
            raise

    def _create_folder(self, path: Path | None) -> str:
        """Create the folder with the files that do not change; return its path."""
        self.folder = RunFolder.create(path or next_folder(self.recipe.name))
        config = dataclasses.asdict(self.learner.model.config)  # type: ignore[call-overload]
        self.folder.write_json("config.json", {"architecture": type(self.learner.model).__name__, **config})
        for name, content in self.recipe.files(self.data).items():
            self.folder.write(name, content)
        return str(self.folder.path)

    @classmethod
    def open(cls, path: Path, step: int | None = None) -> "Run":
        """Open a run for reading at the checkpoint of `step`.

        By default the newest, after early stopping the best.
        """
        folder = RunFolder.open(path)
        recipe, checkpoint = recipe_of(folder), folder.load(step)  # before anything slow: either may be damaged
        with limit_model_size(folder.size(), folder.path):
            run = cls(recipe, folder)
        run._restore(checkpoint)
        if run.finished and step is None:
            run._load_best()
        return run

    @classmethod
    def resume(cls, path: Path, **changes: Any) -> "Run":
        """Open a run for training: lock the folder and cut off metrics after the checkpoint."""
        folder = RunFolder.open(path)
        distributed.broadcast_from_main(folder.lock)
        recipe, checkpoint = override(recipe_of(folder), **changes), folder.load()
        with limit_model_size(folder.size(), folder.path):
            run = cls(recipe, folder)
        about = run._restore(checkpoint)
        if run.recipe.steps <= run.step and "steps" in changes:
            raise EngramError(f"{path} is at step {run.step} already: --steps must be more.")
        distributed.broadcast_from_main(lambda: run._tidy(about.get("metrics_bytes"), bool(changes)))
        distributed.broadcast_from_main(lambda: warn_of_other_threads(folder))
        if changes:
            run.stopped = run.finished = False
        return run

    def _tidy(self, metrics_bytes: Any, changed: bool) -> None:
        """Restore the folder to the state of the checkpoint, after a kill just before or after saving."""
        self.folder.cut_metrics(metrics_bytes)
        self.folder.prune(self.step, self.kept_steps, self.result_step)
        if changed:
            fields = dataclasses.asdict(self.recipe)
            self.folder.write_json("recipe.json", {**self.folder.read_json("recipe.json"), "fields": fields})

    def _restore(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """Load the whole state from a checkpoint; return its metadata."""
        model, state, about = checkpoint
        load_weights(self.learner.model, model, self.folder.path)
        try:
            if not same_structure(self._state(), state):
                raise TypeError("a state of another form")
            self.learner.load_state_dict(state["learner"])
            self.batches.load_state_dict(state["batches"])
            self._load_rng_state(state)
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

    def _to_device(self) -> torch.device:
        """Move the learner to the device of this process if it supports it; return its device."""
        move = getattr(self.learner, "to", None)
        if move is None or process_group.current_device() == CPU:
            return CPU
        move(process_group.current_device())
        return process_group.current_device()

    def _seed_rank(self) -> None:
        """Seed this process differently from others, for dropout."""
        torch.manual_seed(generator(self.recipe.seed, f"process {distributed.rank()}").initial_seed())

    def _rng_state(self) -> Tensor:
        """Return the state of the random number generators of this process, of CPU and GPU."""
        gpu = [torch.cuda.get_rng_state(self.device)] if self.device.type == "cuda" else []
        return torch.cat([torch.get_rng_state(), *gpu])

    def _load_rng_state(self, state: Mapping[str, Any]) -> None:
        """Load the random state of this process, if there is one for it."""
        states = [state["rng"], *state.get("other_rngs", [])]
        if not distributed.is_main() and len(states) != distributed.world_size():
            return
        memory, gpu = states[distributed.rank()].tensor_split([len(torch.get_rng_state())])
        torch.set_rng_state(memory)
        if len(gpu) and self.device.type == "cuda":
            torch.cuda.set_rng_state(gpu, self.device)

    def save(self, weights: dict[str, Tensor] | None = None) -> None:
        """Write a checkpoint from which the run resumes exactly."""
        self._average_window()
        state = self._state()
        weights = distributed.gather_full(weights or self.learner.model.state_dict(), everywhere=False)
        distributed.broadcast_from_main(
            lambda: self.folder.save(self.step, weights, state, self.kept_steps, self.result_step)
        )

    def _state(self) -> dict[str, Any]:
        """Return everything that the next step depends on, beside the weights."""
        rng, *others = distributed.all_gather(self._rng_state())
        state = {
            "step": self.step,
            "seconds": self.seconds,
            "stopped": self.stopped,
            "finished": self.finished,
            "best": (self.best_step, self.best_value),
            "window": [{name: float(value) for name, value in line.items()} for line in self.window],
            "rng": rng,
            "learner": distributed.gather_full(self.learner.state_dict(), everywhere=False),
            "batches": self.batches.state_dict(),
        }
        return state | {"other_rngs": others} if others else state

    @property
    def kept_steps(self) -> set[int]:
        """Steps whose checkpoints are kept: the best with early stopping, and those of --keep-checkpoints."""
        best = {self.best_step} if self.recipe.patience else set()
        return best | evenly_spaced_steps(self.step, self.recipe.eval_every, self.recipe.keep_checkpoints)

    @property
    def result_step(self) -> int:
        """Step whose weights are the result: the last, or the best after early stopping."""
        return self.best_step if self.finished and self.recipe.patience else self.step

    # ------------------------------------------------------------------ train

    def train_step(self) -> None:
        """Train on the next batch."""
        self.window.append(self.learner.step(to_device(next(self.batches), self.device)))
        self.step += 1

    def start_clock(self) -> None:
        """Start counting training time."""
        self._clock = time.perf_counter()

    def tick(self) -> float:
        """Add the time since the last tick; return the total in seconds."""
        now = time.perf_counter()
        self.seconds, self._clock = self.seconds + now - self._clock, now
        return self.seconds

    def record(self) -> dict[str, Any]:
        """Write a line of metrics: means over the steps since the last line."""
        self._average_window()
        names = dict.fromkeys(name for line in self.window for name in line)
        values = {name: [float(line[name]) for line in self.window if name in line] for name in names}
        self.window = []
        return self._write({name: sum(series) / len(series) for name, series in values.items()})

    def _average_window(self) -> None:
        """Average metrics over processes; refuse NaN and infinity."""
        if distributed.world_size() > 1:
            values = torch.tensor(
                [float(value) for line in self.window for value in line.values()], dtype=torch.float64
            )
            distributed.average([values])
            averaged = iter(values)
            self.window = [{name: next(averaged) for name in line} for line in self.window]
        for i, line in enumerate(self.window):
            for name, value in line.items():
                if not math.isfinite(value):
                    raise NotFinite(self, name, float(value), self.step - len(self.window) + i + 1)

    def evaluate(self, split: str) -> dict[str, Any]:
        """Evaluate on a split and write a line of metrics."""
        with distributed.unsharded(self.learner.model):
            metrics = distributed.broadcast_from_main(lambda: self._measure(split))
        return self._write({f"{split}_{name}": value for name, value in metrics.items()})

    def _measure(self, split: str) -> dict[str, float]:
        promotion = contextlib.nullcontext() if self.device == CPU else DevicePromotion(self.device)
        with isolated_eval(self.learner.model, self.recipe.seed), promotion:
            metrics = self.recipe.evaluate(self.learner, self.data, split)
        for name, value in metrics.items():
            if not math.isfinite(value):
                raise NotFinite(self, f"{split}_{name}", value, self.step)
        return metrics

    def _write(self, values: dict[str, float]) -> dict[str, Any]:
        line = {"step": self.step, "seconds": round(self.tick(), 3), **values}
        distributed.broadcast_from_main(lambda: self.folder.append_metrics([line]))
        return line

    def update_best(self, line: dict[str, Any]) -> None:
        """Update the best evaluation; stop if there was no better one within the patience."""
        name, mode = self.recipe.best_metric(line)
        if name in line:
            value = line[name] if mode == "min" else -line[name]
            if value < self.best_value:
                self.best_step, self.best_value = self.step, value
        waited = (self.step - self.best_step) / self.recipe.eval_every
        if self.recipe.patience and waited >= self.recipe.patience:
            self.stopped = True

    def finish(self) -> dict[str, Any]:
        """Evaluate on the test split, with the best weights if there is early stopping, and save."""
        last = {name: value.clone() for name, value in self.learner.model.state_dict().items()}
        self._load_best()
        line = self.evaluate("test")
        self.finished = True
        self.save(last)
        return line

    def _load_best(self) -> None:
        if self.recipe.patience and self.best_step != self.step:
            distributed.load_full(self.learner.model, self.folder.load(self.best_step)[0])


SUGGESTIONS = {
    "lr": "a lower --lr",
    "warmup": "more --warmup",
    "clip_grad_norm": "a --clip-grad-norm of 1",
    "step_ms": "a smaller --step-ms",
}


class NotFinite(EngramError):
    """A metric became NaN or infinite."""

    def __init__(self, run: Run, name: str, value: float, step: int) -> None:
        suggestions = [suggestion for field, suggestion in SUGGESTIONS.items() if field in flatten(run.recipe)]
        saved = run.folder.checkpoints()[-1]
        super().__init__(
            f"{name} became {value} at step {step}: try {' or '.join(suggestions)}; "
            f"the checkpoint of step {saved} in {run.folder.path} is intact."
        )


def evenly_spaced_steps(step: int, every: int, count: int) -> set[int]:
    """Return evaluated steps up to `step`, at most `count`, in spacings that grow with the run."""
    spacing = every
    while count and step // spacing > count:
        spacing *= 2
    return set(range(0, step + 1, spacing)) if count else set()


def next_folder(name: str, within: Path = RUNS) -> Path:
    """Create and return the first of the folders NAME-1, NAME-2 … that does not exist."""
    with writing(within):
        within.mkdir(exist_ok=True)
        for number in itertools.count(1):
            with contextlib.suppress(FileExistsError):
                (path := within / f"{name}-{number}").mkdir()
                return path
    raise AssertionError("unreachable")


def recipe_class(folder: RunFolder) -> type[AnyRecipe]:
    """Return the recipe class of a run folder."""
    name = folder.read_json("recipe.json").get("recipe")
    if not isinstance(name, str):
        raise EngramError(f"{folder.path / 'recipe.json'} is damaged: it names no recipe.")
    return get_recipe(name)


def recipe_of(folder: RunFolder) -> AnyRecipe:
    """Return the recipe of a run folder, with its settings."""
    fields = folder.read_json("recipe.json").get("fields")
    if not isinstance(fields, dict):
        raise EngramError(f"{folder.path / 'recipe.json'} is damaged: it has no fields.")
    recipe: AnyRecipe = from_json(recipe_class(folder)(), fields)
    return recipe


def same_structure(known: Any, found: Any) -> bool:
    """Return whether a state has the structure of a known one: the same names, values of the same types.

    What is empty or None in the known state may be anything; the number of processes may differ.
    """
    if isinstance(known, Mapping):
        names = known.keys() - {"other_rngs"}
        return isinstance(found, Mapping) and all(
            name in found and same_structure(known[name], found[name]) for name in names
        )
    if isinstance(known, (list, tuple)):
        same = type(known) is type(found) and (not known or len(known) == len(found))
        return same and all(map(same_structure, known, found))
    if known is None:
        return True
    if isinstance(known, Tensor):
        return isinstance(found, Tensor)
    if type(known) is int:
        return type(found) is int and (0 if known >= 0 else -(2**63)) <= found < 2**63  # counters
    return type(known) is type(found) or (type(known) is float and type(found) is int)


def load_weights(model: nn.Module, weights: Mapping[str, Tensor], path: Path) -> None:
    """Load weights into a model; name what is missing, unexpected or of the wrong shape."""
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
    distributed.load_full(model, weights)
