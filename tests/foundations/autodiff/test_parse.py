"""Typed expressions against Python's own arithmetic, and what is refused."""

import contextlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engram.foundations.autodiff import Var
from engram.foundations.autodiff.parse import FUNCTIONS, Expression, ExpressionError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7), ("(1 + 2) * 3", 9), ("-2^2", -4), ("2^-1", 0.5), ("2^3^2", 512), ("8 / 4 / 2", 1),
        ("1 - 2 - 3", -4), ("--3", 3), ("2**3", 8), ("sin(pi/2) + e^0", 2), ("1.5e2 + .5", 150.5), ("sqrt(9)", 3),
    ],
)  # fmt: skip
def test_numbers(text, expected):
    assert Expression(text)() == pytest.approx(expected)


def test_variables_and_functions():
    function = Expression("sin(3*x) + x^2/2 - tanh(y)")
    assert function.names == ("x", "y")
    assert function(x=0.3, y=2.0) == pytest.approx(math.sin(0.9) + 0.045 - math.tanh(2))
    x = np.linspace(0, 1, 5)
    np.testing.assert_allclose(function.numbers(x=x, y=x), np.sin(3 * x) + x**2 / 2 - np.tanh(x))
    np.testing.assert_allclose(Expression("2").numbers(x=x), 2)


def test_of_vars_it_is_an_expression_with_gradients():
    x = Var(0.7)
    Expression("x^x * exp(-x)")(x=x).backward()
    value = 0.7**0.7 * math.exp(-0.7)
    assert x.grad == pytest.approx(value * (math.log(0.7) + 1 - 1))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"), ("1 +", "ends too early"), ("(1", "not closed"), ("1 2", "not expected"),
        ("f(x)", "no function \"f\""), ("sin x", "needs brackets"), ("x.__class__", "means nothing"),
        ("__import__(os)", "no function"), ("x; y", "means nothing"), ("[1]", "means nothing"), ("*", "not expected"),
        ("(" * 80 + "1" + ")" * 80, "levels deep"), ("1" + "^1" * 80, "levels deep"), ("x" * 2000, "at most 1000"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(text, says):
    with pytest.raises(ExpressionError, match=says):
        Expression(text)


def test_a_value_that_is_missing_is_named():
    with pytest.raises(ExpressionError, match="value for y"):
        Expression("x + y")(x=1)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(ExpressionError):
        Expression(text)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
@given(a=st.floats(0.01, 6), width=st.floats(0, 5))
def test_bounds_hold_for_every_function(name, a, width):
    function = Expression(f"{name}(x)")
    x = np.linspace(a, a + width, 200)
    bounds = function.within(x=(a, a + width))
    values = function.numbers(x=x)
    assert (values >= bounds.low - 1e-12).all()
    assert (values <= bounds.high + 1e-12).all()
    assert bounds.high <= values.max() + 0.02 * (1 + width) * max(1, abs(values).max())


@given(st.floats(-3, 3), st.floats(0, 2), st.floats(-3, 3), st.floats(0, 2))
def test_bounds_hold_for_arithmetic(a, b, c, d):
    function = Expression("x*y - x^3 + (x - y)^2 / (1 + y^2) + 2^x - cos(x*y)")
    x, y = np.meshgrid(np.linspace(a, a + b, 15), np.linspace(c, c + d, 15))
    bounds = function.within(x=(a, a + b), y=(c, c + d))
    values = function.numbers(x=x, y=y)
    assert values.min() >= bounds.low - 1e-9
    assert values.max() <= bounds.high + 1e-9


def test_what_may_be_infinite_is():
    bounds = Expression("1/x").within(x=(-1, 1))
    assert (bounds.low, bounds.high) == (-np.inf, np.inf)
