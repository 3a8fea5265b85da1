"""The machine against the enumeration of all its states."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch

import engram
from engram.core.recipe import SampleRequest
from engram.core.seeding import generator
from engram.memory.rbm.learner import ContrastiveDivergence, ContrastiveDivergenceConfig
from engram.memory.rbm.model import RBM

V, H = 4, 3
ALL_V = torch.tensor(list(itertools.product([0.0, 1.0], repeat=V)))
ALL_H = torch.tensor(list(itertools.product([0.0, 1.0], repeat=H)))


def small(temperature=1.0, scale=1.0):
    torch.manual_seed(0)
    rbm = RBM(RBM.Config(visible=V, hidden=H, temperature=temperature))
    for parameter in (rbm.W, rbm.b, rbm.c):
        torch.nn.init.normal_(parameter, std=scale)
    return rbm


def joint(rbm):
    """P(v, h) by enumeration: 2^V × 2^H."""
    energy = torch.stack([rbm.energy(ALL_V, h.expand(len(ALL_V), -1)) for h in ALL_H], 1)
    return torch.softmax(-energy.flatten().double() / rbm.config.temperature, 0).view(len(ALL_V), len(ALL_H))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_conditionals_and_free_energy_equal_enumeration(temperature):
    rbm, p = small(temperature), joint(small(temperature))
    p_h_given_v = (p / p.sum(1, keepdim=True)) @ ALL_H.double()
    torch.testing.assert_close(rbm.prob_hidden(ALL_V).double(), p_h_given_v, rtol=1e-5, atol=1e-6)
    p_v_given_h = (p / p.sum(0)).T @ ALL_V.double()
    torch.testing.assert_close(rbm.prob_visible(ALL_H).double(), p_v_given_h, rtol=1e-5, atol=1e-6)
    p_v = torch.softmax(-rbm.free_energy(ALL_V).double() / temperature, 0)
    torch.testing.assert_close(p_v, p.sum(1), rtol=1e-5, atol=1e-7)


def test_energy_is_written_as_in_the_notes():
    rbm = small()
    v, h = ALL_V[5], ALL_H[6]
    expected = -(v @ rbm.W @ h) - rbm.b @ v - rbm.c @ h
    torch.testing.assert_close(rbm.energy(v[None], h[None])[0], expected)


def test_gibbs_sampling_visits_states_as_often_as_they_are_probable():
    rbm, count = small(), 40_000
    v = rbm.gibbs(torch.zeros(count, V), 50, generator(0))
    number = (v @ torch.tensor([8.0, 4.0, 2.0, 1.0])).long()
    found = torch.bincount(number, minlength=16).double() / count
    assert (found - joint(rbm).sum(1)).abs().max() < 5 * (0.25 / count) ** 0.5


def test_cd_update_is_the_difference_of_two_products():
    """One CD-1 step without momentum or decay, against the formula with the same random numbers."""
    rbm, other = small(), small()
    config = ContrastiveDivergenceConfig(persistent=False, centered=False, lr=0.1, lr_decay=False)
    learner = ContrastiveDivergence(rbm, config, batch=16, steps=10, generator=generator(3))
    learner.step({"visible": ALL_V})
    random = generator(3)
    H1 = torch.sigmoid(ALL_V @ other.W + other.c)
    h = (torch.rand(H1.shape, generator=random) < H1).float()
    p = torch.sigmoid(h @ other.W.T + other.b)
    v = (torch.rand(p.shape, generator=random) < p).float()
    H2 = torch.sigmoid(v @ other.W + other.c)
    torch.testing.assert_close(rbm.W, other.W + 0.1 * (ALL_V.T @ H1 - v.T @ H2) / 16)
    torch.testing.assert_close(rbm.b, other.b + 0.1 * (ALL_V - v).mean(0))
    torch.testing.assert_close(rbm.c, other.c + 0.1 * (H1 - H2).mean(0))


@pytest.mark.parametrize(
    "config",
    [
        ContrastiveDivergenceConfig(persistent=False),
        ContrastiveDivergenceConfig(persistent=False, gibbs_steps=5),
        ContrastiveDivergenceConfig(),
    ],
)
def test_learning_raises_the_exact_likelihood(config):
    """Data from a teacher: the machine comes close to the teacher's own log-likelihood."""
    teacher = small(scale=2.0)
    data = teacher.gibbs(torch.zeros(2000, V), 100, generator(1))
    torch.manual_seed(1)
    rbm = RBM(RBM.Config(visible=V, hidden=H))
    learner = ContrastiveDivergence(rbm, config, batch=100, steps=2000, generator=generator(2))

    def likelihood(machine):
        log_z = torch.logsumexp(-machine.free_energy(ALL_V), 0)
        return (-machine.free_energy(data) - log_z).mean().item()

    before = likelihood(rbm)
    for step in range(2000):
        learner.step({"visible": data[step % 20 * 100 : step % 20 * 100 + 100]})
    assert before < likelihood(teacher) - 0.3
    assert likelihood(rbm) > likelihood(teacher) - 0.05


