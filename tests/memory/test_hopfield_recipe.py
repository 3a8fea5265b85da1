"""Memories from the command line."""

import numpy as np
import pytest

from engram import load
from tests.conftest import tiny


@pytest.mark.parametrize("name", ["hopfield", "modern-hopfield"])
def test_samples_are_stored_corrupted_and_recalled(name, tmp_path, engram):
    folder = tiny(name, tmp_path / "run").folder.path
    answer = engram("sample", folder, "--corruption", 0.05, "--count", 6)
    assert answer.code == 0, answer.err
    assert "of 6 recalled without error with 5%" in answer.out
    arrays = dict(np.load(max((folder / "samples").glob("*.npz"), key=lambda path: path.stat().st_mtime)))
    assert arrays["pattern"].shape == arrays["cue"].shape == arrays["recalled"].shape == (6, 100)
    flipped = (arrays["pattern"] != arrays["cue"]).mean()
    assert 0 < flipped < 0.15
    assert (np.diff(arrays["energy"], axis=1) <= 1e-3).all()


@pytest.mark.parametrize("rule", ["hebb", "gradient", "storkey", "pseudo-inverse"])
def test_every_rule_stores(rule, tmp_path):
    run = tiny("hopfield", tmp_path / "run", rule=rule, steps=3, eval_every=3)
    model = load(run.folder.path)
    assert int(model.stored) == 3
    assert (model(run.recipe.patterns(run.data)) == run.recipe.patterns(run.data)).float().mean() > 0.9


def test_only_what_has_been_stored_is_asked_for(tmp_path):
    run = tiny("hopfield", tmp_path / "run", steps=10, eval_every=1)
    recalled = [line["valid_recall"] for line in run.folder.metrics() if "valid_recall" in line]
    assert recalled[0] == 1


def test_pictures_become_patterns(tmp_path):
    run = tiny("hopfield", tmp_path / "run", data="digits", steps=3, eval_every=3)
    assert set(run.recipe.patterns(run.data).unique().tolist()) == {-1.0, 1.0}
    assert run.learner.model.config.units == 64


@pytest.mark.parametrize(
    ("name", "flag", "value"),
    [("hopfield", "corruption", 2), ("hopfield", "lr", 0), ("hopfield", "capacity-units", 1),
     ("hopfield", "batch", 0),
     ("modern-hopfield", "beta", 0), ("modern-hopfield", "recall-steps", 0)],
)  # fmt: skip
def test_bad_settings_are_named(name, flag, value, refused, tmp_path):
    said = refused("run", name, "--preset", "tiny", f"--{flag}", value, "--out", tmp_path / "run")
    assert flag.replace("-", "_") in said


def test_texts_are_refused(refused, tmp_path):
    assert "patterns or images" in refused("run", "hopfield", "--data", "shakespeare", "--out", tmp_path / "run")
