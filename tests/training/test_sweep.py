"""Sweeps: the search space, the study in its journal, and trials that are trained, killed and resumed."""

import json
import signal
import sys
import time

import pytest
import torch
from filelock import FileLock

from engram.core.errors import EngramError
from engram.core.registry import get_recipe
from engram.training.run import Run
from engram.training.run_folder import RunFolder
from engram.training.sweep.space import Choices, Range, Space, spell
from engram.training.sweep.study import MIN_TRIALS, REDUCTION_FACTOR, Study, repair
from engram.training.sweep.sweep import Display, Sweep, sweep
from tests.processes import Process

pytest.importorskip("optuna")
SPACE = {"lr": "1e-5:1e-1", "batch": "32:256", "hidden": "8,64"}
SETTINGS = {"preset": "tiny", "steps": 60}
COUNT = 8


def space(recipe="mlp", **texts):
    return Space(get_recipe(recipe).from_preset("tiny"), texts)


# ---------------------------------------------------------------------- search space


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("lr", "1e-4:1e-2", Range(1e-4, 1e-2, False)),
        ("dropout", "0:0.5", Range(0.0, 0.5, False)),
        ("batch", "16:256", Range(16, 256, True)),
        ("shift", "0:3", Range(0, 3, True)),
        ("hidden", "32:64", Range(32, 64, True, True)),
        ("batch", "64, 128,256", Choices({"64": 64, "128": 128, "256": 256})),
        ("lr", "1e-3,0.01", Choices({"1e-3": 0.001, "0.01": 0.01})),
        ("hidden", "64,128x32", Choices({"64": (64,), "128x32": (128, 32)})),
        ("schedule", "constant,cosine", Choices({"constant": "constant", "cosine": "cosine"})),
        ("optimizer", "sgd,adam", Choices({"sgd": "sgd", "adam": "adam"})),
        ("flip", "true,false", Choices({"true": True, "false": False})),
    ],
)
def test_ranges_and_choices(name, text, expected):
    assert space(**{name: text}).parameters == {name: expected}


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("lr", "1e-4:", "LOW:HIGH of two numbers"),
        ("lr", "low:high", "LOW:HIGH of two numbers"),
        ("lr", "1:2:3", "LOW:HIGH of two numbers"),
        ("lr", "0:inf", "finite"),
        ("lr", "1e-2:1e-4", "LOW must be below HIGH"),
        ("lr", "1:1", "LOW must be below HIGH"),
        ("lr", "-1:1", "at least 0"),
        ("lr", "1e-3", "LOW:HIGH or choices"),
        ("lr", "1e-3,,1e-2", "LOW:HIGH or choices"),
        ("lr", "1e-3,0.001", "twice"),
        ("lr", "1e-3,fast", "takes numbers, not fast"),
        ("batch", "1.5:8", "two integers"),
        ("batch", "16,1.5", "takes integers, not 1.5"),
        ("dropout", "0.1,1", "below 1"),
        ("hidden", "64,0x8", "at least 1"),
        ("schedule", "cosine,lineer", 'Did you mean "linear"'),
        ("optimizer", "adam,foo", 'no optimizer "foo"'),
        ("flip", "true,maybe", 'no choice of --flip "maybe"'),
        ("data", "digits,mnist", "cannot be varied"),
        ("preset", "tiny,small", "cannot be varied"),
        ("rl", "1:2", 'no setting of mlp "rl"'),
    ],
)
def test_what_is_no_range_and_no_choice_is_refused(name, text, why):
    with pytest.raises(EngramError, match=why):
        space(**{name: text})


def test_nothing_to_vary_is_refused():
    with pytest.raises(EngramError, match="needs a setting to vary"):
        space()


def test_a_range_is_logarithmic_from_a_factor_of_ten_on():
    found = space(lr="1e-3:1e-2", weight_decay="0:1", batch="16:256", dropout="0.1:0.5").parameters
    assert {name: one.log for name, one in found.items()} == {
        "lr": True, "weight_decay": False, "batch": True, "dropout": False,
    }  # fmt: skip


def test_a_value_is_refused_only_if_it_fits_none_of_the_others():
    fitting = space("gpt", width="16,30", heads="4,5")  # 4 divides 16, 5 divides 30
    assert list(fitting.combinations()) == [{"width": "16", "heads": "4"}, {"width": "30", "heads": "5"}]
    with pytest.raises(EngramError, match="5 does not divide"):
        space("gpt", width="16,32", heads="4,5")


