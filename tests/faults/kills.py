"""SIGKILL at random moments of a run's life, and on again: the end is that of an undisturbed run."""

import shutil
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.faults.driver import Different, Process, Reference, Starter, Work, check_end, check_midway, moments

WORKS = tuple(Work(name, steps=200, eval_every=10) for name in ("gpt", "cnn", "vae", "rbm", "gan"))
"""Muon; batch norm and augmentation; noise in the batches; persistent chains; two optimizers that take turns"""
AIMS = (*3 * [""], *3 * ["saving"], *2 * ["writing"], "starting", "evaluating", "sampling", "reporting")
"""where a kill is aimed; the empty one is any moment of the life that is left"""
ALONE = 10
"""every so many starts, one is a process of its own instead of a fork"""


@dataclass
class Tally:
    """What came of the kills of one recipe."""

    name: str
    phases: Counter[str] = field(default_factory=Counter)
    resumes: int = 0
    """starts that found a run to go on with"""
    runs: int = 0

    @property
    def kills(self) -> int:
        return self.phases.total()


def torment(
    work: Work, kills: int, seed: int, folder: Path, starter: Starter, aims: tuple[str, ...] = AIMS, **faults: object
) -> Tally:
    """Kill runs of `work` until there were so many kills; every run is brought to its end and compared."""
    reference = starter.reference(work, **faults)
    tally, chance = Tally(work.name), moments(seed, work.name)
    starts = 0
    while tally.kills < kills:
        run, killed = folder / f"run-{tally.runs}", True
        while killed:
            starts += 1
            resumed = (run / "recipe.json").exists()
            process = starter.start(work.words(run, "--resume"), fork=starts % ALONE != 0, **faults)
            killed = tally.kills < kills and kill(process, chance, reference, aims, progress(run, work))
            if killed:
                tally.phases[process.mark()[0]] += 1
                check_midway(run, reference)
            tally.resumes += resumed
        if process.wait() != 0 and "is finished" not in process.said():  # killed when only a last word was missing
            raise Different(process.said())
        check_end(run, reference)
        tally.runs += 1
        shutil.rmtree(run)
    return tally


def progress(run: Path, work: Work) -> float:
    """How much of the run is left, from its newest checkpoint."""
    steps = [int(path.name) for path in run.glob("state/*") if path.name.isdigit()]
    return 1 - max(steps, default=0) / work.steps


def kill(process: Process, chance: Random, reference: Reference, aims: tuple[str, ...], left: float) -> bool:
    """Kill it at a moment drawn by lot; False if it was over before."""
    aim, share, times = chance.choice(aims), chance.random(), chance.randint(1, 6)
    if aim:
        times = times if aim in ("saving", "learning", "evaluating", "writing") else 1
        if not process.await_phase(aim, times):
            return False
        time.sleep(share * reference.usual[aim])
    else:
        again = sum(reference.lasts[phase] for phase in ("learning", "evaluating", "saving"))
        time.sleep(share * (sum(reference.lasts.values()) - (1 - left) * again))
    process.signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL
