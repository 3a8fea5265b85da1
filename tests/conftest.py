"""What tests share: a run folder made once, and the command line called as a person calls it."""

import functools
import json
import os
import random
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from filelock import FileLock

from engram import cli
from engram.core.registry import registry
from engram.training.run import Run
from engram.training.train import Callback, train
from tests import processes

RECIPES = sorted(registry())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--random-order", type=int, metavar="SEED", help="shuffle the files, and the tests of each file")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffle if that is asked for. The tests of a file stay together, for they share fixtures."""
    if (seed := config.getoption("--random-order")) is not None:
        files: dict[Path, list[pytest.Item]] = {}
        for item in items:
            files.setdefault(item.path, []).append(item)
        order = random.Random(seed)
        shuffled = order.sample(list(files.values()), len(files))
        items[:] = [item for file in shuffled for item in order.sample(file, len(file))]


def pytest_configure(config: pytest.Config) -> None:
    """Mark every process of this run of the suite; train on one thread from the first fixture on."""
    torch.set_num_threads(1)
    if not hasattr(config, "workerinput"):
        os.environ[processes.SUITE] = uuid.uuid4().hex


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Last of all, no process of the suite is left."""
    if hasattr(session.config, "workerinput"):
        return
    if cached := sorted(Path(os.environ.get("ENGRAM_DATA", "nowhere")).glob("*.safetensors")):
        size = sum(path.stat().st_size for path in cached) / 1e6
        print(f"\n{len(cached)} cache entries, {size:.0f} MB:", *(path.stem for path in cached))
    suite, deadline = os.environ[processes.SUITE], time.monotonic() + 10
    while (left := list(processes.marked(processes.SUITE, suite))) and time.monotonic() < deadline:
        time.sleep(0.1)
    if left:
        print("\nProcesses that the suite has left behind:", *map(processes.command_of, left), sep="\n  ")
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
            code = cli.dispatch([str(word) for word in words])
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
    run = Run.start(registry()[name].from_preset("tiny", **changes), folder)
    train(run)
    run.folder.release()
    return run


def resume(folder: Path) -> None:
    """Resume a run to its end, without the report that `engram run --resume` writes."""
    run = Run.resume(folder)
    train(run)
    run.folder.release()


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """A function that makes a folder once for all workers of the suite and gives each its own copy of it."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def copy(kind: str, name: str, make: Callable[[Path], object], target: Path) -> Path:
        source = shared / "once" / kind / name
        source.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{source}.lock", timeout=200):
            if not source.exists():
                make(source.with_suffix(".partial"))
                source.with_suffix(".partial").rename(source)
        return Path(shutil.copytree(source, target))

    return copy


@pytest.fixture(scope="session")
def finished(once, tmp_path_factory):
    """A finished tiny run of each recipe, made when it is first asked for; tests must not change its folder."""

    @functools.cache
    def path(name: str) -> Path:
        target = tmp_path_factory.mktemp("finished") / name
        return once("finished", name, lambda folder: tiny(name, folder), target)

    return path


@pytest.fixture
def halfway(once, tmp_path):
    """A folder with a tiny run that has reached its first checkpoint, and not its end."""

    def stop_halfway(name: str, folder: Path) -> None:
        recipe = registry()[name].from_preset("tiny")
        run = Run.start(recipe, folder)
        with pytest.raises(Halfway):
            train(run, [StopAt(recipe.eval_every)])
        run.folder.release()

    return lambda name: once("halfway", name, lambda folder: stop_halfway(name, folder), tmp_path / "halfway")


@pytest.fixture(scope="session")
def forked(tmp_path_factory):
    """Runs code in a process of its own, a fork of one that has everything imported: `forked(code, *words)`."""
    with processes.Forks(tmp_path_factory.mktemp("forked")) as parent:
        yield parent.run


class Halfway(Exception):
    pass


class StopAt(Callback):
    """Pulls the plug after a step."""

    def __init__(self, step):
        self.stop = step

    def on_step(self, run):
        if run.step == self.stop:
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
