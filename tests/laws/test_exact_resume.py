"""A run that is killed at any moment goes on as if it had not been."""

import gc
import itertools
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from engram.core.registry import registry
from engram.training import run_folder as folders
from engram.training.run import Run
from engram.training.train import train
from tests.conftest import RECIPES, Halfway, StopAt, content, python, resume, tiny

KILLED = """
import os, signal, sys
from engram.training.run import Run
from engram import cli
import torch; torch.set_num_threads(1)
name, folder, at = sys.argv[1], sys.argv[2], int(sys.argv[3])
train_step = Run.train_step
def deadly(run):
    train_step(run)
    if run.step == at:
        os.kill(os.getpid(), signal.SIGKILL)
Run.train_step = deadly
cli.dispatch(["run", name, "--preset", "tiny", "--out", folder, "--quiet"])
"""

SIGNALLED = (
    KILLED.replace("signal.SIGKILL", "int(sys.argv[4])").replace("cli.dispatch(", "sys.exit(cli.dispatch(")[:-1] + ")"
)


RESUMED = """
import sys, torch
from engram import cli
torch.set_num_threads(1)
sys.exit(cli.dispatch(["run", "--resume", sys.argv[1], "--quiet"]))
"""
SEASONING = ("spiking-classifier", "mingru", "vae")
"""recipes whose kernels and products run on several threads where there are several"""


@pytest.fixture(scope="module")
def seasoned(tmp_path_factory):
    """This process has done other work before."""
    for name in SEASONING:
        tiny(name, tmp_path_factory.mktemp("seasoning") / name)


