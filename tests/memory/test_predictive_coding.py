"""Predictive coding: its energy, its rest, its locality, and back-propagation as its limit."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.memory.predictive_coding.learner import InferenceConfig, PredictiveCodingLearner
from engram.memory.predictive_coding.model import PredictiveCoding
from engram.memory.predictive_coding.recipe import update_similarity
from engram.training.optimizer import OptimizerConfig


def network(sizes=(4, 6, 5, 3), seed=0, **changes):
    torch.manual_seed(seed)
    return PredictiveCoding(PredictiveCoding.Config(sizes=sizes, **changes)).double()


def values(model, count=7, seed=1):
    torch.manual_seed(seed)
    return [torch.randn(count, size, dtype=torch.float64) for size in model.config.sizes]


@pytest.mark.parametrize("activation", ["tanh", "relu", "softplus", "identity"])
@pytest.mark.parametrize("variance", [1.0, 0.4])
def test_values_are_pulled_down_the_gradient_of_the_energy(activation, variance):
    model = network(activation=activation, variance=variance, bottom_variance=2.5)
    x = [one.requires_grad_() for one in values(model)]
    slopes = torch.autograd.grad(model.state_at(x).F_B.sum(), x)
    state = model.state_at([one.detach() for one in x])
    for i, slope in enumerate(slopes):
        torch.testing.assert_close(model.value_derivative(state, i), -slope)


def test_energy_never_rises_while_values_settle():
    model = network()
    x, last = values(model), None
    for rounds in range(40):
        now = model.relax(x, (1, 2), rounds).F_B
        assert last is None or (now <= last + 1e-12).all()
        last = now


def test_what_is_clamped_stays_and_the_rest_comes_to_rest():
    model = network()
    x = values(model)
    state = model.relax(x, (1, 2), 3000, tolerance=1e-7)
    assert torch.equal(state.x[0], x[0])
    assert torch.equal(state.x[-1], x[-1])
    assert max(model.value_derivative(state, i).abs().max().item() for i in (1, 2)) < 1e-5


def test_rest_of_a_linear_network_is_the_solution_of_its_equations():
    """x_2 between two clamped layers: the weighted mean of what it is predicted to be and what predicts best."""
    model = network((4, 5, 3), activation="identity")
    x = values(model)
    M, above = model.M[0], model.predict_layer(1, x[2])
    A = torch.eye(5, dtype=torch.float64) + M @ M.T
    expected = torch.linalg.solve(A, (above + (x[0] - model.beta[0]) @ M.T).T).T
    found = model.relax(x, (1,), 5000, tolerance=1e-10).x[1]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_errors_at_rest_are_those_that_their_own_dynamics_reach():
    """(2), integrated."""
    model = network(bottom_variance=0.5)
    x = values(model)
    e = torch.zeros_like(x[0])
    for _ in range(4000):
        e = e + 0.01 * (x[0] - model.predict_layer(0, x[1]) - 0.5 * e)
    torch.testing.assert_close(model.state_at(x).e[0], e, rtol=1e-6, atol=1e-8)


def test_nothing_is_wrong_where_everything_is_as_predicted():
    model = network()
    top = torch.randn(5, 3, dtype=torch.float64)
    state = model.state_at(model.predict_all(top))
    assert state.F_B.abs().max() < 1e-20
    torch.testing.assert_close(model(top), model.predict_all(top)[0])


@pytest.mark.parametrize("tied", [True, False])
def test_updates_use_nothing_but_the_two_ends_of_a_connection(tied):
    """Everything else is replaced by rubbish, and what a connection learns stays the same."""
    model = network(tied=tied)
    learner = PredictiveCodingLearner(model, InferenceConfig(), OptimizerConfig(), 10)
    above, e = torch.randn(7, 5, dtype=torch.float64), torch.randn(7, 6, dtype=torch.float64)
    with torch.no_grad():
        first = learner._local_gradient(1, above, e)
        for weight in model.parameters():
            weight.copy_(torch.full_like(weight, float("nan")))
        second = learner._local_gradient(1, above, e)
    assert set(first) == {"M.1", "beta.1"} | (set() if tied else {"W.1"})
    assert all(torch.equal(first[name], second[name]) for name in first)
    torch.testing.assert_close(first["M.1"], -torch.tanh(above).T @ e / 7)


def test_values_hear_only_their_neighbors():
    """The pull on a layer does not change when a layer two away does."""
    model = network((4, 6, 5, 3, 2))
    x = values(model)
    before = model.value_derivative(model.state_at(x), 1)
    far = model.state_at([*x[:3], x[3] + 1, x[4] - 1])
    near = model.state_at(x)._replace(x=far.x, e=[*model.state_at(x).e[:2], *far.e[2:]])
    assert torch.equal(model.value_derivative(near, 1), before)


def test_back_propagation_is_the_limit():
    """The more the bottom may differ from its prediction, the more local updates are gradients, and as large."""
    model = network((4, 6, 5, 3))
    bottom, top = torch.randn(20, 4, dtype=torch.float64), torch.randn(20, 3, dtype=torch.float64)
    cosines = [update_similarity(model, bottom, top, times).min().item() for times in (1.0, 10.0, 10_000.0)]
    assert cosines[0] < cosines[1] < cosines[2]
    assert cosines[2] > 0.99999
    nu = 1e5
    model.config = replace(model.config, bottom_variance=nu)
    state, _ = model.infer_hidden(bottom, top, 2000)
    weights = [weight.detach().requires_grad_() for weight in model.M]
    x = top
    for i in reversed(range(3)):
        x = torch.addmm(model.beta[i], model.sigma(x), weights[i])
    gradients = torch.autograd.grad(0.5 * (bottom - x).square().sum(), weights)
    for i, gradient in enumerate(gradients):
        local = model.sigma(state.x[i + 1]).T @ state.e[i] * nu
        assert (local + gradient).norm() < 0.001 * gradient.norm()


@pytest.mark.slow
def test_feedback_that_learns_apart_comes_to_be_the_transpose():
    model = network((4, 6, 3), tied=False)
    model = model.float()
    learner = PredictiveCodingLearner(
        model, InferenceConfig(inference_steps=10), OptimizerConfig(lr=1e-2, weight_decay=0.2), 1500
    )

    def agreement():
        return F.cosine_similarity(model.W[0].flatten(), model.M[0].T.flatten(), dim=0).item()

    torch.manual_seed(3)
    before, map_ = agreement(), torch.randn(3, 4)
    for _ in range(1500):
        top = torch.randn(32, 3)
        learner.step({"bottom": torch.tanh(top) @ map_, "top": top})
    assert agreement() > max(0.8, before)


@pytest.mark.download
def test_learns_as_well_as_back_propagation():
    """The same network, batches and steps, on digits."""
    from engram import data

    digits = data.load("digits")
    X, Y = (digits.train["image"].flatten(1).float() / 255, F.one_hot(digits.train["label"], 10).float())
    accuracy = {}
    for learning in ("backprop", "predictive-coding"):
        model = network((10, 64, 64)).float()
        learner = PredictiveCodingLearner(
            model,
            InferenceConfig(learning=learning, inference_steps=10),
            OptimizerConfig(lr=3e-3, weight_decay=0.0),
            400,
        )
        torch.manual_seed(1)
        for _ in range(400):
            index = torch.randint(len(X), (64,))
            learner.step({"bottom": Y[index], "top": X[index]})
        with torch.no_grad():
            answer = model(digits.test["image"].flatten(1).float() / 255).argmax(1)
        accuracy[learning] = (answer == digits.test["label"]).float().mean().item()
    assert accuracy["predictive-coding"] > 0.88
    assert accuracy["predictive-coding"] > accuracy["backprop"] - 0.02


def test_the_top_is_inferred_from_the_bottom():
    model = network((20, 3), activation="identity")
    truth = torch.randn(6, 3, dtype=torch.float64)
    found = model.infer_top(model(truth), 3000)
    torch.testing.assert_close(found, truth, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(("field", "value"), [("sizes", (3,)), ("variance", 0.0), ("bottom_variance", -1.0)])
def test_bad_settings_are_named(field, value):
    with pytest.raises(EngramError, match=field):
        PredictiveCoding.Config(**{field: value})