def test_a_trial_has_the_recipe_with_its_settings():
    found = space(lr="1e-4:1e-2", hidden="8,16x4", batch="2:4")
    recipe = found.apply({"lr": 0.002, "hidden": "16x4", "batch": 3})
    assert (recipe.optimization.lr, recipe.model.hidden, recipe.batch) == (0.002, (16, 4), 3)
    assert found.settings({"lr": 0.002, "hidden": "8", "batch": 2}) == {"lr": 0.002, "hidden": (8,), "batch": 2}
    assert len(list(space(hidden="8,16", batch="2:4").combinations())) == 6


def test_spaces_from_python():
    assert spell((1e-4, 1e-2)) == "0.0001:0.01"
    assert spell([64, (128, 32)]) == "64,128x32"
    assert spell("1:2") == "1:2"
    with pytest.raises(EngramError, match="not over 3"):
        spell(3)


# ---------------------------------------------------------------------- the study


def study(folder, prune=True, **texts):
    return Study(folder / "journal.log", space(**(texts or {"lr": "1e-4:1e-2", "batch": "16:64"})), prune)


def finish(one, value, steps=(10, 20)):
    """A trial that reports the same value at every step, until it is pruned."""
    trial = one.propose()
    for step in steps:
        one.report(trial.number, step, value)
        if one.should_prune(trial.number, step):
            one.finish(trial.number, "pruned", None, 1.0)
            return
    one.finish(trial.number, "complete", value, 2.0)


def test_the_worse_two_thirds_are_pruned_at_the_first_rung(tmp_path):
    one = study(tmp_path)
    for value in (0.5, 0.4, 0.6, 0.3, 0.7):  # accuracy: more is better
        finish(one, value)
    assert [trial.state for trial in one.trials()] == ["complete", "pruned", "complete", "pruned", "complete"]
    assert [trial.value for trial in one.trials()] == [0.5, 0.4, 0.6, 0.3, 0.7]
    assert [trial.step for trial in one.trials()] == [20, 10, 20, 10, 20]


def test_the_second_rung_is_as_far_as_the_reduction_factor_says(tmp_path):
    one = study(tmp_path)
    finish(one, 0.9, steps=(10, 20, 30))
    trial = one.propose()
    for step, value in ((10, 0.95), (10 * REDUCTION_FACTOR - 10, 0.1)):
        one.report(trial.number, step, value)
        assert not one.should_prune(trial.number, step)
    last = 10 * REDUCTION_FACTOR
    one.report(trial.number, last, 0.1)
    assert one.should_prune(trial.number, last)
    assert study(tmp_path).should_prune(trial.number, last), "also after a kill"
    assert not one.should_prune(trial.number, 10), "that was decided before"


def test_without_pruning_every_trial_is_completed(tmp_path):
    one = study(tmp_path, prune=False)
    for value in (0.5, 0.4, 0.3):
        finish(one, value)
    assert {trial.state for trial in one.trials()} == {"complete"}


def test_a_study_that_is_opened_again_goes_on_as_it_would_have(tmp_path):
    (tmp_path / "again").mkdir()
    one = study(tmp_path)
    for number in range(13):  # TPE begins after ten
        finish(one, number % 5)
        finish(study(tmp_path / "again"), number % 5)
    again = study(tmp_path / "again")
    assert [trial.params for trial in again.trials()] == [trial.params for trial in one.trials()]
    assert study(tmp_path).trials() == one.trials()


def test_a_line_that_was_half_written_is_cut_off(tmp_path):
    one, journal = study(tmp_path), tmp_path / "journal.log"
    finish(one, 0.5)
    before, whole = one.trials(), journal.read_bytes()
    journal.write_bytes(whole + whole.splitlines()[-1][:20])
    (tmp_path / "journal.log.lock").touch()
    repair(journal)
    assert journal.read_bytes() == whole
    again = study(tmp_path)
    finish(again, 0.6)
    assert again.trials()[:1] == before
    assert len(study(tmp_path).trials()) == 2


def test_a_damaged_journal_is_refused(tmp_path):
    finish(study(tmp_path), 0.5)
    journal = tmp_path / "journal.log"
    journal.write_bytes(b"nonsense\n" + journal.read_bytes())
    with pytest.raises(EngramError, match="damaged"):
        study(tmp_path)


