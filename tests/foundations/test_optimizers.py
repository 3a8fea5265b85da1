"""Optimizers against their update rules, written out."""

import numpy as np
import pytest
import torch

from engram.core.errors import EngramError
from engram.foundations.optimizers.learner import RaceLearner
from engram.foundations.optimizers.model import OPTIMIZERS, OptimizerRace

LR, ADAPTIVE, BETA = 0.02, 0.05, 0.9


def gradient(place):
    x, y = place
    return np.array([2 * x + y, 6 * y + x])


def run_optimizers(steps, noise=0.0):
    torch.manual_seed(0)
    model = OptimizerRace(OptimizerRace.Config(surface="x^2 + x*y + 3*y^2"))
    learner = RaceLearner(model, torch.tensor([[1.0, -2.0]]), LR, ADAPTIVE, BETA)
    given = [noise * torch.randn(1, 2) for _ in range(steps)]
    for one in given:
        learner.step({"noise": one})
    return learner, [one[0].numpy() for one in given]


def test_every_optimizer_follows_its_rule():
    learner, noise = run_optimizers(20, 0.5)
    place = {name: np.array([1.0, -2.0]) for name in OPTIMIZERS}
    v, u, m, w = (np.zeros(2) for _ in range(4))
    for t, off in enumerate(noise, 1):
        place["gd"] = place["gd"] - LR * gradient(place["gd"])
        place["sgd"] = place["sgd"] - LR * (gradient(place["sgd"]) + off)
        v = BETA * v + gradient(place["momentum"]) + off
        place["momentum"] = place["momentum"] - LR * v
        g = gradient(place["rmsprop"]) + off
        u = 0.99 * u + 0.01 * g * g
        place["rmsprop"] = place["rmsprop"] - ADAPTIVE * g / (np.sqrt(u) + 1e-8)
        g = gradient(place["adam"]) + off
        m, w = BETA * m + (1 - BETA) * g, 0.999 * w + 0.001 * g * g
        place["adam"] = place["adam"] - ADAPTIVE * (m / (1 - BETA**t)) / (np.sqrt(w / (1 - 0.999**t)) + 1e-8)
    for name in OPTIMIZERS[:-1]:
        np.testing.assert_allclose(learner.model.positions[name].detach().numpy()[0], place[name], atol=1e-4)


def test_muon_normalizes_its_steps():
    learner, _ = run_optimizers(10)
    way = torch.stack([one[OPTIMIZERS.index("muon")] for one in learner.path])
    lengths = way.diff(dim=0).norm(dim=1) / ADAPTIVE
    assert lengths.min() > 0.6
    assert lengths.max() < 1.3


def test_all_converge():
    learner, _ = run_optimizers(300)
    for name in OPTIMIZERS:
        height = learner.model(learner.model.positions[name].detach()).item()
        assert height < (0.02 if name in ("rmsprop", "muon") else 1e-3)


def test_an_optimizer_that_diverges_stops():
    model = OptimizerRace(OptimizerRace.Config(surface="x^4 + y^4"))
    learner = RaceLearner(model, torch.tensor([[10.0, 10.0]]), 1.0, 0.1, 0.9)
    for _ in range(20):
        learner.step({"noise": torch.zeros(1, 2)})
    assert all(torch.isfinite(place).all() for place in model.positions.values())


@pytest.mark.parametrize(("surface", "says"), [("z", "of x and y"), ("x +", "ends too early"), ("3", "of x and y")])
def test_bad_surfaces_are_named(surface, says):
    with pytest.raises(EngramError, match=says):
        OptimizerRace.Config(surface=surface)