def test_centered_updates_are_those_of_units_counted_from_their_means():
    """The machine with energy -(v - m) W (h - n)' - b (v - m)' - c (h - n)', whose plain update this is."""
    rbm, other = small(), small()
    config = ContrastiveDivergenceConfig(persistent=False, lr=0.1, lr_decay=False)
    learner = ContrastiveDivergence(rbm, config, batch=16, steps=10, generator=generator(3))
    learner.step({"visible": ALL_V})
    m, n, random = learner.means["visible"], learner.means["hidden"], generator(3)
    H1 = torch.sigmoid(ALL_V @ other.W + other.c)
    h = (torch.rand(H1.shape, generator=random) < H1).float()
    p = torch.sigmoid(h @ other.W.T + other.b)
    v = (torch.rand(p.shape, generator=random) < p).float()
    H2 = torch.sigmoid(v @ other.W + other.c)
    b, c = other.b + other.W @ n, other.c + other.W.T @ m  # the same machine, its biases as centered units need them
    W = other.W + 0.1 * ((ALL_V - m).T @ (H1 - n) - (v - m).T @ (H2 - n)) / 16
    b, c = b + 0.1 * (ALL_V - v).mean(0), c + 0.1 * (H1 - H2).mean(0)
    torch.testing.assert_close(rbm.W, W)
    torch.testing.assert_close(rbm.b, b - W @ n)
    torch.testing.assert_close(rbm.c, c - W.T @ m)


def test_rows_of_a_table_reach_the_entropy_of_their_distribution(tmp_path, monkeypatch):
    """Two equal fair columns and an independent one of 80 %: the log-likelihood is -(log 2 + H(0.8)) at best."""
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "cache"))
    random = np.random.default_rng(0)
    a, c = random.random(3000) < 0.5, random.random(3000) < 0.8
    frame = pd.DataFrame({"a": 7.0 * a, "b": np.where(a, "yes", "no"), "c": 0.5 - 3.0 * c})  # integers would be classes
    settings = {"hidden": 6, "steps": 1500, "eval_every": 1500, "out": tmp_path / "run", "quiet": True}
    run = engram.run("rbm", data=frame, **settings)
    # "b" is one-hot: two visible units that exclude each other
    entropy = math.log(2) - 0.8 * math.log(0.8) - 0.2 * math.log(0.2)
    assert run.metrics["test_log_likelihood"] == pytest.approx(-entropy, abs=0.15)
    assert {"Weights", "Samples"} <= {figure.title for figure in run.figures()}
    sampled = run.run.recipe.sample(run.run.learner, run.run.data, SampleRequest(200, generator(0, "sample")))
    rows = [line.split(",") for line in sampled.text.splitlines()]
    assert rows[0] == ["a", "b", "c"]
    agree = np.mean([(float(a) > 3.5) == (b == "yes") for a, b, _ in rows[1:]])
    assert agree > 0.9