def test_a_finite_space_is_tried_without_repetition(tmp_path):
    one = study(tmp_path, hidden="8,16,32", batch="2:4")
    for _ in range(9):
        finish(one, 0.5)
    assert len({tuple(trial.params.values()) for trial in one.trials()}) == 9


def test_combinations_that_the_recipe_refuses_are_not_drawn(tmp_path):
    one = Study(tmp_path / "journal.log", space("gpt", width="16,30", heads="4,5"), prune=False)
    drawn = [tuple(one.propose().settings.values()) for _ in range(2)]
    assert sorted(drawn) == [(16, 4), (30, 5)]


def test_values_of_a_range_have_few_digits_and_stay_inside(tmp_path):
    found = [study(tmp_path, lr="0.00011111:0.00011112").propose().settings["lr"] for _ in range(3)]
    assert all(0.00011111 <= lr <= 0.00011112 for lr in found)
    (tmp_path / "other").mkdir()
    lr = study(tmp_path / "other", lr="1e-4:1e-2").propose().settings["lr"]
    assert lr == float(f"{lr:.4g}")


def test_the_setting_that_matters_is_the_important_one(tmp_path):
    one = study(tmp_path, prune=False, lr="1e-4:1e-2", dropout="0:0.5")
    assert one.importance() == {}
    for _ in range(4 * MIN_TRIALS):
        trial = one.propose()
        one.finish(trial.number, "complete", trial.settings["lr"], 1.0)
    one.finish(one.propose().number, "diverged", None, 1.0, "loss became nan.")
    assert one.trials()[-1].state == "diverged"
    found = one.importance()
    assert found["lr"] > 0.8
    assert sum(found.values()) == pytest.approx(1)


def test_tpe_comes_closer_than_its_random_beginning(tmp_path):
    one = study(tmp_path, prune=False, lr="1e-4:1", dropout="0:0.9")
    for _ in range(30):
        trial = one.propose()
        drawn = trial.settings
        one.finish(trial.number, "complete", -abs(drawn["dropout"] - 0.3) - abs(drawn["lr"] - 0.01), 1.0)
    values = [trial.value for trial in one.trials()]
    assert sum(values[-10:]) > sum(values[:10]) + 1


# ---------------------------------------------------------------------- trials that are trained

COMMAND = [
    sys.executable, "-m", "engram", "sweep", "mlp", "--preset", "tiny", "--steps", SETTINGS["steps"], "--trials", COUNT,
    *(word for name, text in SPACE.items() for word in (f"--{name}", text)),
]  # fmt: skip


