"""Every recipe runs from the command line, explains itself and leaves a folder that others can read."""

import json
import re
import shutil

import pytest
import safetensors.torch
import torch

from engram import PARTS, EngramError, load
from engram.core.config import FromData, controls, flatten, from_json
from engram.core.registry import registry
from engram.core.tap import watch
from engram.training.run import Run
from tests.conftest import RECIPES, content, tiny
from tests.laws.test_predictions import PREDICTING

SPEAKING = {
    "gpt", "bert", "text-classifier", "translate", "clip", "word2vec", "rnn", "lstm", "gru", "mingru", "rnn-attention",
}  # fmt: skip
"""recipes that leave a tokenizer"""


@pytest.mark.parametrize("name", RECIPES)
def test_runs_from_the_command_line(name, engram, tmp_path):
    folder = tmp_path / "run"
    answer = engram("run", name, "--preset", "tiny", "--out", folder)
    assert answer.code == 0, answer.err
    assert str(folder / "report.html") in answer.out
    left = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    own = {"tokenizer.json"} if name in SPEAKING else set()
    own |= {"inputs.json"} if name in PREDICTING else set()
    assert left == own | {
        "recipe.json", "config.json", "model.safetensors", "metrics.jsonl", "state", "samples", "report.html"
    }  # fmt: skip
    for verb in ("sample", "inspect", "report"):
        again = engram(verb, folder)
        assert again.code == 0, again.err
        assert str(folder) in again.out


@pytest.mark.parametrize("name", RECIPES)
def test_report_is_one_page_that_needs_nothing_else(name, finished, engram):
    assert engram("report", finished(name)).code == 0
    page = (finished(name) / "report.html").read_text()
    assert registry()[name].title in page
    assert f"engram run {name} --preset tiny" in page
    assert len(re.findall("data-figure=", page)) >= 3
    assert not re.findall(r"<(?:script|img|link)[^>]+(?:src|href)=[\"']https?:", page)


@pytest.mark.parametrize("name", RECIPES)
def test_help_documents_every_field(name, engram):
    rows = [" ".join(row.split()) for row in re.split("^  --", engram("run", name, "--help").out, flags=re.M)]
    for control in controls(registry()[name]()):
        flag = ("no-" if control["value"] is True else "") + control["flag"]
        (row,) = (row for row in rows if row.split()[0] == flag)
        assert len(control["help"].split()) > 2, f"--{flag} has no explanation"
        assert control["help"] in row
        assert control["kind"] == "bool" or control["value"] in ("", []) or "[default: " in row


@pytest.mark.parametrize("name", RECIPES)
def test_metrics_are_lines_with_step_and_seconds(name, finished):
    lines = [json.loads(line) for line in (finished(name) / "metrics.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines]
    assert steps == sorted(steps)
    assert steps[-1] == registry()[name].from_preset("tiny").steps
    assert any(key.startswith("test_") for key in lines[-1])
    assert all({"step", "seconds"} < set(line) for line in lines)


@pytest.mark.parametrize("name", RECIPES)
def test_same_seed_same_run_other_seed_other_run(name, finished, tmp_path):
    tiny(name, tmp_path / "again")
    tiny(name, tmp_path / "other", seed=1)
    assert content(tmp_path / "again") == content(finished(name))
    other, first = content(tmp_path / "other"), content(finished(name))
    assert other["weights"] != first["weights"]
    assert other["metrics"] != first["metrics"]


@pytest.mark.parametrize("name", RECIPES)
def test_evaluating_more_often_changes_nothing(name, finished, tmp_path):
    tiny(name, tmp_path / "often", eval_every=5)
    assert content(tmp_path / "often")["weights"] == content(finished(name))["weights"]


@pytest.mark.parametrize("name", RECIPES)
def test_config_rebuilds_the_model_and_weights_fit(name, finished):
    config = json.loads((finished(name) / "config.json").read_text())
    cls = registry()[name].Model
    assert config.pop("architecture") == cls.__name__
    rebuilt = cls(from_json(cls.Config(), config))
    loaded = load(finished(name))
    rebuilt.load_state_dict(loaded.state_dict())
    run = Run.open(finished(name))
    for key, value in run.learner.model.state_dict().items():
        assert torch.equal(rebuilt.state_dict()[key], value), key


@pytest.mark.parametrize("name", RECIPES)
def test_loaded_model_gives_the_same_outputs(name, finished):
    run, loaded = Run.open(finished(name)), load(finished(name))
    outputs = []
    for model in (run.learner.model.eval(), loaded):
        with torch.no_grad(), watch(model) as seen:
            run.recipe.trace(model, run.data, 0)
        outputs.append(dict(seen))
    assert outputs[0].keys() == outputs[1].keys()
    assert all(torch.equal(outputs[0][key], outputs[1][key]) for key in outputs[0])


@pytest.mark.parametrize("name", RECIPES)
def test_weights_that_do_not_fit_are_named_one_by_one(name, finished, tmp_path):
    shutil.copytree(finished(name), tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "state")
    weights = safetensors.torch.load_file(tmp_path / "run" / "model.safetensors")
    first, *_ = weights
    extra = {**weights, first: torch.zeros(1, 1, 1, 1, 7), "stranger": torch.zeros(1)}
    safetensors.torch.save_file(extra, tmp_path / "run" / "model.safetensors")
    with pytest.raises(
        EngramError, match=f"stranger is not part of the model; {re.escape(first)} is .1, 1, 1, 1, 7. and"
    ):
        load(tmp_path / "run")


@pytest.mark.parametrize("name", RECIPES)
def test_catalog_entry_is_complete(name):
    cls = registry()[name]
    assert cls.name == name
    assert cls.title
    assert cls.part() in PARTS
    assert cls.__module__.split(".")[-2].replace("_", "-") == name  # its folder has its name
    assert cls.__doc__
    assert not cls.__doc__.startswith(cls.__name__ + "(")
    for preset, changes in cls.all_presets().items():
        flat = flatten(cls.from_preset(preset))
        assert all(flat[key] == value for key, value in changes.items())


def test_from_data_marks_are_not_flags(engram):
    assert FromData[int]
    text = engram("run", "mlp", "--help").out
    assert "--classes" not in text
    assert "--shape" not in text
