"""The constructed network is within its error bound everywhere."""

import numpy as np
import pytest
import torch

from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.foundations.universal_approximation.learner import RefinementLearner
from engram.foundations.universal_approximation.model import Approximation


def build(function, eps, units):
    model = Approximation(Approximation.Config(function=function, units=units))
    learner = RefinementLearner(model, eps, generator(0))
    for _ in range(20):
        learner.step({})
    return model, learner


@pytest.mark.parametrize(
    ("function", "eps"),
    [("sin(6*x) + x^2", 0.05), ("abs(x - 0.3)", 0.01), ("exp(-10*(x-0.3)^2) * cos(20*x)", 0.1), ("sqrt(x)", 0.02),
     ("x", 0.003)],
)  # fmt: skip
def test_curves_are_within_the_guarantee_at_every_place(function, eps):
    model, learner = build(function, eps, 2000)
    assert model.bound <= eps
    x = np.concatenate([np.linspace(0, 1, 5001), learner.edges[0], learner.edges[0] + 1e-7]).clip(0, 1)
    error = model(torch.from_numpy(x)[:, None]).numpy() - model.config.expression().numbers(x=x)
    assert np.abs(error).max() <= model.bound


@pytest.mark.parametrize(("function", "eps"), [("x*y", 0.3), ("sin(3*x) * cos(3*y)", 0.6), ("abs(x - y)", 0.3)])
def test_surfaces_are_within_the_guarantee_also_at_corners(function, eps):
    model, learner = build(function, eps, 300)
    assert model.bound <= eps
    random = np.random.default_rng(0)
    corners = np.stack([random.choice(one, 300) for one in learner.edges], 1)
    x = np.concatenate([random.random((300, 2)), corners, corners + 1e-4 * random.standard_normal((300, 2))]).clip(0, 1)
    output = torch.cat([model(part) for part in torch.from_numpy(x).split(100)]).numpy()
    assert np.abs(output - model.config.expression().numbers(x=x[:, 0], y=x[:, 1])).max() <= model.bound


def test_it_is_a_sum_of_bumps():
    """(2): the steps are the bumps with the heights of their cells, added up."""
    model, learner = build("x^2", 0.2, 50)
    edges, k = torch.from_numpy(learner.edges[0]), model.k
    edges = edges.clone()
    edges[0], edges[-1] = -1.0, 3.0
    middle = (torch.from_numpy(learner.edges[0])[1:] ** 2 + torch.from_numpy(learner.edges[0])[:-1] ** 2) / 2
    x = torch.linspace(0, 1, 99, dtype=torch.float64)
    H = torch.sigmoid(k * (x[:, None] - edges))
    bumps = H[:, :-1] - H[:, 1:]
    torch.testing.assert_close(model(x[:, None]), bumps @ middle)


def test_too_few_units_are_told_apart_from_enough():
    model, _ = build("sin(30*x)", 0.01, 20)
    assert model.bound > 0.01
    assert int(model.used[0]) <= 20


@pytest.mark.parametrize(
    ("config", "says"),
    [({"function": "z"}, "of x"), ({"function": "sin("}, "cannot be read"), ({"units": 2}, "at least 4")],
)  # fmt: skip
def test_bad_settings_are_named(config, says):
    with pytest.raises(EngramError, match=says):
        Approximation.Config(**config)


def test_what_may_be_infinite_is_refused():
    with pytest.raises(EngramError, match="may be infinite"):
        build("1/x", 0.1, 100)
