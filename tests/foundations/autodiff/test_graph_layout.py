"""Drawings: every Var once, arguments to the left, gradients in their order."""

import numpy as np

from engram.foundations.autodiff import Var, tanh
from engram.foundations.autodiff.graph_layout import layout_graph
from engram.foundations.autodiff.plots import graph


def test_everything_is_drawn_once_and_to_the_right_of_what_it_is_made_of():
    a, b = Var(2.0, "a"), Var(-3.0, "b")
    y = tanh(a * b + a) * 2
    drawing = layout_graph(y)
    assert [node.label for node in drawing.nodes] == ["a", "b", "×", "+", "tanh", "× 2"]
    assert len(drawing.edges) == 6
    for one, other in drawing.edges:
        assert drawing.nodes[one].column < drawing.nodes[other].column
    y.backward()
    assert drawing.nodes[0].gradient == f"{float(a.grad):.4g}"
    assert sorted(node.step for node in drawing.nodes) == list(range(6))
    assert drawing.nodes[-1].step == 0
    places = [(node.column, node.row) for node in drawing.nodes]
    assert len(set(places)) == len(places)


def test_arrays_are_drawn_as_their_shapes():
    W = Var(np.zeros((3, 4)), "W")
    drawing = layout_graph((np.ones((2, 3)) @ W).sum())
    assert [node.value for node in drawing.nodes] == ["3×4", "2×4", "0"]


def test_the_slider_has_a_step_for_every_gradient():
    x = Var(1.5, "x")
    figure = graph(x * x + x).plot
    assert len(figure.frames) == 4
    assert len(figure.frames[0].data[1].text) == 0
    assert len(figure.frames[3].data[1].text) == 3
