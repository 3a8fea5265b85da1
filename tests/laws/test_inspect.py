"""What `engram inspect` shows: views that say what they are of, and that leave the model as it was."""

import pytest
import torch

from engram.core.registry import registry
from engram.core.seeding import isolated_eval
from engram.neurons.base import SimulationMixin
from engram.training.run import Run

TIMED = sorted(name for name, recipe in registry().items() if issubclass(recipe, SimulationMixin))


def look(path, **asked):
    """The line and the figures, and the run."""
    run = Run.open(path)
    with isolated_eval(run.learner.model, 0):
        said, figures = run.recipe.inspect(run.learner.model, run.data, run.recipe.InspectArgs(**asked))
    return said, {figure.title: figure for figure in figures}, run


@pytest.mark.parametrize("name", TIMED)
def test_time_has_a_unit(name, finished):
    _, figures, _ = look(finished(name))
    axes = {figure.plot.layout.xaxis.title.text for figure in figures.values()}
    assert axes & {"time (ms)", "time (s)"}
    assert "step" not in axes


@pytest.mark.parametrize("name", TIMED)
def test_looking_leaves_the_run_where_it_was(name, finished):
    before = Run.open(finished(name)).learner.model.state_dict()
    _, _, run = look(finished(name))
    for key, value in run.learner.model.state_dict().items():
        assert torch.equal(value, before[key]), key


@pytest.mark.parametrize("name", sorted(set(TIMED) - {"spiking-network"}))
def test_the_last_moment_can_be_looked_at(name, finished):
    run = Run.open(finished(name))
    last = run.recipe.total_steps - 1
    said, _, _ = look(finished(name), item=last)
    assert f"from {last * run.recipe.model.step_ms:g} ms on" in said


def test_a_spiking_classifier_shows_its_spikes_for_the_item_asked(finished):
    said, figures, run = look(finished("spiking-classifier"), item=3)
    assert said.startswith("test image 3,")
    assert list(figures) == ["Image", "Spikes, layer 0", "Outputs over time"]
    assert f"True class: {run.data.classes[int(run.data.test['label'][3])]}." in figures["Outputs over time"].caption


def test_clip_says_how_alike_a_text_and_a_picture_are(finished):
    said, figures, run = look(finished("clip"), text="a small red circle")
    image = run.data.data.test["image"][torch.tensor([0])].float() / 255
    with torch.no_grad():
        u = run.learner.model.encode_images(image)
        w = run.recipe.encode_texts(run.learner.model, run.data, ["a small red circle"])
    assert said.endswith(f"cosine similarity {(u @ w.T).item():.2f}")
    assert "the inspected image (green) ranks" in figures["Images for texts"].caption
    assert {"Attention of every head: image encoder", "Attention of every head: text encoder"} <= set(figures)


def test_a_transformer_shows_every_stack(finished):
    _, figures, _ = look(finished("translate"))
    for view in ("Attention of every head", "Attention arcs"):
        assert {f"{view}: encoder", f"{view}: decoder"} <= set(figures)
    parts = ("encoder", "decoder self-attention", "decoder cross-attention")
    assert {f"Head ablation: {part}" for part in parts} <= set(figures)
