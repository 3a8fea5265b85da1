"""The command line of sweeps: flags, help, results and refusals."""

import json
import shlex
import sys

import pytest

from engram.core.config import controls
from engram.core.registry import registry
from engram.plots import sweep as plots
from engram.training.sweep.space import Range
from engram.training.sweep.study import Trial
from engram.training.sweep.sweep import Sweep
from tests.conftest import python

pytest.importorskip("optuna")
TINY = ("mlp", "--preset", "tiny")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "needs a setting to vary"),
        (["--lr", "1e-3"], "needs a setting to vary"),
        (["--rl", "1e-4:1e-2"], 'no flag --rl. Did you mean "--lr"'),
        (["--lr", "1e-4:"], "--lr takes a range LOW:HIGH"),
        (["--lr=1e-2:1e-4"], "LOW must be below HIGH"),
        (["--lr", "1e-4:1e-2", "--lr", "1,2"], "--lr is given twice"),
        (["--lr", "-1:1"], "--lr must be at least 0"),
        (["--dropout", "0.1,1.5"], "--dropout must be at least 0 and below 1"),
        (["--schedule", "cosine,lineer"], 'Did you mean "linear"'),
        (["--lr", "1e-4:1e-2", "--data", "digits,mnist"], 'no data set "digits,mnist"'),
        (["--lr", "1e-4:1e-2", "--batch", "0"], "batch must be at least 1"),
        (["--lr", "1e-4:1e-2", "--trials", "0"], "trials must be at least 1"),
        (["--lr", "1e-4:1e-2", "--jobs", "0"], "jobs must be at least 1"),
        (["--lr", "1e-4:1e-2", "--preset", "huge"], 'no preset of mlp "huge"'),
    ],
)
def test_a_wrong_command_is_refused_and_leaves_nothing_behind(words, why, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert why in refused("sweep", *TINY, *words)
    assert why in refused("sweep", *TINY, *words, "--out", "sweep")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["mlpp", "--lr", "1:2"], 'Did you mean "mlp"'),
        (["--lr", "1:2"], "begins with the name of a recipe"),
        (["lif", "--preset", "tiny", "--capacitance", "1:2"], "sweep lif"),
        (["--resume", "nowhere"], "nowhere holds no sweep"),
        (["--resume"], "folder"),
    ],
)
def test_what_names_no_recipe_and_no_sweep_is_refused(words, why, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert why in refused("sweep", *words)
    assert list(tmp_path.iterdir()) == []


def test_a_simulation_has_nothing_to_choose_by(refused, tmp_path):
    flag = next(one["flag"] for one in controls(registry()["lif"].from_preset("tiny")) if one["name"] == "seed")
    assert "does not learn" in refused("sweep", "lif", f"--{flag}", "1,2", "--out", tmp_path / "sweep")
    assert list(tmp_path.iterdir()) == []


def test_without_optuna_it_says_what_to_install(refused, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert "pip install 'engram[sweep]'" in refused("sweep", *TINY, "--lr", "1:2", "--out", tmp_path / "sweep")
    assert list(tmp_path.iterdir()) == []


def test_torchrun_is_refused(refused, tmp_path, monkeypatch):
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        monkeypatch.setenv(name, "1")
    assert "without torchrun" in refused("sweep", *TINY, "--lr", "1:2", "--out", tmp_path / "sweep")


def test_a_folder_with_another_sweep_or_a_run_is_refused(refused, tmp_path):
    recipe = registry()["mlp"].from_preset("tiny")
    Sweep.start(recipe, {"lr": "1e-4:1e-2"}, tmp_path / "sweep")
    out = ["--out", tmp_path / "sweep"]
    assert "other settings of --lr:" in refused("sweep", *TINY, "--lr", "1e-4:1e-1", *out)
    assert "other settings of --batch, --lr:" in refused("sweep", *TINY, "--batch", "16,32", *out)
    assert "other settings of --steps:" in refused("sweep", *TINY, "--lr", "1e-4:1e-2", "--steps", 30, *out)
    assert "other settings of --prune:" in refused("sweep", *TINY, "--lr", "1e-4:1e-2", "--no-prune", *out)
    assert "holds a sweep of mlp, not of cnn" in refused("sweep", "cnn", "--preset", "tiny", "--lr", "1:2", *out)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.json").touch()
    assert "already holds a run" in refused("sweep", *TINY, "--lr", "1e-4:1e-2", "--out", tmp_path / "run")


def test_help_has_the_syntax_and_every_flag_and_needs_no_torch(engram):
    text = " ".join(engram("sweep", *TINY, "--help").out.split())
    for control in controls(registry()["mlp"].from_preset("tiny")):
        assert f"--{control['flag']}" in text or f"--no-{control['flag']}" in text
    assert "logarithmic" in text
    assert "--trials INT number of trials" in text
    words = ["sweep", *TINY, "--help"]
    heavy = "print({name for name in sys.modules if name in ('torch', 'optuna')})"
    code = f"import sys\nfrom engram import cli\ncli.dispatch({words!r})\n{heavy}"
    assert python(code).stdout.splitlines()[-1] == "set()"


@pytest.mark.slow
def test_a_sweep_prints_its_trials_the_best_command_and_a_report(engram, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["sweep", *TINY, "--lr", "1e-4,1e-2,3e-2", "--hidden=8,32x16", "--jobs", 2, "--trials", 50]
    answer = engram(*words)
    assert answer.code == 0, answer.err
    assert sum(line.startswith("trial ") for line in answer.err.splitlines()) == 6
    assert "(6/6" in answer.err
    report = tmp_path / "runs" / "mlp-sweep-1" / "report.html"
    for title in ("Optimization history", "Parallel coordinates", "Validation curves", "trial 5"):
        assert title in report.read_text()
    best = next(line for line in answer.out.splitlines() if line.startswith("engram run mlp"))
    again = engram(*shlex.split(best)[1:], "--quiet", "--json", "--out", "again")

    answer = engram("sweep", "--resume", "runs/mlp-sweep-1", "--json", "--quiet")
    assert answer.err == ""
    found = json.loads(answer.out)
    assert found["metric"] == "valid_accuracy"
    assert found["best"]["command"] == best
    assert found["best"]["value"] == json.loads(again.out)["valid_accuracy"]
    assert [trial["number"] for trial in found["trials"]] == list(range(6))
    assert found["best"] == {**found["trials"][found["best"]["number"]], "command": best}
    assert isinstance(found["best"]["settings"]["hidden"], list)


@pytest.mark.slow
def test_a_sweep_without_a_complete_trial_has_a_report_and_is_an_error(refused, tmp_path):
    words = ["--optimizer", "sgd", "--lr", "1e30,1e31", "--out", tmp_path / "sweep"]
    assert "No trial of" in refused("sweep", *TINY, *words)
    trials = Sweep.open(tmp_path / "sweep").study.trials()
    assert [(trial.state, "became" in trial.error) for trial in trials] == [("diverged", True)] * 2, trials
    assert "2 diverged" in (tmp_path / "sweep" / "report.html").read_text()


# ---------------------------------------------------------------------- figures


def test_axes_of_ranges_are_as_they_are_searched():
    axis = plots.dimension("lr", Range(1e-4, 3e-2, False), [1e-3, 1e-2])
    assert list(axis["values"]) == [-3, -2]
    assert axis["ticktext"] == ["0.0001", "0.001", "0.01", "0.03"]
    axis = plots.dimension("dropout", Range(0.0, 0.5, False), [0.1, 0.2])
    assert (axis["values"], axis["range"]) == ([0.1, 0.2], [0.0, 0.5])


def test_the_best_so_far_follows_the_complete_trials():
    trials = [
        Trial(number, {"lr": 0.1}, {"lr": 0.1}, state, value, {10: value}, 1.0, "")
        for number, (state, value) in enumerate(
            [("complete", 3.0), ("pruned", 1.0), ("complete", 2.0), ("pruned", 4.0)]
        )
    ]
    best, *others = plots.optimization_history(trials, "valid_loss", "min").plot.data
    assert (list(best.x), list(best.y)) == ([0, 2, 3], [3.0, 2.0, 2.0])
    assert [(one.name, list(one.x)) for one in others] == [("complete", [0, 2]), ("pruned", [1, 3])]
