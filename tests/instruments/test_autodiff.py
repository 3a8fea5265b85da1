"""The expression graph of the lab: gradients as calculus has them, and no expression that brings it down."""

import math

import pytest

from engram.core.errors import EngramError


def test_gradients_are_those_of_calculus(call_endpoint):
    _, answer = call_endpoint("autodiff", text="x * y + sin(x)", values=[0.5, 2.0])
    found = {node["label"]: node for node in answer["nodes"]}
    assert answer["names"] == ["x", "y"]
    assert float(found["x"]["gradient"]) == pytest.approx(2 + math.cos(0.5), rel=1e-3)
    assert float(found["y"]["gradient"]) == pytest.approx(0.5)


def test_every_gradient_is_known_after_those_that_it_is_made_of(call_endpoint):
    _, answer = call_endpoint("autodiff", text="tanh(x) * tanh(x) + relu(y - x)")
    steps = [node["step"] for node in answer["nodes"]]
    assert sorted(steps) == list(range(len(steps)))
    for a, b in answer["edges"]:
        assert steps[a] > steps[b]


@pytest.mark.parametrize(
    ("text", "part"), [("x +", "x +"), ("3 + 4", "no variable"), ("__import__(1)", "_"), ("x" * 2000, "1000"), ("", "")]
)
def test_what_cannot_be_read_is_refused_in_a_sentence(call_endpoint, text, part):
    with pytest.raises(EngramError, match=None) as refused:
        call_endpoint("autodiff", text=text)
    assert part in str(refused.value)


def test_values_have_bounds(call_endpoint):
    with pytest.raises(EngramError, match="million"):
        call_endpoint("autodiff", values=[1e9])
