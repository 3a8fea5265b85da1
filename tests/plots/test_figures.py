"""Figures hold the numbers that they claim to show."""

import ast
import base64
import io
import re

import numpy as np
import pytest
import torch
from PIL import Image

from engram.core.registry import get_recipe
from engram.neurons.nef.ensemble import Ensemble
from engram.neurons.nef.plots import decoding_errors
from engram.plots import images, page
from engram.plots.classification import confusion, mistakes
from engram.plots.curves import curves
from engram.plots.figure import COLORS, Figure, line, plot
from engram.plots.network import activation_figures
from engram.plots.report import command, headline, python


def test_grid_puts_every_image_in_its_place():
    image = torch.arange(5, dtype=torch.uint8)[:, None, None, None].expand(5, 1, 2, 3) * 10
    whole = images.grid(image, columns=3, gap=1)
    assert whole.shape == (6, 12, 4)
    assert [whole[3 * (i // 3), 4 * (i % 3), 0].item() for i in range(5)] == [0, 10, 20, 30, 40]
    assert whole[..., 3].sum() == 5 * 2 * 3 * 255
    decoded = np.asarray(Image.open(io.BytesIO(images.png(whole, scale=2))))
    assert (decoded[::2, ::2] == whole.numpy()).all()


def test_color_images_keep_their_colors():
    red = torch.zeros(1, 3, 2, 2)
    red[:, 0] = 1
    assert images.grid(red, gap=0)[0, 0].tolist() == [255, 0, 0, 255]


def test_confusion_counts():
    logits = torch.eye(3)[[0, 0, 1, 2, 2]]
    label = torch.tensor([0, 1, 1, 2, 0])
    heat = confusion(logits, label, ("a", "b", "c")).plot.data[0]
    assert np.array(heat.customdata).tolist() == [[1, 0, 1], [1, 1, 0], [0, 0, 1]]


def test_mistakes_are_the_surest_first():
    logits = torch.tensor([[2.0, 0.0], [9.0, 0.0], [0.0, 1.0]])
    figure = mistakes(torch.zeros(3, 1, 4, 4, dtype=torch.uint8), logits, torch.tensor([1, 1, 1]), ("no", "yes"))
    assert figure.caption.startswith("2 of 2 errors")
    assert [note.text for note in figure.plot.layout.annotations] == ["yes → no", "yes → no"]
    none = mistakes(torch.zeros(1, 1, 4, 4), logits[2:], torch.tensor([1]), ("no", "yes"))
    assert none.caption == "No test image is misclassified."


def test_mistakes_with_long_names_take_two_lines():
    logits, label = torch.tensor([[2.0, 0.0]]), torch.tensor([1])
    figure = mistakes(torch.zeros(1, 1, 4, 4, dtype=torch.uint8), logits, label, ("Sneaker", "Ankle boot"))
    assert figure.plot.layout.annotations[0].text == "Ankle boot<br>→ Sneaker"


def test_ten_classes_have_ten_colors():
    assert len(set(COLORS)) == 10


def test_curves_of_what_does_not_learn_speak_of_time():
    metrics = [{"step": 1, "rate_hz": 3.0}, {"step": 1, "valid_rate_hz": 2.0}, {"step": 1, "test_rate_hz": 2.0}]
    (figure,) = curves(metrics, learns=False)
    assert [trace.name for trace in figure.plot.data] == ["since last evaluation", "so far", "whole run"]
    assert headline(metrics, learns=False) == {"rate hz": "2"}


@pytest.mark.parametrize("dimensions", [1, 2])
def test_errors_are_measured_on_other_values_than_decoders_are_made_from(dimensions, monkeypatch):
    drawn, eval_points = [], Ensemble.eval_points
    monkeypatch.setattr(Ensemble, "eval_points", lambda *args: drawn.append(eval_points(*args)) or drawn[-1])
    decoding_errors(Ensemble.Config(neurons=20, dimensions=dimensions))
    tested, *made = drawn
    assert made
    for learnt in made:
        assert torch.isin(tested, learnt).sum() <= 2  # the ends of an interval are in both


def test_curves_show_training_validation_and_test_of_one_quantity_together():
    metrics = [
        {"step": 1, "loss": 3.0},
        {"step": 2, "loss": 2.0},
        {"step": 2, "valid_loss": 2.5, "valid_gradient.a": 0.1, "valid_gradient.b": 10.0},
        {"step": 2, "test_loss": 2.6},
    ]
    learning, flow = curves(metrics)
    assert [trace.name for trace in learning.plot.data] == ["training", "validation", "test"]
    assert list(learning.plot.data[0].y) == [3.0, 2.0]
    assert np.allclose(flow.plot.data[0].z, [[-1], [1]])
    assert list(flow.plot.data[0].y) == ["a", "b"]
    assert list(curves([])) == []


def test_activations_are_drawn_by_shape():
    seen = {
        "map": torch.rand(1, 5, 4, 4),
        "units": torch.rand(1, 7),
        "few": torch.rand(10, 2),
        "many": torch.rand(10, 30),
        "scalar": torch.tensor(2.0),
    }
    kinds = {figure.title: figure.plot.data[0].type for figure in activation_figures(seen)}
    assert kinds == {"map": "image", "units": "bar", "few": "scatter", "many": "heatmap", "scalar": "bar"}


def test_filters_of_dense_layers_become_images():
    figure = images.filters(torch.rand(3, 12), (1, 3, 4))
    source = figure.plot.data[0].source.partition(",")[2]
    assert Image.open(io.BytesIO(base64.b64decode(source))).width > 4


def test_a_page_cannot_be_broken_out_of():
    evil = Figure("<b>title</b>", "</script><script>alert(1)</script>", plot(line([0], [1], "</script>")))
    text = page.page("<i>", "&", page.figures([evil]), page.table("t", {"<k>": "<v>"}), page.code("c", "<x>")).decode()
    body = text[text.index("<body>") : text.index("<script>/**") if "<script>/**" in text else None]
    assert "<b>title" not in text
    assert "alert(1)</script>" not in text
    assert "<v>" not in body
    assert re.search(r'application/json" id="figure-0">[^<]*(?:<\\/script>)?[^<]*</script>', text)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "engram run cnn"),
        ({"lr": 0.5, "channels": (4, 8, 8)}, "engram run cnn --channels 4 8 8 --lr 0.5"),
        ({"preset": "tiny", "flip_kernel": True}, "engram run cnn --preset tiny --flip-kernel"),
        ({"data": "my pictures"}, "engram run cnn --data 'my pictures'"),
    ],
)
def test_the_command_that_does_it_again(changes, expected):
    recipe = get_recipe("cnn").from_preset(changes.pop("preset", "small"), **changes)
    assert command(recipe) == expected
    (call,) = [node.value for node in ast.parse(python(recipe)).body if isinstance(node, ast.Expr)]
    given = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    assert get_recipe("cnn").from_preset(given.pop("preset", "small"), **given) == recipe


def test_headline_prefers_the_test():
    metrics = [{"step": 1, "loss": 1.0, "valid_accuracy": 0.5}, {"step": 2, "test_accuracy": 0.25}]
    assert headline(metrics) == {"test accuracy": "25.00%"}
    assert headline(metrics[:1]) == {"valid accuracy": "50.00%"}
