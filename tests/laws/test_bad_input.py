"""Whatever goes wrong, one sentence says so, exit code 2, and what was good before still is."""

import errno
import os
import shutil

import numpy as np
import pytest

from engram.core.errors import EngramError
from engram.core.registry import registry
from engram.training import run_folder as folders
from engram.training.run import Run
from engram.training.train import train
from tests.conftest import RECIPES, content, resume

FILES = ["model.safetensors", "learner.safetensors", "checkpoint.json"]


@pytest.mark.parametrize("name", RECIPES)
def test_a_damaged_checkpoint_is_refused_and_the_one_before_still_works(name, halfway, finished, refused):
    folder = halfway(name)
    newest = sorted((folder / "state").iterdir())[-1]
    for file in FILES:
        good = (newest / file).read_bytes()
        flipped = bytearray(good)
        flipped[len(good) // 2] ^= 4
        for bad in (good[: len(good) // 2], bytes(flipped), b""):
            (newest / file).unlink()
            (newest / file).write_bytes(bad)
            sentence = refused("run", "--resume", folder)
            assert f"{newest / file} is damaged" in sentence
            assert f"delete {newest} to go on from step 0" in sentence
        (newest / file).unlink()
        assert f"{newest / file} is missing" in refused("run", "--resume", folder)
        (newest / file).write_bytes(good)
    shutil.rmtree(newest)
    resume(folder)
    assert content(folder) == content(finished(name))


@pytest.mark.parametrize("name", RECIPES)
def test_a_missing_or_damaged_file_of_the_folder_is_named(name, halfway, refused):
    folder = halfway(name)
    recipe = (folder / "recipe.json").read_text()
    (folder / "recipe.json").write_text(recipe[:100])
    assert "recipe.json is damaged" in refused("run", "--resume", folder)
    (folder / "recipe.json").write_text(recipe.replace('"steps"', '"stepz"'))
    assert 'Did you mean "steps"?' in refused("run", "--resume", folder)
    (folder / "recipe.json").write_text(recipe.replace(f'"recipe": "{name}"', '"recipe": "nothing"'))
    assert 'There is no recipe "nothing"' in refused("run", "--resume", folder)
    (folder / "recipe.json").unlink()
    assert "has no recipe.json" in refused("run", "--resume", folder)
    (folder / "recipe.json").write_text(recipe)
    metrics = (folder / "metrics.jsonl").read_bytes()
    (folder / "metrics.jsonl").write_bytes(metrics[:10])
    assert "metrics.jsonl is damaged" in refused("run", "--resume", folder)


FULL = """
import resource, sys, signal, torch
torch.set_num_threads(1)
from engram import cli
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
sys.exit(cli.dispatch(["run", "--resume", sys.argv[1]]))
"""


@pytest.mark.parametrize("name", RECIPES)
def test_a_file_that_cannot_grow_loses_nothing(name, halfway, finished, forked):
    folder = halfway(name)
    before = content(folder)
    limit = (folder / "metrics.jsonl").stat().st_size  # no file may grow beyond this: the next line does not fit
    stopped = forked(FULL, folder, limit)
    assert stopped.returncode == 2, stopped.stderr
    assert "cannot be written: file too large" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert content(folder) == before
    resume(folder)
    assert content(folder) == content(finished(name))


@pytest.mark.parametrize("failing", FILES)
def test_a_full_disk_while_saving_keeps_the_checkpoint_before(failing, halfway, finished, engram, monkeypatch):
    folder = halfway("mlp")
    before = content(folder)
    write = folders.write

    def full(path, content):
        if path.name == failing:
            raise folders.EngramError(f"{path} cannot be written: no space left on device.")
        write(path, content)

    monkeypatch.setattr(folders, "write", full)
    answer = engram("run", "--resume", folder)
    assert answer.code == 2
    assert "no space left on device" in answer.err
    monkeypatch.undo()
    assert not list(folder.glob("state/*.partial"))
    after = content(folder)
    assert after["weights"] == before["weights"]
    assert engram("run", "--resume", folder).code == 0
    assert content(folder) == content(finished("mlp"))


def test_a_place_that_cannot_be_written_is_named(tmp_path, refused):
    assert "cannot be written" in refused("run", "mlp", "--preset", "tiny", "--out", "/proc/engram/run")
    (tmp_path / "file").write_text("in the way")
    assert "cannot be written" in refused("run", "mlp", "--preset", "tiny", "--out", tmp_path / "file" / "run")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.EIO])
def test_what_the_system_refuses_becomes_a_sentence(code, halfway, finished, engram, monkeypatch):
    """The system says no when the first checkpoint of the resumed run is flushed to disk."""
    folder = halfway("rbm")
    before = content(folder)["weights"]

    def no(file):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(folders, "flush", no)
    answer = engram("run", "--resume", folder)
    assert answer.code == 2
    assert f"cannot be written: {os.strerror(code).lower()}" in answer.err.splitlines()[-1]
    monkeypatch.undo()
    assert content(folder)["weights"] == before
    assert engram("run", "--resume", folder).code == 0
    assert content(folder) == content(finished("rbm"))


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize(
    ("file", "array"),
    [
        ("empty.npy", np.zeros((0, 3))),
        ("nan.npy", np.full((20, 3), np.nan)),
        ("infinite.npy", np.full((20, 4, 4), np.inf)),
        ("shape.npy", np.zeros((3, 3, 3, 3, 3))),
        ("objects.npy", np.array([{"a": 1}], dtype=object)),
    ],
)
def test_bad_data_is_named_and_nothing_is_left_behind(name, file, array, refused, tmp_path):
    np.save(tmp_path / file, array)
    assert file in refused("run", name, "--preset", "tiny", "--data", tmp_path / file, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", RECIPES)
def test_unknown_words_bring_the_nearest_known_one(name, refused, tmp_path):
    assert 'Did you mean "--steps"?' in refused("run", name, "--stepz", 5)
    assert 'Did you mean "tiny"?' in refused("run", name, "--preset", "tinny")
    assert "must be at least 1" in refused("run", name, "--preset", "tiny", "--steps", 0, "--out", tmp_path / "run")
    assert "--steps" in refused("run", name, "--preset", "tiny", "--steps", "many")
    assert "nothing-like-it" in refused("run", name, "--preset", "tiny", "--data", "nothing-like-it")
    assert not (tmp_path / "run").exists()


def test_unknown_verb_recipe_benchmark_and_data(refused, tmp_path):
    assert 'Did you mean "run"?' in refused("rum")
    assert 'Did you mean "cnn"?' in refused("run", "cnm")
    assert 'There is no benchmark "nothing"' in refused("bench", "nothing")
    assert 'Did you mean "mnist"?' in refused("data", "get", "mnits")
    assert "is not a run folder" in refused("report", tmp_path)
    assert "There is no folder" in refused("inspect", tmp_path / "nowhere")


def test_a_run_is_never_overwritten(finished, refused):
    before = content(finished("mlp"))
    assert "already holds a run" in refused("run", "mlp", "--preset", "tiny", "--out", finished("mlp"))
    assert content(finished("mlp")) == before


@pytest.mark.parametrize("name", ["mlp", "rbm"])
def test_not_a_number_stops_the_run_and_keeps_the_last_good_checkpoint(name, tmp_path, refused):
    # lr of 1e38 overflows float32 within a few steps
    sentence = refused(
        "run", name, "--preset", "tiny", "--lr", 1e38, "--steps", 40, "--eval-every", 20, "--out", tmp_path / "run"
    )
    assert "at step" in sentence
    assert "try a lower --lr" in sentence
    assert ("--warmup" in sentence) == (name == "mlp")
    kept = Run.open(tmp_path / "run")
    assert all(value.isfinite().all() for value in kept.learner.model.state_dict().values())


def test_minutes_end_a_run(tmp_path):
    recipe = registry()["mlp"].from_preset("tiny", steps=10**9, minutes=0.02)
    run = Run.start(recipe, tmp_path / "run")
    train(run)
    run.folder.release()
    assert 1.2 <= run.seconds < 30
    assert run.finished
    assert any("test_accuracy" in line for line in run.folder.metrics())


def test_a_signal_does_not_save_what_is_not_a_number(tmp_path):
    """A window that holds NaN is noticed before it is saved, not only when it is written as a line."""
    recipe = registry()["mlp"].from_preset("tiny", lr=1e38, steps=4000, eval_every=2000)
    run = Run.start(recipe, tmp_path / "run")
    for _ in range(20):
        run.train_step()
    with pytest.raises(EngramError, match="the checkpoint of step 0 .* is intact"):
        run.save()
    run.folder.release()
    assert run.folder.checkpoints() == [0]
