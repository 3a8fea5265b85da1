"""Recurrent recipes on every kind of data they take."""

import json
import math
import re

import numpy as np
import pytest

from engram import EngramError, load, run
from engram.core.registry import get_recipe


def tiny(name: str, out, **changes):
    return run(name, preset="tiny", out=out, quiet=True, **changes).run


@pytest.fixture
def wave(tmp_path):
    """A sine that a network can foretell and the last value cannot."""
    path = tmp_path / "wave.csv"
    path.write_text("value\n" + "\n".join(f"{3 + 2 * math.sin(t / 3):.6f}" for t in range(600)))
    return path


@pytest.mark.parametrize("data", ["copy", "reverse", "selective-copy", "adding", "digits"])
def test_answers_at_the_end(data, tmp_path):
    running = tiny("gru", tmp_path / "run", data=data, steps=5, eval_every=5)
    last = {key: value for row in running.folder.metrics() for key, value in row.items()}
    assert ("test_r2" if data == "adding" else "test_accuracy") in last


def test_length_makes_a_task_longer(tmp_path):
    recipe = get_recipe("mingru").from_preset("tiny", data="selective-copy", length=300)
    data = recipe.load()
    assert data.train["source"].shape[1] == 300
    assert recipe.learner(data).model.config.chrono_init == 300


def test_length_is_refused_where_nothing_is_generated():
    with pytest.raises(EngramError, match="length"):
        get_recipe("rnn").from_preset("tiny", data="digits", length=100).load()


def test_a_series_is_foretold_better_than_as_it_is_now(wave, tmp_path):
    running = tiny("gru", tmp_path / "run", data=str(wave), steps=150, eval_every=50, batch=16)
    last = {key: value for row in running.folder.metrics() for key, value in row.items()}
    assert last["test_loss"] < 0.1 * last["test_naive_loss"]
    forecast = np.load(next((tmp_path / "run" / "samples").glob("*.npz")))["forecast"]
    assert forecast.shape == (400, 1)
    assert 0.5 < forecast.min() < forecast.max() < 5.5  # in the units of the data


def test_rows_of_a_table_are_sequences_with_a_class(tmp_path):
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 300)
    rows = rng.normal(size=(300, 12)) + 2 * label[:, None] * (np.arange(12) > 8)
    table = "\n".join(",".join([*(f"{v:.4f}" for v in row), "ab"[k]]) for row, k in zip(rows, label, strict=True))
    path = tmp_path / "rows.csv"
    path.write_text(",".join([*(f"t{i}" for i in range(12)), "label"]) + "\n" + table)
    running = tiny("lstm", tmp_path / "run", data=str(path), classify=True, steps=60, eval_every=30, batch=32)
    last = {key: value for row in running.folder.metrics() for key, value in row.items()}
    assert last["test_accuracy"] > 0.8


def test_minimal_units_learn_what_plain_ones_cannot(tmp_path):
    """Two marked numbers among 300, which the plain network has forgotten when it is asked."""
    r2 = {}
    for name in ("rnn", "mingru"):
        running = tiny(
            name, tmp_path / name, data="adding", length=300, width=32, layers=2, steps=120, eval_every=120, batch=32
        )
        last = {key: value for row in running.folder.metrics() for key, value in row.items()}
        r2[name] = last["test_r2"]
    assert r2["mingru"] > 0.8
    assert r2["rnn"] < 0.2


def test_a_model_is_loaded_with_its_tokenizer_and_writes(tmp_path):
    tiny("mingru", tmp_path / "run")
    model = load(tmp_path / "run")
    (written,) = model.generate([model.tokenizer.encode("ROMEO:")], 12)
    assert len(model.tokenizer.decode(written)) == 12


def test_runs_are_compared_on_one_page(engram, tmp_path):
    for name in ("rnn", "gpt"):
        tiny(name, tmp_path / name)
    answer = engram("report", tmp_path / "rnn", tmp_path / "gpt")
    assert answer.code == 0, answer.err
    page = (tmp_path / "comparison.html").read_text()
    assert "perplexity by time" in page
    assert "<th>rnn</th><th>gpt</th>" in page
    scripts = re.findall(r'<script type="application/json" id="[^"]+">(.*?)</script>', page)
    assert all(len(json.loads(figure)["data"]) == 2 for figure in scripts)
    refused = engram("report", tmp_path / "rnn", "--out", tmp_path / "x.html")
    assert (refused.code, refused.out) == (2, "")
