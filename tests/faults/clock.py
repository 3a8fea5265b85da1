"""A clock on the wall that jumps by hours and years: nothing that is learnt or limited depends on it."""

import json
import signal
import time
from pathlib import Path

from tests.faults.driver import (
    Absent,
    Different,
    Row,
    Starter,
    Work,
    check_end,
    check_midway,
    finish,
    moments,
)
from tests.faults.kills import torment

WORK = Work("gan", 60, 10)
JUMPS = ("+0", "+3h", "-3h", "+10y", "-10y", "+1d", "-40y")
LIBRARIES = "/usr/lib*/*/faketime/libfaketime.so.1"


def library() -> str:
    """libfaketime, which lies to a whole process about the time, the C library included."""
    for found in sorted(Path("/").glob(LIBRARIES[1:])):
        return str(found)
    raise Absent("libfaketime is not installed")


def lying(file: Path) -> dict[str, str]:
    """The environment of a process whose clock follows `file`; the steady clock is left alone, as it is by a person."""
    return {
        "LD_PRELOAD": library(), "FAKETIME_TIMESTAMP_FILE": str(file), "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1",
    }  # fmt: skip


def jumps(tries: int, seed: int, folder: Path, starter: Starter) -> Row:
    """The clock jumps while the run goes on; it is killed, and resumed at another time."""
    reference, chance = starter.reference(WORK), moments(seed, "clock")
    file, jumped, dates = folder / "clock", 0, set[str]()
    for number in range(tries):
        run = folder / f"run-{number}"
        for _ in range(2):
            file.write_text(chance.choice(JUMPS))
            process = starter.start(WORK.words(run, "--resume"), fork=False, env=lying(file))
            process.await_phase("learning", chance.randint(2, 4))
            while process.poll() is None and process.mark()[0] not in ("sampling", "reporting", "ending"):
                file.write_text(chance.choice(JUMPS))
                jumped += 1
                time.sleep(0.02)
                if chance.random() < 0.05:
                    process.signal(signal.SIGKILL)
            process.wait()
            check_midway(run, reference)
            if (run / "recipe.json").exists():
                dates.add(json.loads((run / "recipe.json").read_text())["began"][:10])
        if not (run / "report.html").exists():
            finish(WORK, run, reference, starter)
        check_end(run, reference)
    if tries > 3 and len(dates) < 2:
        raise Different("the clock did not jump")
    found = f"{jumped} jumps, runs begun from {min(dates)[:4]} to {max(dates)[:4]}, same end"
    return Row("clock jumps", "libfaketime, by hours and years, and SIGKILL", tries, found)


def jumps_in_python(tries: int, seed: int, folder: Path, starter: Starter) -> Row:
    """The same without a library: Python's own clock is off by another amount each time that it is read."""
    tally = torment(WORK, tries, seed, folder, starter, jumping_clock=[0, 1e4, -1e4, 3e8, -3e8])
    return Row("clock off", "time.time patched, and SIGKILL", tries, f"{tally.runs} runs, same end")


def limit(tries: int, seed: int, folder: Path, starter: Starter) -> Row:
    """`--minutes` is time spent, whatever the clock on the wall says meanwhile."""
    chance, file, wanted = moments(seed, "limit"), folder / "clock", 2.4
    for number in range(tries):
        run = folder / f"run-{number}"
        file.write_text("+0")
        words = Work("gan", 10**9, 50).words(run, "--minutes", wanted / 60)
        process = starter.start(words, fork=False, env=lying(file))
        process.await_phase("learning")
        began = time.perf_counter()
        while process.poll() is None:
            file.write_text(chance.choice(JUMPS))
            time.sleep(0.05)
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        seconds = [line["seconds"] for line in lines]
        if (
            process.wait() != 0
            or seconds != sorted(seconds)
            or not wanted <= seconds[-1] <= time.perf_counter() - began
        ):
            raise Different(f"{seconds[-1]} s of {wanted}: {process.said()}")
    return Row("clock and --minutes", "libfaketime, by hours and years", tries, "ends after the time spent")
