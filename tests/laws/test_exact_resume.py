"""A run that is killed at any moment goes on as if it had not been."""

import signal
import time

import pytest

from engram.core.registry import catalogue
from engram.training.run import Run
from tests.conftest import RECIPES, content, python

KILLED = """
import os, signal, sys
from engram.training.run import Run
from engram import cli
import torch; torch.set_num_threads(1)
name, folder, at = sys.argv[1], sys.argv[2], int(sys.argv[3])
advance = Run.advance
def deadly(run):
    advance(run)
    if run.step == at:
        os.kill(os.getpid(), signal.SIGKILL)
Run.advance = deadly
cli.answer(["run", name, "--preset", "tiny", "--out", folder, "--quiet"])
"""

SIGNALLED = (
    KILLED.replace("signal.SIGKILL", "int(sys.argv[4])").replace("cli.answer(", "sys.exit(cli.answer(")[:-1] + ")"
)


@pytest.mark.parametrize("name", RECIPES)
def test_killed_and_resumed_equals_undisturbed(name, finished, engram, tmp_path):
    steps = catalogue()[name].from_preset("tiny").steps
    folder = tmp_path / "run"
    killed = python(KILLED, name, folder, steps // 2 + 3)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert Run.open(folder).step == steps // 2
    assert engram("run", "--resume", folder).code == 0
    assert content(folder) == content(finished(name))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_where_it_stands_and_says_how_to_go_on(number, finished, engram, tmp_path):
    folder = tmp_path / "run"
    stopped = python(SIGNALLED, "mlp", folder, 13, int(number))
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
    run = Run.start(catalogue()["mlp"].from_preset("tiny"), tmp_path / "run")
    try:
        code = "import sys\nfrom engram import cli\nsys.exit(cli.answer(['run', '--resume', sys.argv[1]]))"
        second = python(code, tmp_path / "run")
        assert second.returncode == 2
        assert "in use by another process" in second.stderr
    finally:
        run.folder.release()


def test_a_finished_run_says_so(finished, refused):
    assert "is finished" in refused("run", "--resume", finished("mlp"))


def test_resume_flag_goes_on_or_begins(engram, tmp_path):
    words = ("run", "mlp", "--preset", "tiny", "--out", tmp_path / "run", "--resume")
    assert engram(*words).code == 0
    began = (tmp_path / "run" / "recipe.json").stat().st_mtime
    time.sleep(0.01)
    assert engram(*words).code == 2
    assert (tmp_path / "run" / "recipe.json").stat().st_mtime == began