@pytest.mark.parametrize("name", RECIPES)
def test_killed_and_resumed_equals_undisturbed(name, finished, forked, tmp_path, seasoned):
    """Whether it resumes in a new process, or in one that has run other recipes."""
    steps = registry()[name].from_preset("tiny").steps
    killed = tmp_path / "killed"
    assert forked(KILLED, name, killed, steps // 2 + 3).returncode == -signal.SIGKILL
    assert Run.open(killed).step == steps // 2
    shutil.copytree(killed, tmp_path / "here")
    resume(tmp_path / "here")
    assert content(tmp_path / "here") == content(finished(name))
    assert forked(RESUMED, killed).returncode == 0
    assert content(killed) == content(finished(name))


def test_resuming_with_another_number_of_threads_is_announced(engram, tmp_path):
    tiny("mlp", tmp_path / "run", steps=10)
    torch.set_num_threads(2)
    try:
        answer = engram("run", "--resume", tmp_path / "run", "--steps", 20)
    finally:
        torch.set_num_threads(1)
    assert answer.code == 0
    assert "was started with 1 thread and resumes with 2" in answer.err
    assert "set OMP_NUM_THREADS=1" in answer.err
    assert "resumes with" not in engram("run", "--resume", tmp_path / "run", "--steps", 30).err


@pytest.mark.parametrize("name", RECIPES)
def test_a_checkpoint_amid_a_window_continues_it(name, tmp_path):
    """Evaluations and lines of metrics that do not fall together: a checkpoint holds half a window of measurements."""
    changes = {"eval_every": 27, "steps": 54}
    tiny(name, tmp_path / "straight", **changes)
    started = Run.start(registry()[name].from_preset("tiny", **changes), tmp_path / "halved")
    with pytest.raises(Halfway):
        train(started, [StopAt(33)])
    started.folder.release()
    resume(tmp_path / "halved")
    assert content(tmp_path / "halved") == content(tmp_path / "straight")


class Killed(BaseException):
    """The power fails."""


@pytest.mark.parametrize("patience", [0, 1])
def test_a_kill_at_any_write_is_survived(patience, tmp_path, monkeypatch):
    """Die at the first write, at the second and so on: each time the run can be brought to the same end."""
    recipe = registry()["mlp"].from_preset(
        "tiny", steps=20, eval_every=10, patience=patience, lr=0.5, schedule="constant"
    )
    straight = Run.start(recipe, tmp_path / "straight")
    train(straight)
    straight.folder.release()
    for fatal in itertools.count(1):
        if not dies(recipe, tmp_path / "run", fatal, monkeypatch):
            break
        again = Run.resume(tmp_path / "run") if (tmp_path / "run" / "recipe.json").exists() else None
        again = again or Run.start(recipe, tmp_path / "run")
        if not again.finished:
            train(again)
        again.folder.release()
        assert content(tmp_path / "run") == content(tmp_path / "straight"), f"died at write {fatal}"
        shutil.rmtree(tmp_path / "run")
    assert fatal > 15


def dies(recipe, folder, fatal, monkeypatch):
    """Run until the `fatal`-th change of the disk, which does not happen any more; False if there are not as many."""
    left = [fatal]

    def mortal(function):
        def call(*args, **options):
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            return function(*args, **options)

        return call

    gc.freeze()  # what was there before need not be looked at again each time
    with monkeypatch.context() as patch:
        patch.setattr(folders, "write", mortal(folders.write))
        patch.setattr(folders.os, "link", mortal(os.link))
        patch.setattr(folders.Path, "rename", mortal(Path.rename))
        patch.setattr(folders.Path, "replace", mortal(Path.replace))
        run = None
        try:
            run = Run.start(recipe, folder)
            train(run)
        except Killed:
            return True
        finally:
            gc.collect()  # lets go of the lock, as the system does for a process that is killed
            gc.unfreeze()
            if run:
                run.folder.release()
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_where_it_stands_and_says_how_to_go_on(number, finished, forked, engram, tmp_path):
    folder = tmp_path / "run"
    stopped = forked(SIGNALLED, "mlp", folder, 13, int(number))
    assert stopped.returncode == 130, stopped.stderr
    assert f"engram run --resume {folder}" in stopped.stdout
    assert Run.open(folder).step == 13
    assert engram("run", "--resume", folder).code == 0
    assert content(folder) == content(finished("mlp"))


def test_resume_needs_nothing_but_the_folder(finished, engram, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert engram("run", "mlp", "--preset", "tiny", "--steps", 10, "--out", "run", "--hidden", 7, 5).code == 0
    assert engram("run", "--resume", "run", "--steps", 20).code == 0
    again = Run.open(tmp_path / "run")
    assert again.step == 20
    assert again.recipe.model.hidden == (7, 5)


def test_a_folder_in_use_is_refused(refused, tmp_path):
    run = Run.start(registry()["mlp"].from_preset("tiny"), tmp_path / "run")
    try:
        code = "import sys\nfrom engram import cli\nsys.exit(cli.dispatch(['run', '--resume', sys.argv[1]]))"
        second = python(code, tmp_path / "run")
        assert second.returncode == 2
        assert "in use by another process" in second.stderr
    finally:
        run.folder.release()


def test_a_finished_run_says_so(finished, engram, refused):
    engram("report", finished("mlp"))
    assert "is finished" in refused("run", "--resume", finished("mlp"))


def test_resume_flag_begins_or_goes_on_with_the_same_recipe(engram, refused, tmp_path):
    words = ("run", "mlp", "--preset", "tiny", "--out", tmp_path / "run", "--resume")
    assert engram(*words).code == 0
    assert "is finished" in refused(*words)
    assert engram(*words, "--steps", 30).code == 0
    assert Run.open(tmp_path / "run").step == 30
    assert "other settings of --lr" in refused(*words, "--steps", 40, "--lr", 7)
    assert "holds a run of mlp, not of rbm" in refused("run", "rbm", *words[2:])
    assert "needs --out" in refused("run", "mlp", "--resume")


def test_fewer_steps_than_taken_are_refused(finished, refused):
    before = (finished("mlp") / "recipe.json").read_text()
    assert "is at step 20 already" in refused("run", "--resume", finished("mlp"), "--steps", 5)
    assert (finished("mlp") / "recipe.json").read_text() == before


def test_own_data_is_found_from_any_folder(engram, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("own.npz", x=np.random.default_rng(0).integers(0, 255, (30, 8, 8)), y=np.arange(30) % 3)
    assert engram("run", "mlp", "--preset", "tiny", "--data", "own.npz", "--out", "run").code == 0
    monkeypatch.chdir("/")
    assert engram("run", "--resume", tmp_path / "run", "--steps", 30).code == 0


def test_a_finished_run_whose_report_is_missing_gets_it(finished, engram, tmp_path):
    shutil.copytree(finished("mlp"), tmp_path / "run")
    (tmp_path / "run" / "report.html").unlink(missing_ok=True)
    assert engram("run", "--resume", tmp_path / "run").code == 0
    assert (tmp_path / "run" / "report.html").exists()
