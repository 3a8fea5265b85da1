"""Several processes and one run folder."""

import signal
import time
from collections import Counter
from pathlib import Path

from engram.core.errors import EngramError
from engram.training.run_folder import RunFolder
from tests.faults.driver import Different, Row, Starter, Work, check_end, moments, refusal

WORK = Work("cnn", 60, 10)
BUSY = ("is in use by another process", "already holds a run", "is finished")


def contestants(tries: int, seed: int, folder: Path, starter: Starter, many: int = 8) -> Row:
    """Many begin or go on with the same run at the same moment: one wins, the others are refused."""
    reference, chance = starter.reference(WORK), moments(seed, "contest")
    for number in range(tries):
        run = folder / f"run-{number}"
        if number % 2:  # there is something to go on with
            process = starter.start(WORK.words(run, "--resume"))
            process.await_phase("learning", chance.randint(1, 4))
            process.signal(signal.SIGKILL)
            process.wait()
        processes = [starter.start(WORK.words(run, "--resume")) for _ in range(many)]
        winners = [process for process in processes if process.wait() == 0]
        if len(winners) != 1:
            raise Different(f"{len(winners)} of {many} won: {[process.said() for process in processes]}")
        for process in processes:
            if process is not winners[0]:
                refusal(process, *BUSY)
        check_end(run, reference)
    return Row("many at once", f"{many} processes, one new or unfinished folder", tries, "one wins, the others refuse")


def intruder(tries: int, seed: int, folder: Path, starter: Starter) -> Row:
    """A second process comes while the first runs."""
    reference, chance = starter.reference(WORK), moments(seed, "intruder")
    for number in range(tries):
        run = folder / f"run-{number}"
        first = starter.start(WORK.words(run, "--resume"))
        first.await_phase("learning", chance.randint(1, 3))
        words = (WORK.words(run, "--resume"), ["run", "--resume", run], WORK.words(run))[number % 3]
        refusal(starter.start(words), *BUSY)
        if first.wait() != 0:
            raise Different(first.said())
        check_end(run, reference)
    return Row("a second process", "while the first runs", tries, "refused; the first is undisturbed")


def readers(tries: int, seed: int, folder: Path, starter: Starter) -> Row:
    """`sample`, `look` and `report` while it runs, and its weights read as often as possible."""
    work = Work("cnn", 300, 3)  # a checkpoint at every moment
    reference = starter.reference(work)
    seen = Counter[str]()
    for number in range(tries):
        run = folder / f"run-{number}"
        first = starter.start(work.words(run, "--resume"))
        first.await_phase("learning")
        others = [starter.start([verb, run]) for verb in ("sample", "inspect", "report")]
        while first.poll() is None:
            read(run)
            seen["reads"] += 1
            time.sleep(1e-4)
        for process in [first, *others]:
            if process.wait() != 0:
                raise Different(process.said())
        check_end(run, reference, exactly=False)
    return Row("readers", "sample, look, report and reading it all while it runs", tries, f"{seen['reads']} reads")


def read(run: Path) -> None:
    try:
        opened = RunFolder.open(run)
        opened.weights()
        opened.load()
        opened.metrics()
    except EngramError as error:
        raise Different(f"a reader was told: {error}") from None
