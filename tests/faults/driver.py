"""Starts `engram …` processes, kills them, and compares what they leave with what an undisturbed one leaves."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engram.core.errors import EngramError
from engram.core.files import load_hashed_json
from engram.training.run_folder import RunFolder
from tests import processes
from tests.faults.child import PHASES

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Work:
    """A run as a command line gives it: long enough for many moments, with a checkpoint at every few steps."""

    name: str
    steps: int
    eval_every: int

    def words(self, folder: Path, *more: object) -> list[str]:
        told = ["--preset", "tiny", "--steps", self.steps, "--eval-every", self.eval_every, "--out", folder, *more]
        return ["run", self.name, *map(str, told)]


class Different(Exception):
    """The law is broken."""


class Absent(Exception):
    """This machine cannot provoke the fault."""


@dataclass(frozen=True)
class Row:
    """One line of the table of faults: the law held each time, or there would be no line."""

    fault: str
    provoked: str
    tries: int
    found: str


@dataclass
class Process:
    """A process under observation."""

    pid: int
    log: Path
    marks: Path
    poll: Callable[[], int | None]

    def mark(self) -> tuple[str, int]:
        """What it is doing, and how many phases it has begun."""
        content = self.marks.read_bytes()
        return PHASES[content[0]], int.from_bytes(content[1:5], "little")

    def signal(self, number: int) -> None:
        """A process that has ended is kept by its parent until it is polled: its number is not given to another."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def await_phase(self, phase: str, times: int = 1, limit: float = 120) -> bool:
        """Until it has begun `phase` so many times; False if it ended before."""
        seen, last = 0, -1
        until = time.perf_counter() + limit
        while self.poll() is None and time.perf_counter() < until:
            now, count = self.mark()
            if now == phase and count != last:
                seen, last = seen + 1, count
                if seen == times:
                    return True
            time.sleep(2e-4)
        return False

    def wait(self, limit: float = 300) -> int:
        """Its exit code."""
        until = time.perf_counter() + limit
        while (code := self.poll()) is None:
            if time.perf_counter() > until:
                self.signal(signal.SIGKILL)
                raise Different(f"did not end within {limit} s: {self.said()}")
            time.sleep(2e-3)
        return int(code)

    def said(self) -> str:
        return self.log.read_text()


class Starter:
    """Starts processes, by a fork of one that has everything imported or from nothing."""

    def __init__(self, folder: Path, quick: bool = False) -> None:
        self.folder, self.quick, self.count = folder, quick, 0
        self.references: dict[str, Reference] = {}
        self.children = contextlib.ExitStack()
        self.env = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "500", "TOKENIZERS_PARALLELIZM": "false"}
        self.env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        self.child = [sys.executable, "-m", "tests.faults.child"]
        self.parent = self.children.enter_context(
            processes.Process(
                self.child, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.env, cwd=ROOT
            )
        )
        if self._heard() != "ready\n":
            raise Different("the process that forks did not come up")

    def _heard(self) -> str:
        assert self.parent.stdout
        return self.parent.stdout.readline()

    def _ask(self, order: Any) -> Any:
        assert self.parent.stdin
        print(json.dumps(order), file=self.parent.stdin, flush=True)
        return json.loads(self._heard())

    def start(self, words: list[Any], fork: bool = True, env: dict[str, str] | None = None, **faults: Any) -> Process:
        """`engram WORDS` with faults; what it says goes to a file."""
        self.count += 1
        log, marks = self.folder / f"{self.count}.log", self.folder / f"{self.count}.marks"
        log.write_bytes(b"")
        marks.write_bytes(bytes(5))
        order = {"words": [*map(str, words)], "log": str(log), "marks": str(marks), "faults": faults}
        if fork:
            pid = self._ask(order)
            return Process(pid, log, marks, self._poller(pid))
        alone = processes.Process([*self.child, json.dumps(order)], env={**self.env, **(env or {})}, cwd=ROOT)
        self.children.enter_context(alone)
        return Process(alone.pid, log, marks, alone.poll)

    def _poller(self, pid: int) -> Callable[[], int | None]:
        codes: list[int] = []

        def poll() -> int | None:
            if not codes and (code := self._ask({"poll": pid})) is not None:
                codes.append(code)
            return codes[0] if codes else None

        return poll

    def command(self, words: list[str]) -> Process:
        """The command itself, with nothing of ours in it and so without marks."""
        self.count += 1
        log, marks = self.folder / f"{self.count}.log", self.folder / f"{self.count}.marks"
        marks.write_bytes(bytes(5))
        with log.open("wb") as out:
            alone = processes.Process([sys.executable, "-m", "engram", *words], env=self.env, stdout=out, stderr=out)
        self.children.enter_context(alone)
        return Process(alone.pid, log, marks, alone.poll)

    def reference(self, work: Work, **faults: Any) -> "Reference":
        """The undisturbed run of that work, made once."""
        key = f"{work.name}-{work.steps}-{work.eval_every}-{'-'.join(faults)}"
        if key not in self.references:
            self.references[key] = Reference.make(work, self.folder / key, self, **faults)
        return self.references[key]

    def close(self) -> None:
        self.children.close()


@contextlib.contextmanager
def starter(folder: Path, quick: bool = False) -> Iterator[Starter]:
    """`quick`: even the undisturbed runs are forks."""
    (folder / "processes").mkdir(parents=True)
    made = Starter(folder / "processes", quick)
    try:
        yield made
    finally:
        made.close()


# ---------------------------------------------------------------------- what a folder holds


