"""Data-parallel scaling: 2 processes × 1 thread against 1 process × 2 threads, with DDP and FSDP2.

The score is the ratio of steps per second. Every round trains with one process and then with two.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from engram.cli.bench import Contestant, Score
from engram.core.registry import get_recipe
from engram.training import distributed, process_group
from engram.training.run import Run

WORK = "training steps: 2 processes × 1 thread against 1 process × 2 threads"
UNIT = "x one process"
ROUNDS = 3
RECIPES = ("gpt", "cnn", "vae", "rbm")
WARM_UP, SECONDS = 10, 4.0


def contestants() -> dict[str, Contestant]:
    found: dict[str, Contestant] = {}
    for name in RECIPES:
        found[f"{name}, DDP"] = lambda name=name: lambda: compared(name)  # type: ignore[misc]
        found[f"{name}, FSDP2"] = lambda name=name: lambda: compared(name, "shard")  # type: ignore[misc]
    return found


def compared(name: str, *how: str) -> Score:
    one = rate([sys.executable, __file__, name], threads=2)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    two = rate([*torchrun, __file__, name, *how], threads=1)
    return Score(two / one, f"{two:.1f} against {one:.1f} steps/s")


def rate(words: list[str], threads: int) -> float:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(words, check=True, capture_output=True, text=True, env=environment)
    return float(done.stdout)


def learn(name: str, shard: bool) -> None:
    """Train for some seconds; the main process prints the steps per second."""
    with tempfile.TemporaryDirectory() as folder, process_group.join(shard):
        run = Run.start(get_recipe(name)(), Path(folder) / "run")
        for _ in range(WARM_UP):
            run.train_step()
        began, steps = time.perf_counter(), 0
        while not any(distributed.any_rank(time.perf_counter() - began > SECONDS)):
            run.train_step()
            steps += 1
        if distributed.is_main():
            print(steps / (time.perf_counter() - began))


if __name__ == "__main__":
    learn(sys.argv[1], "shard" in sys.argv[2:])
