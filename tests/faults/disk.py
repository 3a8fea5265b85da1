"""A disk that is full, that cannot be written, that is slow."""

import contextlib
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
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
    refusal,
)
from tests.faults.kills import torment

WORK = Work("cnn", 60, 10)
VERBS = ("sample", "inspect", "report")


@contextlib.contextmanager
def small_disk(place: Path, **options: object) -> Iterator[Path]:
    """A file system of its own in memory, with so many bytes (`size`) or files (`nr_inodes`)."""
    if os.geteuid() != 0:
        raise Absent("only root can mount a small file system")
    place.mkdir(parents=True, exist_ok=True)
    told = ",".join(f"{name}={value}" for name, value in options.items())
    if subprocess.run(["mount", "-t", "tmpfs", "-o", told, "tmpfs", place], capture_output=True).returncode != 0:
        raise Absent("this system lets nobody mount a small file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def remount(place: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", place], check=True)


def full(tries: int, seed: int, folder: Path, starter: Starter) -> Row:
    """The disk has room for a part of the run: the sentence says so, and with more room it goes on."""
    reference, chance = starter.reference(WORK), moments(seed, "full")
    needed = sum((reference.folder / name).stat().st_size for name in reference.files)
    where = Counter[str]()
    for number in range(tries):
        pages = chance.randint(1, needed // 4096 if number % 4 else 80)  # most of a run is its report
        room = {"nr_inodes": chance.randint(4, 15)} if number % 4 == 3 else {"size": 4096 * pages}
        with small_disk(folder / "small", **room) as disk:
            process = starter.start(WORK.words(disk / "run", "--resume"))
            refusal(process, "cannot be written: no space left on device")
            where[process.mark()[0]] += 1
            check_midway(disk / "run", reference)
            remount(disk, "size=64m,nr_inodes=1000")
            finish(WORK, disk / "run", reference, starter)
    return Row("disk full", "a tmpfs with too few bytes or files", tries, spread(where))


def limited(tries: int, seed: int, folder: Path, starter: Starter) -> Row:
    """No file may grow beyond a size, as a quota or a limit of the shell has it."""
    reference, chance = starter.reference(WORK), moments(seed, "limited")
    where = Counter[str]()
    for number in range(tries):
        most = chance.randint(1000, 30_000) if number % 2 else chance.randint(30_000, 4_000_000)
        run = folder / f"run-{number}"
        process = starter.start(WORK.words(run, "--resume"), small_files=most)
        refusal(process, "cannot be written: file too large")
        where[process.mark()[0]] += 1
        check_midway(run, reference)
        finish(WORK, run, reference, starter)
    return Row("file too large", "RLIMIT_FSIZE", tries, spread(where))


def read_only(tries: int, seed: int, folder: Path, starter: Starter) -> Row:
    """A disk that becomes read-only between two processes: every verb that writes says so, the rest is read."""
    reference, chance = starter.reference(WORK), moments(seed, "read only")
    for _ in range(tries):
        with small_disk(folder / "small", size="64m") as disk:
            run = disk / "run"
            process = starter.start(WORK.words(run, "--resume"))
            process.await_phase("saving", chance.randint(2, 5))
            process.signal(9)
            process.wait()
            remount(disk, "ro")
            for words in (WORK.words(run, "--resume"), WORK.words(disk / "new"), *([verb, run] for verb in VERBS)):
                refusal(starter.start(words), "cannot be written: read-only file system")
            check_midway(run, reference)
            remount(disk, "rw")
            finish(WORK, run, reference, starter)
    return Row("read-only", "a tmpfs remounted read-only", tries, "run, resume, sample, look and report refuse")


def frozen(tries: int, seed: int, folder: Path, starter: Starter) -> Row:
    """The folder can no longer be changed while the run goes on."""
    reference, chance = starter.reference(WORK), moments(seed, "frozen")
    for number in range(tries):
        run = folder / f"run-{number}"
        process = starter.start(WORK.words(run, "--resume"))
        process.await_phase("learning", chance.randint(1, 3))
        with immutable(run / "state"):
            refusal(process, "cannot be written: operation not permitted")
            check_midway(run, reference)
        finish(WORK, run, reference, starter)
    return Row("folder frozen", "chattr +i while it runs", tries, "refused at the next checkpoint")


@contextlib.contextmanager
def immutable(place: Path) -> Iterator[None]:
    if subprocess.run(["chattr", "+i", place], capture_output=True).returncode != 0:
        raise Absent("this system lets nobody freeze a folder")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", place], check=True)


def slow(tries: int, seed: int, folder: Path, starter: Starter, seconds: float = 0.5) -> Row:
    """Every flush takes long: most kills fall between two of them."""
    work = Work("rbm", 30, 10)
    tally = torment(work, tries, seed, folder, starter, ("saving", "saving", "writing"), slow_disk=seconds)
    return Row("slow disk", f"each fsync takes {seconds} s, and SIGKILL", tries, spread(tally.phases))


def output(tries: int, seed: int, folder: Path, starter: Starter) -> Row:
    """Nobody can be told: the run itself is not concerned."""
    reference = starter.reference(WORK)
    for number in range(tries):
        run = folder / f"run-{number}"
        process = starter.start(WORK.words(run), full_output="/dev/full")
        if process.wait() != 2 or process.mark()[0] != "ending":
            raise Different(f"exit code {process.wait()} while {process.mark()[0]}")
        check_end(run, reference)
    return Row("output full", "stdout and stderr to /dev/full", tries, "the run ends, exit code 2")


def spread(where: Counter[str]) -> str:
    return ", ".join(f"{phase} {count}" for phase, count in where.most_common())