@dataclass(frozen=True)
class Reference:
    """The same work done without disturbance, by the plain command; every checkpoint of it is kept."""

    work: Work
    folder: Path
    files: frozenset[str]
    lasts: dict[str, float]
    """seconds of each phase in all"""
    usual: dict[str, float]
    """seconds of each phase each time"""

    @classmethod
    def make(cls, work: Work, folder: Path, starter: Starter, **faults: Any) -> "Reference":
        """Once by the plain command, if there is time, and once by a fork, which is timed: their ends must be equal."""
        words = work.words(folder / "kept", "--keep-checkpoints", 10**6)
        kept = starter.start(words) if starter.quick else starter.command(words)
        if kept.wait() != 0:
            raise Different(f"the undisturbed run of {work.name} failed: {kept.said()}")
        process = starter.start(work.words(folder / "straight"), **faults)
        lasts, times = timed(process)
        if process.wait() != 0:
            raise Different(process.said())
        usual = {phase: lasts[phase] / times[phase] for phase in times}
        made = cls(work, folder / "kept", frozenset(files(folder / "straight")), lasts, usual)
        check_end(folder / "straight", made)
        return made

    def checkpoint(self, step: int) -> dict[str, Any]:
        return checkpoint(self.folder / "state" / f"{step:09d}")


def timed(process: Process) -> tuple[Counter[str], Counter[str]]:
    """Seconds of each phase of a process, and how often it came."""
    lasts, times, last, then = Counter[str](), Counter[str](), ("", -1), time.perf_counter()
    while process.poll() is None:
        mark, now = process.mark(), time.perf_counter()
        lasts[mark[0]] += now - then
        times[mark[0]] += mark != last
        last, then = mark, now
        time.sleep(2e-4)
    return lasts, times


def finish(work: Work, run: Path, reference: Reference, starter: Starter, exactly: bool = True) -> None:
    """Bring a run to its end, and compare it; on a slow machine it may have ended before the fault came."""
    process = starter.start(work.words(run, "--resume"))
    if process.wait() != 0 and "is finished" not in process.said():
        raise Different(f"it does not go on: {process.said()}")
    check_end(run, reference, exactly)


def refusal(process: Process, *sentences: str) -> str:
    """The one sentence of a process that must refuse: exit code 2, no traceback."""
    code, lines = process.wait(), process.said().splitlines()
    complaints = [line for line in lines if line.startswith("engram: ")]
    if code != 2 or len(complaints) != 1 or lines[-1:] != complaints or "Traceback" in process.said():
        raise Different(f"exit code {code}, and it said: {process.said()}")
    if sentences and not any(sentence in complaints[0] for sentence in sentences):
        raise Different(f"it said: {complaints[0]}")
    return complaints[0]


def files(folder: Path) -> list[str]:
    """Every file of a run folder by its path."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def checkpoint(place: Path) -> dict[str, Any]:
    """Weights and state of a checkpoint, but for the time taken and the bytes that its digits take in the metrics."""
    about = load_hashed_json(place / "checkpoint.json")
    state = [pair for pair in about["state"]["map"] if pair[0] != "seconds"]
    tensors = {name: (place / name).read_bytes() for name in ("model.safetensors", "learner.safetensors")}
    return {"step": about["step"], "state": state, **tensors}


def metrics(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    seconds = [line.pop("seconds") for line in lines]
    if seconds != sorted(seconds):
        raise Different(f"{folder}: time runs backwards in the metrics")
    return lines


def check_midway(folder: Path, reference: Reference) -> int | None:
    """After a kill: the folder holds no run yet, or opens, and its newest checkpoint is that of the undisturbed run."""
    if not (folder / "recipe.json").exists():
        return None
    try:
        opened = RunFolder.open(folder)
        opened.metrics()
        opened.weights()
        step = int(opened.load()[2]["step"])
    except EngramError as error:
        raise Different(f"the folder does not open: {error}") from None
    if step % reference.work.eval_every == 0 and step < reference.work.steps:
        compare(f"checkpoint {step}", checkpoint(folder / "state" / f"{step:09d}"), reference.checkpoint(step))
    return step


def check_end(folder: Path, reference: Reference, exactly: bool = True) -> None:
    """A run that is over is the undisturbed one: weights, state, metrics, samples, and no other file.

    One that was asked to stop has saved at other steps than the undisturbed: it may keep another checkpoint before the
    last, and is not compared `exactly`.
    """
    steps = reference.work.steps
    if exactly:
        compare("files", set(files(folder)), set(reference.files))
    if left := [name for name in files(folder) if "partial" in name]:
        raise Different(f"left over: {left}")
    compare("last checkpoint", checkpoint(folder / "state" / f"{steps:09d}"), reference.checkpoint(steps))
    compare("metrics", metrics(folder), metrics(reference.folder))
    for name in files(folder):
        if name in reference.files and name.startswith(("samples/", "model.", "config.")):
            compare(name, (folder / name).read_bytes(), (reference.folder / name).read_bytes())


def compare(what: str, found: Any, wanted: Any) -> None:
    if found == wanted:
        return
    if isinstance(found, set):
        raise Different(f"{what}: too many {sorted(found - wanted)}, missing {sorted(wanted - found)}")
    if isinstance(found, dict):
        raise Different(f"{what}: {', '.join(name for name in wanted if found.get(name) != wanted[name])} differ")
    raise Different(f"{what} differ")


def moments(seed: int, *names: object) -> random.Random:
    """Random moments that come again with the same seed."""
    return random.Random(f"{seed} {names}")
