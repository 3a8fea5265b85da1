"""Hopfield networks: energy, rules against their closed forms, capacity, and attention."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.core.tap import watch
from engram.memory.base import capacity, recalled_by_load
from engram.memory.hopfield.model import Hopfield, HopfieldLearner, sign
from engram.memory.modern_hopfield.model import ModernHopfield

RULES = ("hebb", "gradient", "pseudo-inverse", "storkey")


def patterns(M, N, seed=0):
    return sign(torch.randn(M, N, generator=generator(seed)))


def network(N):
    return Hopfield(Hopfield.Config(units=N))


# ---------------------------------------------------------------------- storing


def test_hebb_is_the_formula_whether_at_once_or_one_by_one():
    X = patterns(7, 20)
    W = X.T @ X / 7 - torch.eye(20)
    torch.testing.assert_close(network(20).store(X).W, W)
    slowly = network(20)
    for x in X.split(2):
        slowly.store(x)
    torch.testing.assert_close(slowly.W, W)


def test_gradient_goes_down_the_energy_of_the_patterns():
    """(5) is minus the gradient of the mean energy, of which only pairs of different units count, each twice."""
    X, model = patterns(5, 12), network(12)
    W = torch.zeros(12, 12, requires_grad=True)
    energy = (-0.5 * ((X @ W) * X).sum(1)).mean()
    (slope,) = torch.autograd.grad(energy, W)
    HopfieldLearner(model, "gradient", lr=0.3).step({"pattern": X})
    torch.testing.assert_close(model.W, -2 * 0.3 * slope * (1 - torch.eye(12)))


def test_gradient_for_as_long_as_its_time_constant_is_hebb():
    X, model = patterns(5, 12), network(12)
    storage = HopfieldLearner(model, "gradient", lr=0.1)
    for _ in range(10):
        storage.step({"pattern": X})
    torch.testing.assert_close(model.W, network(12).store(X).W)


def test_pseudo_inverse_projects_on_the_patterns():
    X = patterns(15, 40)
    W = torch.linalg.pinv(X) @ X
    torch.testing.assert_close(network(40).store(X, "pseudo-inverse").W, W.fill_diagonal_(0), rtol=1e-4, atol=1e-5)


def test_what_is_known_already_changes_nothing():
    X = patterns(6, 30)
    model = network(30)
    storage = HopfieldLearner(model, "pseudo-inverse")
    storage.step({"pattern": X})
    before = model.W.clone()
    storage.step({"pattern": X[:2]})
    torch.testing.assert_close(model.W, before, rtol=1e-4, atol=1e-5)


def test_storkeys_rule_unit_by_unit():
    X, N = patterns(4, 9), 9
    W = torch.zeros(N, N)
    for x in X:
        new = W.clone()
        for i in range(N):
            for j in range(N):
                if i != j:
                    h_ij = sum(W[i, k] * x[k] for k in range(N) if k not in (i, j))
                    h_ji = sum(W[j, k] * x[k] for k in range(N) if k not in (i, j))
                    new[i, j] += (x[i] * x[j] - x[i] * h_ji - h_ij * x[j]) / N
        W = new
    torch.testing.assert_close(network(N).store(X, "storkey").W, W, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rule", RULES)
def test_weights_are_symmetric_without_diagonal(rule):
    W = network(25).store(patterns(5, 25), rule).W
    torch.testing.assert_close(W, W.T)
    assert not W.diagonal().any()


# ---------------------------------------------------------------------- recall


@given(st.integers(2, 40), st.integers(1, 12), st.integers(0, 10_000), st.sampled_from(RULES))
@settings(max_examples=60, deadline=None)
def test_energy_never_rises_one_unit_after_the_other(N, M, seed, rule):
    model = network(N).store(patterns(M, N, seed), rule)
    model.b.copy_(0.3 * torch.randn(N, generator=generator(seed, "bias")))
    found = model.recall(patterns(5, N, seed + 1), generator(seed))
    assert (found.energy.diff(dim=1) <= 1e-4).all()
    torch.testing.assert_close(found.energy[:, -1], model.energy(found.x).double(), rtol=1e-3, atol=1e-3)
    assert (found.cycle == 1).all()
    resting = found.x @ model.W + model.b
    assert (sign(resting) == found.x).logical_or(resting.abs() < 1e-4).all()


@pytest.mark.parametrize("rule", RULES)
def test_flips_one_by_one_are_those_of_recall(rule):
    model, x = network(30).store(patterns(6, 30), rule), patterns(1, 30, 5)
    found, sweeps = model.recall(x, generator(3)), 0
    for sweep, unit in model.flips(x[0], generator(3)):
        x[0, unit] *= -1
        sweeps = sweep + 1
    assert torch.equal(x, found.x)
    assert sweeps == found.sweeps


def test_energy_is_its_definition():
    model, x = network(6).store(patterns(3, 6)), patterns(4, 6, 9)
    model.b.copy_(torch.randn(6))
    pairs = sum(x[:, i] * model.W[i, j] * x[:, j] for i in range(6) for j in range(6))
    torch.testing.assert_close(model.energy(x), -0.5 * pairs - x @ model.b)


def test_zero_input_makes_plus_one():
    assert network(3).recall(-torch.ones(1, 3)).x.tolist() == [[1, 1, 1]]


@pytest.mark.parametrize("rule", RULES)
def test_patterns_come_back(rule):
    X = patterns(8, 200)
    cue = torch.where(torch.rand(X.shape, generator=generator(3)) < 0.15, -X, X)
    assert torch.equal(network(200).store(X, rule).recall(cue, generator(4)).x, X)


def test_all_at_once_can_go_to_and_fro():
    """Two units that each want to be what the other is not."""
    model = network(2)
    model.W.copy_(torch.tensor([[0.0, -1.0], [-1.0, 0.0]]))
    found = model.recall(torch.ones(1, 2), synchronous=True)
    assert found.cycle.tolist() == [2]
    alone = model.recall(torch.ones(1, 2), generator(0))
    assert alone.cycle.tolist() == [1]
    assert alone.x.sum() == 0


def test_all_at_once_comes_to_rest_at_patterns():
    X = patterns(5, 100)
    found = (
        network(100)
        .store(X)
        .recall(torch.where(torch.rand(X.shape, generator=generator(0)) < 0.1, -X, X), synchronous=True)
    )
    assert torch.equal(found.x, X)
    assert (found.cycle == 1).all()
    assert found.energy.shape[1] > found.sweeps.max()


def test_too_little_time_is_said():
    model = network(100).store(patterns(30, 100))
    found = model.recall(patterns(20, 100, 5), generator(0), sweeps=1)
    assert set(found.sweeps.tolist()) <= {0, 1}
    assert (found.cycle[found.sweeps == 1] == 0).all()


def test_same_seed_same_way():
    model = network(60).store(patterns(20, 60))
    cue = patterns(10, 60, 8)
    assert torch.equal(model.recall(cue, generator(1)).x, model.recall(cue, generator(1)).x)
    assert not torch.equal(model.recall(cue, generator(1)).x, model.recall(cue, generator(2)).x)


def test_states_of_another_size_are_refused():
    with pytest.raises(EngramError, match="rows of 5 units"):
        network(5).recall(torch.ones(1, 4))


@pytest.mark.slow
@pytest.mark.parametrize("units", [1000, 2000])
def test_capacity_is_near_the_theorys(units):
    assert capacity(recalled_by_load(units, generator(0), 2)) == pytest.approx(0.138, rel=0.1)


# ---------------------------------------------------------------------- modern


def test_a_step_is_the_formula_and_is_attention():
    X, s = torch.randn(30, 8), torch.randn(5, 8)
    model = ModernHopfield.from_patterns(X, beta=0.7)
    expected = torch.softmax(0.7 * s @ X.T, -1) @ X
    torch.testing.assert_close(model(s), expected)
    with watch(model, "weights") as seen:
        torch.testing.assert_close(model(s), expected)
    torch.testing.assert_close(seen["weights"][0, 0], torch.softmax(0.7 * s @ X.T, -1))


def test_a_step_is_one_downhill_on_the_energy():
    """(2) is s minus the gradient of (1): the lowest place of the concave part's tangent."""
    model = ModernHopfield.from_patterns(torch.randn(30, 8), beta=0.7)
    s = torch.randn(5, 8, requires_grad=True)
    (slope,) = torch.autograd.grad(model.energy(s).sum(), s)
    torch.testing.assert_close(model(s), (s - slope).detach())


@given(st.integers(1, 50), st.integers(1, 20), st.floats(0.01, 5), st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_energy_of_continuous_states_never_rises(M, N, beta, seed):
    model = ModernHopfield.from_patterns(torch.randn(M, N, generator=generator(seed)), beta)
    found = model.recall(torch.randn(4, N, generator=generator(seed + 1)), 6)
    assert (found.energy.diff(dim=1) <= 1e-3).all()


def test_ten_thousand_patterns_in_64_dimensions():
    X = patterns(10_000, 64)
    model = ModernHopfield.from_patterns(X)
    cue = torch.where(torch.rand(1000, 64, generator=generator(1)) < 0.1, -X[:1000], X[:1000])
    assert ((model.recall(cue).x - X[:1000]).abs().amax(1) < 0.05).float().mean() >= 0.99


def test_room_is_limited():
    model = ModernHopfield(ModernHopfield.Config(units=4, patterns=3))
    with pytest.raises(EngramError, match="Nothing is stored"):
        model(torch.ones(1, 4))
    model.store(torch.ones(2, 4))
    with pytest.raises(EngramError, match="room for 3"):
        model.store(torch.ones(2, 4))
