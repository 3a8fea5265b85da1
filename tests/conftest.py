"""What tests share: a run folder made once, and the command line called as a person calls it."""

import json
import os
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from engram import cli
from engram.core.registry import catalogue
from engram.training.loop import train
from engram.training.progress import Progress
from engram.training.run import Run
from tests import processes

RECIPES = sorted(catalogue())


def pytest_configure(config: pytest.Config) -> None:
    """Mark every process of this run of the suite."""
    if not hasattr(config, "workerinput"):
        os.environ[processes.SUITE] = uuid.uuid4().hex


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Last of all, no process of the suite is left."""
    if hasattr(session.config, "workerinput"):
        return
    suite, deadline = os.environ[processes.SUITE], time.monotonic() + 10
    while (left := list(processes.marked(processes.SUITE, suite))) and time.monotonic() < deadline:
        time.sleep(0.1)
    if left:
        commands = [(processes.PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode() for pid in left]
        print("\nProcesses that the suite has left behind:", *commands, sep="\n  ")
        processes.kill_marked(processes.SUITE, suite)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


@pytest.fixture
def engram(capfd, monkeypatch):
    """`engram …` inside this process: quick, and with everything that it prints."""

    def call(*words: object) -> Answer:
        monkeypatch.setenv("COLUMNS", "100" if "--help" in words else "500")  # wide help comes in two columns
        capfd.readouterr()
        try:
            code = cli.answer([str(word) for word in words])
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = capfd.readouterr()
        return Answer(code, out, err)

    return call


@pytest.fixture
def refused(engram):
    """A command line that must be refused: one sentence, exit code 2, no traceback. Gives the sentence."""

    def call(*words: object) -> str:
        answer = engram(*words)
        complaints = [line for line in answer.err.splitlines() if line.startswith("engram: ")]
        assert answer.code == 2, answer
        assert "Traceback" not in answer.err
        assert answer.err.splitlines()[-1:] == complaints, answer.err
        assert complaints[0][-1] in ".?", complaints
        return complaints[0]

    return call


def tiny(name: str, folder: Path, **changes: object) -> Run:
    """A tiny run, to its end."""
    run = Run.start(catalogue()[name].from_preset("tiny", **changes), folder)
    train(run, Progress(quiet=True))
    run.folder.release()
    return run


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A finished tiny run of each recipe, made when it is first asked for; tests must not change its folder."""
    made: dict[str, Path] = {}

    def path(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("finished") / name
            tiny(name, made[name])
        return made[name]

    return path


class Halfway(Exception):
    pass


class StopAt(Progress):
    """Pulls the plug after a step."""

    def __init__(self, step):
        super().__init__(quiet=True)
        self.stop = step

    def moved(self, always=False):
        if self.run.step == self.stop:
            raise Halfway


def content(folder: Path) -> dict[str, object]:
    """What must be equal between two runs that are the same: weights, state and metrics, but not the time taken."""
    newest = sorted((folder / "state").iterdir())[-1]
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in metrics:
        del line["seconds"]
    return {
        "weights": (newest / "model.safetensors").read_bytes(),
        "published": (folder / "model.safetensors").read_bytes(),
        "learner": (newest / "learner.safetensors").read_bytes(),
        "metrics": metrics,
    }


def python(code: str, *words: object, **options: object) -> subprocess.CompletedProcess[str]:
    """A Python process of its own, for what must not happen in this one."""
    return processes.run([sys.executable, "-c", code, *words], **options)


@pytest.fixture(autouse=True)
def one_thread():
    """Two workers share two cores."""
    torch.set_num_threads(1)
