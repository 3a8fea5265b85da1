"""Two processes of one thread beside one process of two: the same steps, as torchrun starts them, whole and divided.

Every round lets one process learn and then two, so that both see the same machine; a contestant's score is how many
times as many steps the two take in a second.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from engram.bench import Contestant, Score
from engram.core import together
from engram.core.registry import find
from engram.training import distributed
from engram.training.run import Run

WORK = "steps of learning: 2 processes x 1 thread against 1 process x 2 threads"
UNIT = "x one process"
ROUNDS = 3
RECIPES = ("gpt", "cnn", "vae", "rbm")
WARM_UP, SECONDS = 10, 4.0


def contestants() -> dict[str, Contestant]:
    found: dict[str, Contestant] = {}
    for name in RECIPES:
        found[f"{name}, whole"] = lambda name=name: lambda: compared(name)  # type: ignore[misc]
        found[f"{name}, divided"] = lambda name=name: lambda: compared(name, "divided")  # type: ignore[misc]
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


def learn(name: str, divided: bool) -> None:
    """Learn for some seconds, and let the first process say how many steps that were in each."""
    with tempfile.TemporaryDirectory() as folder, distributed.joined(divided):
        run = Run.start(find(name)(), Path(folder) / "run")
        for _ in range(WARM_UP):
            run.advance()
        began, steps = time.perf_counter(), 0
        while not any(together.any_of(time.perf_counter() - began > SECONDS)):
            run.advance()
            steps += 1
        if together.first():
            print(steps / (time.perf_counter() - began))


if __name__ == "__main__":
    learn(sys.argv[1], "divided" in sys.argv[2:])
