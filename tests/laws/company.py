"""Several processes for the tests: torchrun starts this, and each process goes through the same list of tiny runs.

torchrun … -m tests.laws.company JOBS.json
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

from engram.core.errors import EngramError
from engram.core.registry import registry
from engram.training import distributed, process_group
from engram.training.run import Run
from engram.training.train import Callback, train


class Dying(Callback):
    """The last process is killed at a step, once."""

    def __init__(self, step: int, mark: Path) -> None:
        self.step, self.mark = step, mark

    def on_step(self, run: Run) -> None:
        if run.step == self.step and distributed.rank() == distributed.world_size() - 1 and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class Double:
    """A source whose batches have twice the digits."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def __next__(self) -> dict[str, Any]:
        return {name: twice(column) for name, column in next(self.source).items()}

    def state_dict(self) -> dict[str, Any]:
        return self.source.state_dict()


def twice(value: Any) -> Any:
    """Tensors of floating numbers in 64 bits, however deep they lie."""
    if isinstance(value, dict):
        return {name: twice(one) for name, one in value.items()}
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def in_double(run: Run) -> None:
    """Let a run that has just begun take its steps in 64 bits, without evaluations, which are written for 32."""
    run.learner.model.double()
    run.batches = Double(run.batches)
    for name in ("update", "means", "particles_BV"):  # of a Boltzmann machine
        if hasattr(run.learner, name):
            setattr(run.learner, name, twice(getattr(run.learner, name)))
    for _ in range(run.recipe.steps):
        run.train_step()
        run.record()
    run.save()


def work(job: dict) -> None:
    folder = Path(job["out"])
    recipe = registry()[job["name"]].from_preset("tiny", **job.get("changes", {}))
    with process_group.join(job.get("shard", False)):
        try:
            run = Run.resume(folder) if "dies" in job and (folder / "died").exists() else Run.start(recipe, folder)
        except EngramError as error:
            (folder.parent / f"refused-{distributed.rank()}").write_text(f"{type(error).__name__}: {error}")
            return
        if job.get("double"):
            in_double(run)
        else:
            train(run, [Dying(job["dies"], folder / "died")] if "dies" in job else [])
        run.folder.release()


if __name__ == "__main__":
    torch.set_num_threads(1)
    for job in json.loads(Path(sys.argv[1]).read_text()):
        work(job)
