"""Samples and reports of a run."""

import numpy as np
import pytest

from engram.core.errors import EngramError
from engram.foundations.mlp.recipe import MLPRecipe
from engram.plots.report import write_sample
from engram.training.run import Run
from tests.conftest import tiny


@pytest.mark.parametrize("error", [EngramError("There is nothing to sample."), ZeroDivisionError("a bug")])
def test_samples_that_fail_do_not_cost_the_report(error, engram, tmp_path, monkeypatch):
    def sample(self, learner, data, request):
        raise error

    monkeypatch.setattr(MLPRecipe, "sample", sample)
    call = ("run", "mlp", "--preset", "tiny", "--out", tmp_path / "run")
    if isinstance(error, EngramError):
        answer = engram(*call)
        assert answer.code == 0
        assert answer.err.splitlines()[-1] == f"engram: no samples could be drawn: {error}"
    else:
        with pytest.raises(ZeroDivisionError):
            engram(*call)
    assert f"No samples could be drawn: {error}" in (tmp_path / "run" / "report.html").read_text()


def test_samples_are_numbered_on_and_never_overwritten(finished, engram, tmp_path):
    run = tiny("mlp", tmp_path / "run")
    paths = [write_sample(run, count, 0)[1][0] for count in (3, 4, 5, 4)]
    assert [path.name for path in paths] == [f"000000020-0{end}.npz" for end in ("", "-2", "-3", "-2")]
    assert [len(np.load(path)["item"]) for path in paths] == [3, 4, 5, 4]


def test_samples_beyond_the_memory_are_refused_before_they_are_drawn(finished, refused):
    sentence = refused("sample", finished("rbm"), "--count", 10**13)
    assert "10,000,000,000,000 samples would take at least" in sentence
    assert sentence.endswith("take a smaller --count.")


@pytest.mark.parametrize("name", ["gpt", "rnn"])
def test_a_text_without_newlines_is_sampled(name, refused, tmp_path):
    (tmp_path / "dna.txt").write_text("ACGGTTAC" * 300)
    run = tiny(name, tmp_path / "run", data=str(tmp_path / "dna.txt"))
    assert write_sample(run)[0].text.startswith("A")
    assert "not in the vocabulary: '!'" in refused("sample", tmp_path / "run", "--prompt", "!")


def test_the_state_of_a_run_that_is_missing_is_named(finished, refused, tmp_path):
    run = tiny("mlp", tmp_path / "run")
    (run.folder.path / "state").rename(tmp_path / "elsewhere")
    assert f"{tmp_path / 'run' / 'state'} is missing" in refused("run", "--resume", tmp_path / "run")
    with pytest.raises(EngramError, match="state is missing"):
        Run.open(tmp_path / "run")
