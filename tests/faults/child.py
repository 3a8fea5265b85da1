"""What runs in the processes that are killed: `engram …`, with marks of what it is doing and the faults asked for.

    python -m tests.faults.child ORDER     a process of its own, which imports everything first
    python -m tests.faults.child           has everything imported, and forks such a process for every line of orders

A forked process has its own number, memory and locks, and begins in a tenth of a second instead of three. Only the
imports are shared: no thread was started before the fork, no random number drawn, no file opened.
"""

import functools
import importlib
import io
import json
import mmap
import os
import resource
import signal
import sys
import time
from typing import Any

PHASES = ("importing", "starting", "learning", "evaluating", "saving", "sampling", "reporting", "writing", "ending")
"""what a process says it is doing: the first byte of its marks; the next four count how often it began to"""


def main() -> None:
    if len(sys.argv) > 1:
        os._exit(obey(json.loads(sys.argv[1])))
    import_everything()
    print("ready", flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        if "poll" in order:
            answer = polled(order["poll"])
        elif answer := os.fork():
            pass
        else:
            os._exit(obey(order))
        print(json.dumps(answer), flush=True)


def import_everything() -> None:
    import plotly.graph_objects  # noqa: F401
    import torch._dynamo  # noqa: F401
    import tyro  # noqa: F401

    import engram.api
    import engram.plots.report  # noqa: F401
    from engram.core.registry import registry

    registry()


def polled(pid: int) -> int | None:
    """The exit code of a child that has ended, negative if a signal ended it."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def obey(order: dict[str, Any]) -> int:
    """Become `engram WORDS`: its output into a file, its marks into another, its faults in force."""
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor, target in ((os.open(os.devnull, os.O_RDONLY), 0), (log, 1), (log, 2)):
        os.dup2(descriptor, target)
    sys.stdout, sys.stderr = (io.TextIOWrapper(io.FileIO(target, "w"), write_through=True) for target in (1, 2))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    mark = marks(order["marks"])
    import_everything()
    watch(mark)
    for name, value in order["faults"].items():
        FAULTS[name](value)
    from engram import cli

    sys.argv = ["engram", *order["words"]]
    try:
        cli.main()
    except SystemExit as end:
        sys.stdout.flush()
        return int(end.code or 0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
    return 1


# ---------------------------------------------------------------------- marks


def marks(path: str) -> Any:
    """A function that writes a phase where the one who kills can read it."""
    with open(path, "r+b") as file:
        memory = mmap.mmap(file.fileno(), 5)

    def mark(phase: str) -> None:
        memory[1:5] = (int.from_bytes(memory[1:5], "little") + 1).to_bytes(4, "little")
        memory[0] = PHASES.index(phase)

    mark.now = lambda: PHASES[memory[0]]  # type: ignore[attr-defined]
    return mark


def watch(mark: Any) -> None:
    """Mark every phase where it begins, and where it ends what comes after it."""
    from engram.plots import report
    from engram.training import run_folder, train
    from engram.training.run import Run

    def marked(owner: Any, name: str, phase: str, afterwards: str = "") -> None:
        function = getattr(owner, name)

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            before = mark.now()
            if before == "saving":  # which is made of many writes
                return function(*args, **options)
            mark(phase)
            made = function(*args, **options)
            mark(afterwards or before)
            return made

        setattr(owner, name, call)

    marked(importlib.import_module("engram.cli.main"), "dispatch", "starting", "ending")
    marked(train, "_loop", "learning", "sampling")
    marked(Run, "evaluate", "evaluating")
    marked(run_folder.RunFolder, "save", "saving")
    marked(run_folder, "write", "writing")
    marked(report, "write_sample", "sampling", "reporting")
    marked(report, "write_report", "reporting", "ending")


# ---------------------------------------------------------------------- faults


def slow_disk(seconds: float) -> None:
    """Every flush to disk takes this long."""
    fsync = os.fsync

    def slow(descriptor: int) -> None:
        time.sleep(seconds)
        fsync(descriptor)

    os.fsync = slow


def small_files(most: int) -> None:
    """No file may grow beyond so many bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


def jumping_clock(jumps: list[float]) -> None:
    """The clock on the wall is off by so many seconds, by others each time that it is read."""
    left, real = list(jumps), time.time

    def wall() -> float:
        left.append(left.pop(0))
        return max(0.0, real() + left[-1])

    localtime, strftime = time.localtime, time.strftime
    time.time = wall
    time.time_ns = lambda: int(wall() * 1e9)
    time.localtime = lambda seconds=None: localtime(wall() if seconds is None else seconds)
    time.strftime = lambda form, moment=None: strftime(form, moment or time.localtime())


def full_output(where: str) -> None:
    """Whatever it says cannot be written."""
    for target in (1, 2):
        os.dup2(os.open(where, os.O_WRONLY), target)


FAULTS = {
    "slow_disk": slow_disk, "small_files": small_files, "jumping_clock": jumping_clock, "full_output": full_output,
}  # fmt: skip

if __name__ == "__main__":
    main()
