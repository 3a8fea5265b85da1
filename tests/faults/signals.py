"""SIGTERM, as schedulers send it: saved where it stands, exit code 130, and the same end."""

import re
import signal
import time
from collections import Counter
from pathlib import Path

from engram.training.run_folder import RunFolder
from tests.faults.disk import spread
from tests.faults.driver import Different, Process, Row, Starter, Work, check_end, check_midway, finish, moments

WORK = Work("cnn", 60, 10)
INTERRUPTED = 130
AIMS = ("saving", "reporting", "starting", "evaluating", "learning", "sampling", "writing")
SAYINGS = (
    r"Saved at step \d+\. Resume with: engram run --resume ",
    r"Stopped at once; step \d+ is saved\. Resume with: engram run --resume ",
    r"engram: Interrupted; what was saved before is intact\.",
)


def terminated(tries: int, seed: int, folder: Path, starter: Starter) -> Row:
    """One SIGTERM in every phase."""
    reference, chance = starter.reference(WORK), moments(seed, "term")
    where, late = Counter[str](), 0
    for number in range(tries):
        run, aim = folder / f"run-{number}", AIMS[number % len(AIMS)]
        process = starter.start(WORK.words(run, "--resume"))
        process.await_phase(aim, chance.randint(1, 4) if aim in ("learning", "evaluating", "saving", "writing") else 1)
        time.sleep(chance.random() * reference.usual[aim])
        where[process.mark()[0]] += 1
        process.signal(signal.SIGTERM)
        late += not stopped(process, run)
        check_midway(run, reference)
        if not (run / "report.html").exists():
            finish(WORK, run, reference, starter, exactly=False)
        check_end(run, reference, exactly=False)
    return Row(
        "SIGTERM", "at random moments of every phase", tries, f"{spread(where)}; {late} came after the last step"
    )


def stopped(process: Process, run: Path) -> bool:
    """Whether it was interrupted, as it must be with the right words; else it must have come to its end."""
    code, said = process.wait(), process.said()
    if code == 0 and (run / "report.html").exists():
        return False
    if code != INTERRUPTED or not any(re.search(saying, said) for saying in SAYINGS) or "Traceback" in said:
        raise Different(f"exit code {code}, and it said: {said}")
    saved, found = re.search(r"step (\d+)", said.splitlines()[-1]), RunFolder(run).checkpoints()
    if saved and int(saved[1]) != found[-1]:
        raise Different(f"the newest checkpoint is {found[-1]}, and it said: {said}")
    return True


def while_importing(tries: int, seed: int, folder: Path, starter: Starter) -> Row:
    """The plain command hears SIGTERM before it has even begun: the system ends it, or it says so itself."""
    reference, chance = starter.reference(WORK), moments(seed, "importing")
    codes = Counter[str]()
    for number in range(tries):
        run = folder / f"run-{number}"
        process = starter.command(WORK.words(run, "--resume"))
        time.sleep(3 * chance.random())
        process.signal(signal.SIGTERM)
        code = process.wait()
        if code not in (INTERRUPTED, -signal.SIGTERM, 0) or "Traceback" in process.said():
            raise Different(f"exit code {code}, and it said: {process.said()}")
        codes[str(code)] += 1
        if not (run / "report.html").exists():
            finish(WORK, run, reference, starter, exactly=False)
        check_end(run, reference, exactly=False)
    found = ", ".join(f"exit code {code}: {count}" for code, count in codes.most_common())
    return Row("SIGTERM while it starts", "the plain command, in its first seconds", tries, found)


def then_killed(tries: int, seed: int, folder: Path, starter: Starter) -> Row:
    """SIGTERM, and SIGKILL two seconds later, on a disk so slow that it cannot save in time."""
    reference, chance = starter.reference(WORK), moments(seed, "killed")
    outcomes = Counter[str]()
    for number in range(tries):
        run = folder / f"run-{number}"
        process = starter.start(WORK.words(run, "--resume"), slow_disk=0.5 if number % 2 else 0.1)
        process.await_phase("learning", chance.randint(1, 2))
        time.sleep(0.05 * chance.random())
        process.signal(signal.SIGTERM)
        time.sleep(2)
        process.signal(signal.SIGKILL)
        outcomes["killed" if process.wait() == -signal.SIGKILL else "saved in time"] += 1
        check_midway(run, reference)
        finish(WORK, run, reference, starter, exactly=False)
    return Row("SIGTERM, then SIGKILL", "2 s later, fsync taking 0.1 or 0.5 s", tries, spread(outcomes))


def twice(tries: int, seed: int, folder: Path, starter: Starter) -> Row:
    """A second SIGTERM stops it at once."""
    reference, chance = starter.reference(WORK), moments(seed, "twice")
    where = Counter[str]()
    for number in range(tries):
        run = folder / f"run-{number}"
        process = starter.start(WORK.words(run, "--resume"))
        process.await_phase("learning", chance.randint(1, 5))
        process.signal(signal.SIGTERM)
        time.sleep(0.03 * chance.random())
        process.signal(signal.SIGTERM)
        where[process.mark()[0]] += 1
        if stopped(process, run):
            finish(WORK, run, reference, starter, exactly=False)
        check_end(run, reference, exactly=False)
    return Row("SIGTERM twice", "up to 30 ms apart", tries, spread(where))
