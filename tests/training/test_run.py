"""Early stopping, progress and what else the loop does beside stepping."""

import re

import pytest
import torch

from engram import load, run
from engram.core.errors import EngramError
from engram.core.registry import registry
from engram.training.progress import clock
from engram.training.run import Run, evenly_spaced_steps, same_structure
from engram.training.train import train
from tests.conftest import content, tiny


def overfit(folder, patience):
    """An MLP whose validation accuracy is made to peak at step 30."""
    recipe = registry()["mlp"].from_preset("tiny", steps=100, eval_every=10, patience=patience, lr=0.01)
    started = Run.start(recipe, folder)
    measure = started.recipe.evaluate

    def peaked(learner, data, split):
        measured = measure(learner, data, split)
        return {**measured, "accuracy": 1 - abs(started.step - 30) / 100}

    object.__setattr__(started.recipe, "evaluate", peaked)
    train(started)
    started.folder.release()
    return started


@pytest.mark.download
def test_patience_stops_and_keeps_the_best(tmp_path):
    stopped = overfit(tmp_path / "run", patience=3)
    assert stopped.step == 60
    assert stopped.best_step == 30
    best = (tmp_path / "run" / "state" / "000000030" / "model.safetensors").read_bytes()
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == best
    opened = load(tmp_path / "run").state_dict()
    for name, value in stopped.folder.load(30)[0].items():
        assert opened[name].equal(value)


@pytest.mark.download
def test_without_patience_the_last_weights_count(tmp_path):
    ended = overfit(tmp_path / "run", patience=0)
    assert ended.step == 100
    last = content(tmp_path / "run")
    assert last["published"] == last["weights"]


@pytest.mark.download
def test_plain_lines_where_there_is_no_terminal(engram, tmp_path):
    lines = engram("run", "mlp", "--preset", "tiny", "--out", tmp_path / "run").err.splitlines()
    assert len(lines) == 3
    assert all(re.match(r"step \d+/20  loss .*images/s, \d+:\d\d left$", line) for line in lines), lines


@pytest.mark.download
def test_json_of_a_run_is_its_last_metrics(engram, tmp_path):
    import json

    answer = engram("run", "rbm", "--preset", "tiny", "--out", tmp_path / "run", "--quiet", "--json")
    assert answer.err == ""
    result = json.loads(answer.out)
    assert result["run"] == str(tmp_path / "run")
    assert result["step"] == 20
    assert result["test_reconstruction"] > 0


@pytest.mark.download
def test_tensorboard_gets_every_metric(engram, tmp_path):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    assert engram("run", "mlp", "--preset", "tiny", "--out", tmp_path / "run", "--tensorboard").code == 0
    events = event_accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    steps = [event.step for event in events.Scalars("loss")]
    assert steps == list(range(1, 21))
    assert events.Scalars("test_accuracy")[0].step == 20


@pytest.mark.download
def test_python_does_what_the_command_line_does(finished, tmp_path):
    done = run("mlp", preset="tiny", out=tmp_path / "run", quiet=True).run
    assert done.finished
    assert content(tmp_path / "run") == content(finished("mlp"))
    with pytest.raises(EngramError, match='Did you mean "steps"'):
        run("mlp", stepz=3)


@pytest.mark.download
def test_folders_are_numbered(engram, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        assert f"runs/mlp-{number}/report.html" in engram("run", "mlp", "--preset", "tiny", "--quiet").out


@pytest.mark.parametrize(("seconds", "shown"), [(0, "0:00"), (61, "1:01"), (3725, "1:02:05")])
def test_clock(seconds, shown):
    assert clock(seconds) == shown


@pytest.mark.download
def test_checkpoints_to_look_back_at_are_spread_evenly(tmp_path):
    ended = tiny("mlp", tmp_path / "run", steps=100, eval_every=10, keep_checkpoints=3)
    assert ended.folder.checkpoints() == [0, 40, 80, 90, 100]  # and the newest two
    assert Run.open(tmp_path / "run", 40).step == 40
    assert tiny("mlp", tmp_path / "usual", steps=100, eval_every=10).folder.checkpoints() == [90, 100]


@pytest.mark.parametrize("most", [1, 2, 5, 10])
def test_milestones_are_as_many_as_asked_for_or_half_as_many(most):
    for evaluations in range(1, 100):
        kept = evenly_spaced_steps(evaluations * 7, 7, most) - {0}
        assert min(most, evaluations) / 2 <= len(kept) <= most
        assert kept <= evenly_spaced_steps((evaluations - 1) * 7, 7, most) | {evaluations * 7}  # no step returns


@pytest.mark.download
def test_whether_a_folder_is_in_use_is_told_without_harm(tmp_path):
    started = Run.start(registry()["mlp"].from_preset("tiny"), tmp_path / "run")
    other = Run.open(tmp_path / "run").folder
    assert other.in_use()
    started.folder.release()
    assert not other.in_use()
    Run.resume(tmp_path / "run").folder.release()


STATE = {"step": 4, "best": (2, 0.5), "flag": True, "noise": torch.zeros(3), "window": [], "moments": {}, "none": None}


@pytest.mark.parametrize(
    "change",
    [{}, {"step": 0}, {"best": (3, 1)}, {"window": [{"loss": 1.0}]}, {"moments": {0: 1}}, {"none": "x"}, {"more": 1}],
)
def test_a_state_of_the_same_form_is_taken(change):
    assert same_structure(STATE, {**STATE, **change})


@pytest.mark.parametrize(
    "change",
    [
        {"step": -1}, {"step": 4.0}, {"step": True}, {"step": 2**63}, {"step": []}, {"best": [2, 0.5]}, {"best": (2,)},
        {"best": (0.5, 2)}, {"flag": 1}, {"noise": [0.0]}, {"noise": None}, {"window": {}}, {"moments": []},
    ],
)  # fmt: skip
def test_a_state_of_another_form_is_not(change):
    assert not same_structure(STATE, {**STATE, **change})
    (name,) = change
    assert not same_structure(STATE, {key: value for key, value in STATE.items() if key != name})
