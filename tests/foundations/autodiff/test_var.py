"""Backpropagation through deep, wide and shared graphs."""

import numpy as np
import pytest

from engram.foundations.autodiff import Var, backpropagate, exp, gradients, no_grad, tanh, topological_order


def test_a_hundred_thousand_steps_deep():
    x = Var(1.0)
    y = x
    for _ in range(100_000):
        y = y * 1.00001
    y.backward()
    assert x.grad == pytest.approx(1.00001**100_000)
    del y  # and such an expression can be forgotten without a crash


def test_what_is_used_often_is_visited_once():
    """2^60 paths lead from y to x."""
    x = Var(1.0)
    y = x
    for _ in range(60):
        y = y + y
    assert len(topological_order(y)) == 61
    y.backward()
    assert x.grad == 2.0**60


def test_branches_that_meet_add_up():
    x = Var(np.array([1.0, 2.0]))
    a, b = x * 3, exp(x)
    (a * b + a).sum().backward()
    np.testing.assert_allclose(x.grad, 3 * np.exp(x.val) * (1 + x.val) + 3)


def test_gradients_add_up_until_they_are_forgotten():
    x = Var(2.0)
    y = x * x
    y.backward()
    y.backward()
    assert x.grad == 8
    y.zero_grad()
    assert x.grad is None
    y.backward(10.0)
    assert x.grad == 40


def test_every_var_knows_who_made_it():
    x = Var(2.0, "x")
    y = x * 3
    assert y.creator.args[0] is x
    assert y.creator.output is y
    assert x.creator is None
    assert repr(x) == "Var(x = 2.0)"


def test_gradients_become_known_from_the_last_to_the_first():
    x = Var(1.5)
    a = x * 2
    b = a + x
    y = a * b
    order = [one for one, _ in backpropagate(y, np.ones(()))]
    assert order == [y, b, a, x]


def test_nothing_is_remembered_under_no_grad():
    x = Var(2.0)
    with no_grad():
        y = x * x
    assert y.creator is None
    assert (x * x).creator is not None


def test_what_needs_no_gradient_gets_none():
    x, c = Var(np.ones(3)), Var(np.ones(3), requires_grad=False)
    (x * c).sum().backward()
    assert c.grad is None
    assert (c * 2).creator is None


def test_derivatives_of_derivatives():
    x = Var(0.3)
    y = tanh(x)
    d = [y.val]
    for _ in range(4):
        (y,) = gradients(y, x)
        d.append(y.val)
    t = np.tanh(0.3)
    s = 1 - t * t
    np.testing.assert_allclose(d, [t, s, -2 * t * s, s * (6 * t * t - 2), t * s * (16 - 24 * t * t)], rtol=1e-12)
    assert x.grad is None


def test_changing_one_gradient_leaves_the_others():
    a, b = Var(np.ones(3)), Var(np.ones(3))
    (a + b).sum().backward()
    a.grad *= 0
    assert b.grad.tolist() == [1, 1, 1]


def test_single_precision_stays_single():
    x = Var(np.ones(3, np.float32))
    y = (x * 2.5 + 1) ** 2 / 3
    y.sum().backward()
    assert y.val.dtype == np.float32
    assert x.grad.dtype == np.float32


def test_an_array_on_the_left_is_no_list_of_vars():
    x = Var(np.ones(3))
    y = np.arange(3.0) * x
    assert isinstance(y, Var)
    assert isinstance(np.ones((2, 3)) @ x, Var)