def outcome(found):
    """What must be equal between two sweeps that are the same."""
    return [(trial.number, trial.params, trial.state, trial.value, trial.values) for trial in found.study.trials()]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A sweep of one job, which tests must not change."""
    torch.set_num_threads(1)
    return sweep("mlp", SPACE, trials=COUNT, out=tmp_path_factory.mktemp("sweep") / "undisturbed", **SETTINGS)


@pytest.mark.slow
def test_validation_chooses_the_best_trial(undisturbed):
    best, trials = undisturbed.best(), undisturbed.study.trials()
    assert [trial.number for trial in trials] == list(range(COUNT))
    assert best.state == "complete"
    assert best.value == max(trial.value for trial in trials if trial.state == "complete")
    assert best.value > min(trial.value for trial in trials) + 0.2
    assert undisturbed.ranked()[0] == best


@pytest.mark.slow
def test_a_trial_is_an_ordinary_run(undisturbed):
    best = undisturbed.best()
    run = Run.open(undisturbed.folder(best))
    assert run.finished
    assert run.recipe.optimization.lr == best.settings["lr"]
    rows = [row for row in run.folder.metrics() if "valid_accuracy" in row]
    assert {row["step"]: row["valid_accuracy"] for row in rows} == best.values
    assert rows[-1]["valid_accuracy"] == best.value


@pytest.mark.slow
def test_pruned_trials_are_marked_and_can_be_trained_on(undisturbed):
    pruned = [trial for trial in undisturbed.study.trials() if trial.state == "pruned"]
    assert pruned
    for trial in pruned:
        run = Run.open(undisturbed.folder(trial))
        assert run.step == trial.step < SETTINGS["steps"]
        assert not run.finished
        assert trial.value == trial.values[trial.step]


def wait_for(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def in_use(folder):
    """Whether a process has locked one of the runs."""
    return any(RunFolder(path).in_use() for path in folder.glob("trials/*"))


@pytest.mark.slow
def test_killed_and_given_again_it_ends_as_if_undisturbed(undisturbed, tmp_path, engram, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    folder, before = tmp_path / "sweep", []
    for begun in ("trials/1/metrics.jsonl", "trials/4/recipe.json"):
        with Process([*COMMAND, "--out", folder]) as child:
            wait_for(lambda name=begun: (folder / name).exists() or child.poll() is not None)
            child.kill()
            child.wait(10)
            if not before:  # its worker notices, the second time it is killed too
                wait_for(lambda: not in_use(folder))
        before = [trial for trial in Sweep.open(folder).study.trials() if trial.state != "running"]
        assert 0 < len(before) < COUNT
    answer = engram(*COMMAND[3:], "--out", folder, "--json")
    assert answer.code == 0, answer.err
    found = Sweep.open(folder)
    assert outcome(found) == outcome(undisturbed)
    assert found.study.trials()[: len(before)] == before
    assert json.loads(answer.out)["best"]["number"] == undisturbed.best().number
    assert "Parallel coordinates" in (folder / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_signal_saves_and_says_how_to_resume(number, tmp_path, engram):
    folder = tmp_path / "sweep"
    words = ["--steps", 10**6, "--no-prune", "--jobs", 2, "--out", folder]
    with Process([*COMMAND, *words], stdout=-1, stderr=-1, text=True) as child:
        wait_for(lambda: sum(1 for _ in folder.glob("trials/*/metrics.jsonl")) == 2 or child.poll() is not None)
        child.send_signal(number)
        out, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    assert f"engram sweep --resume {folder}" in out
    assert "Traceback" not in err
    assert [trial.state for trial in Sweep.open(folder).study.trials()] == ["running", "running"]
    steps = [Run.open(path).step for path in (folder / "trials").iterdir()]
    assert all(steps), "the runs were saved where they stood"


class Recorded(Display):
    def __init__(self):
        self.trials, self.evaluations = [], []

    def on_trial(self, sweep, trial):
        self.trials.append(trial)

    def on_evaluation(self, sweep, number, step, value):
        self.evaluations.append((number, step, value))


@pytest.mark.slow
def test_a_trial_that_diverges_is_marked(tmp_path):
    display = Recorded()
    found = sweep("mlp", {"lr": [1e-3, 1e30]}, out=tmp_path / "sweep", display=display, preset="tiny", optimizer="sgd")
    trials = {trial.settings["lr"]: trial for trial in display.trials}
    assert trials[1e-3].state == "complete"
    assert trials[1e30].state == "diverged"
    assert "became" in trials[1e30].error
    assert found.best() == trials[1e-3]
    assert {number for number, _, _ in display.evaluations} >= {trials[1e-3].number}


def test_a_worker_that_dies_ends_its_own_trial(tmp_path, monkeypatch):
    worker = tmp_path / "worker"
    worker.write_text("#!/bin/sh\necho out of memory >&2\nexit 3\n")
    worker.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(worker))
    found = sweep("mlp", {"lr": [1e-3, 1e-2]}, out=tmp_path / "sweep", preset="tiny", jobs=2)
    trials = found.study.trials()
    assert [trial.state for trial in trials] == ["failed", "failed"]
    assert trials[0].error == "Its process ended with exit code 3. out of memory"
    with pytest.raises(EngramError, match="No trial of .* was completed; trial 0: Its process"):
        found.best()


def test_a_sweep_that_another_process_trains_is_refused(tmp_path):
    found = Sweep.start(get_recipe("mlp").from_preset("tiny"), {"lr": "1e-3,1e-2"}, tmp_path / "sweep")
    with FileLock(tmp_path / "sweep" / ".lock"), pytest.raises(EngramError, match="in use"):
        found.train()


@pytest.mark.parametrize(
    "damage", [{"format": 9}, {"space": {}}, {"space": 3}, {"trials": "many"}, {"recipe": "nothing"}, {"fields": []}]
)
def test_a_damaged_sweep_is_refused(damage, tmp_path):
    Sweep.start(get_recipe("mlp").from_preset("tiny"), {"lr": "1e-3,1e-2"}, tmp_path / "sweep")
    file = tmp_path / "sweep" / "sweep.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **damage}))
    with pytest.raises(EngramError):
        Sweep.open(tmp_path / "sweep")
