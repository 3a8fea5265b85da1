import re

import pytest

from engram.data.progress import announce, silence
from engram.memory.rbm.recipe import AIS_TEMPERATURES
from engram.training.progress import main_metrics

RBM = ("run", "rbm", "--preset", "tiny")


@pytest.mark.slow
def test_the_progress_shows_the_loss_and_the_best_metric(engram, tmp_path):
    printed = engram(*RBM, "--out", tmp_path / "run").err.splitlines()
    lines = [line for line in printed if not line.startswith("engram: ")]  # a slow machine announces what takes long
    shown = [re.findall(r"[a-z_]+(?= -?[0-9.]+(?:e|  |$))", line) for line in lines]
    assert shown[0] == ["mean_difference", "valid_log_likelihood"]
    assert shown[-1] == ["mean_difference", "valid_log_likelihood", "test_log_likelihood"]
    assert all("samples/s" in line for line in lines)


@pytest.mark.slow
def test_verbose_progress_shows_all_metrics(engram, tmp_path):
    first = engram(*RBM, "--verbose", "--out", tmp_path / "run").err.splitlines()[0]
    assert "valid_pseudo_likelihood" in first
    assert "valid_energy_gap" in first


def test_the_main_metrics_are_those_with_the_words_or_the_first():
    metrics = {"step": 1, "seconds": 2.0, "accuracy": 3.0, "loss": 4.0, "valid_loss": 5.0, "valid_accuracy": 6.0}
    assert main_metrics(metrics, "valid_accuracy") == {"loss": 4.0, "valid_accuracy": 6.0}
    assert main_metrics({"step": 1, "valid_recall": 1.0}, "valid_recall") == {"valid_recall": 1.0}
    assert main_metrics({"step": 1, "voltage": 1.0, "spikes": 2.0}, "valid_rate") == {"voltage": 1.0}


def test_announcements_are_silenced(capfd):
    announce("something")
    with silence(False):
        announce("more")
    with silence():
        announce("nothing")
        with silence(False):
            announce("nothing still")
    assert capfd.readouterr().err == "engram: something\nengram: more\n"


@pytest.mark.slow
def test_what_takes_long_is_announced_unless_it_is_quiet(engram, tmp_path, monkeypatch):
    monkeypatch.setitem(AIS_TEMPERATURES, "test", 10)
    call = (*RBM, "--hidden", 40, "--steps", 2, "--eval-every", 2)
    assert "engram: estimating log Z" in engram(*call, "--out", tmp_path / "a").err
    assert engram(*call, "--out", tmp_path / "b", "--quiet").err == ""
    assert "estimating" not in engram(*call, "--out", tmp_path / "c", "--json").err


@pytest.mark.slow
def test_the_progress_of_a_table_counts_rows_and_shows_the_validation_of_a_regression(engram, tmp_path):
    lines = engram("run", "mlp", "--preset", "table", "--data", "diabetes", "--out", tmp_path / "run").err.splitlines()
    assert all("rows/s" in line and "valid_loss" in line for line in lines if line.startswith("step"))
    wrong = engram("run", "mlp", "--preset", "table", "--batch", 10**6, "--out", tmp_path / "b")
    assert "A batch has 1,000,000 rows" in wrong.err
