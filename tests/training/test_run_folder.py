import math
import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engram.core.errors import EngramError
from engram.core.files import dump_hashed_json, load_hashed_json, pack, serialize, unpack
from engram.training import run_folder as folders
from engram.training.run_folder import RunFolder
from tests.conftest import python

scalars = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(max_size=5)
tensors = st.integers(0, 3).map(lambda n: torch.arange(n, dtype=torch.float32))
states = st.recursive(
    scalars | tensors,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(0, 9), inner, max_size=3)
    ),
    max_leaves=10,
)


def equal(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    return type(a) is type(b) and a == b


@given(states)
@settings(max_examples=200, deadline=None)
def test_any_state_survives(state):
    kept = {}
    assert equal(unpack(pack(state, kept), kept), state)


def test_a_state_with_anything_else_is_refused():
    with pytest.raises(TypeError, match="not set"):
        pack({"a": {1, 2}}, {})


@pytest.fixture
def folder(tmp_path):
    made = RunFolder.create(tmp_path / "run")
    made.finalize({"recipe": "none"})
    yield made
    made.release()


def weights(value):
    return {"w": torch.full((3,), value)}


def test_the_last_two_checkpoints_and_the_chosen_are_kept(folder):
    for step in (0, 1, 2, 3, 4):
        folder.save(step, weights(float(step)), {"step": step}, keep={1}, published=step)
    assert folder.checkpoints() == [1, 3, 4]
    model, state, _ = folder.load()
    assert (model["w"][0], state["step"]) == (4, 4)
    assert folder.load(1)[0]["w"][0] == 1
    with pytest.raises(EngramError, match="no checkpoint of step 2; it has 1, 3, 4"):
        folder.load(2)


def test_published_weights_are_those_of_the_checkpoint(folder):
    folder.save(1, weights(1.0), {}, set(), 1)
    folder.save(2, weights(2.0), {}, set(), 2)
    assert (folder.path / "model.safetensors").read_bytes() == serialize(weights(2.0))
    folder.publish(1)
    assert (folder.path / "model.safetensors").read_bytes() == serialize(weights(1.0))
    assert not list(folder.path.glob("*.partial"))


def test_the_same_step_again_takes_the_new_description(folder):
    folder.save(1, weights(1.0), {"finished": False}, set(), 1)
    folder.append_metrics([{"step": 1}])
    folder.save(1, weights(1.0), {"finished": True}, set(), 1)
    _, state, about = folder.load()
    assert state["finished"]
    assert about["metrics_bytes"] == (folder.path / "metrics.jsonl").stat().st_size


def test_metrics_past_the_checkpoint_are_cut(folder):
    folder.append_metrics([{"step": 1, "loss": math.pi}])
    folder.save(1, weights(1.0), {}, set(), 1)
    folder.append_metrics([{"step": 2}, {"step": 3}])
    folder.cut_metrics(folder.load()[2]["metrics_bytes"])
    assert folder.metrics() == [{"step": 1, "loss": math.pi}]


@pytest.mark.parametrize("size", [None, -1, 10**6, "7", True, 1.0])
def test_a_length_of_the_metrics_that_cannot_be_is_refused_and_nothing_is_cut(folder, size):
    folder.append_metrics([{"step": 1}])
    with pytest.raises(EngramError, match="the checkpoint knows of"):
        folder.cut_metrics(size)
    assert folder.metrics() == [{"step": 1}]


def test_a_line_that_is_still_being_written_is_left_out(folder):
    folder.append_metrics([{"step": 1}])
    with (folder.path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 2, "lo')
    assert folder.metrics() == [{"step": 1}]


def test_another_format_is_refused(folder):
    folder.write_json("recipe.json", {"format": 99})
    with pytest.raises(EngramError, match="format 99"):
        RunFolder.open(folder.path)


def test_a_partial_checkpoint_is_not_seen(folder):
    folder.save(1, weights(1.0), {}, set(), 1)
    (folder.path / "state" / "000000002.partial").mkdir()
    assert folder.checkpoints() == [1]


def test_other_tensors_of_the_same_step_replace_the_old(folder):
    folder.save(1, weights(1.0), {}, set(), 1)
    folder.save(1, weights(5.0), {}, set(), 1)
    assert folder.load()[0]["w"][0] == 5


def test_a_reader_whose_checkpoint_is_forgotten_meanwhile_takes_the_newer(folder, monkeypatch):
    folder.save(1, weights(1.0), {"step": 1}, set(), 1)
    reader, look = RunFolder(folder.path), RunFolder.checkpoints

    def late(self):
        found = look(self)
        monkeypatch.undo()
        for step in (2, 3):
            folder.save(step, weights(float(step)), {"step": step}, set(), step)
        return found

    monkeypatch.setattr(RunFolder, "checkpoints", late)
    assert reader.load()[1]["step"] == 3


def test_weights_that_are_replaced_while_they_are_read_are_read_again(folder, monkeypatch):
    folder.save(1, weights(1.0), {}, set(), 1)
    read = folders.read

    def late(path):
        content = read(path)
        monkeypatch.undo()
        for step in (2, 3):
            folder.save(step, weights(float(step)), {}, set(), step)
        return content

    monkeypatch.setattr(folders, "read", late)
    assert folder.weights()["w"][0] == 3


@pytest.mark.parametrize("sha256", [[], {}, None, 1, {"model.safetensors": []}, {"model.safetensors": None}])
def test_a_checkpoint_that_is_sealed_without_a_hash_is_named(folder, sha256):
    folder.save(1, weights(1.0), {}, set(), 1)
    place = folder.path / "state" / "000000001" / "checkpoint.json"
    place.write_bytes(dump_hashed_json({**load_hashed_json(place), "sha256": sha256}))
    with pytest.raises(EngramError, match="has no hash of the model"):
        folder.weights()


def test_what_a_killed_process_left_is_cleared_away_and_what_another_writes_is_not(folder, tmp_path):
    folder.save(1, weights(1.0), {}, set(), 1)
    folder.release()
    ended = python("import os; print(os.getpid())").stdout.strip()
    left = [f".report.html.{ended}.partial", f"samples/.1.npz.{ended}.partial", "model.partial"]
    (folder.path / "samples").mkdir()
    for name in [*left, f".report.html.{os.getppid()}.partial"]:
        (folder.path / name).write_bytes(b"half")
    for name in ("000000002.partial", "000000000.old.partial"):
        (folder.path / "state" / name).mkdir()
    folder.lock()
    assert [path.name for path in folder.path.rglob("*.partial")] == [f".report.html.{os.getppid()}.partial"]


def test_an_emptied_folder_of_checkpoints_is_not_a_run_that_never_began(folder):
    (folder.path / "state").mkdir()
    with pytest.raises(EngramError, match="stopped before its first"):
        folder.load()
    folder.append_metrics([{"step": 10, "loss": 1.0}])
    with pytest.raises(EngramError, match="state has no checkpoint: put it back, or train the run again"):
        folder.load()
