"""Likelihoods of Boltzmann machines against going through all states."""

import math

import pytest
import torch

from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.memory.rbm.learner import ContrastiveDivergence, ContrastiveDivergenceConfig, ParallelTempering
from engram.memory.rbm.likelihood import ais_log_z, exact_log_z, log_likelihood, log_z, pseudo_likelihood
from engram.memory.rbm.model import RBM


def machine(visible=9, hidden=6, temperature=1.0, seed=0):
    torch.manual_seed(seed)
    rbm = RBM(RBM.Config(visible=visible, hidden=hidden, temperature=temperature))
    for weight in rbm.parameters():
        torch.nn.init.normal_(weight, std=0.7)
    return rbm


def states(units):
    return ((torch.arange(2**units)[:, None] >> torch.arange(units)) & 1).float()


@pytest.mark.parametrize(("visible", "hidden"), [(9, 6), (5, 8), (7, 7)])
@pytest.mark.parametrize("temperature", [1.0, 1.7])
def test_exact_log_z_is_the_sum_over_all_pairs_of_states(visible, hidden, temperature):
    rbm = machine(visible, hidden, temperature)
    v, h = states(visible), states(hidden)
    energy = torch.stack([rbm.energy(v, one.expand(len(v), -1)) for one in h]).double()
    assert exact_log_z(rbm).value == pytest.approx((-energy / temperature).flatten().logsumexp(0).item(), abs=1e-4)


@pytest.mark.parametrize("temperature", [1.0, 1.7])
def test_probabilities_of_all_states_sum_to_one(temperature):
    rbm = machine(temperature=temperature)
    assert log_likelihood(rbm, states(9), exact_log_z(rbm)).double().exp().sum().item() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_annealing_comes_within_a_tenth_of_a_nat(seed, temperature):
    rbm = machine(40, 12, temperature, seed)
    truth, found = exact_log_z(rbm).value, ais_log_z(rbm, generator(seed), chains=200, temperatures=2000)
    assert found.value == pytest.approx(truth, abs=0.1)
    assert found.low - 0.02 < truth < found.high + 0.02


def test_annealing_may_begin_near_the_data():
    rbm = machine(40, 12)
    found = ais_log_z(rbm, generator(0), chains=200, temperatures=2000, mean_V=torch.rand(40))
    assert found.value == pytest.approx(exact_log_z(rbm).value, abs=0.1)


def test_more_temperatures_narrow_the_interval():
    rbm = machine(40, 12)
    few, many = (ais_log_z(rbm, generator(0), temperatures=n) for n in (20, 2000))
    assert many.high - many.low < few.high - few.low


def test_small_machines_are_gone_through_and_large_ones_estimated():
    small = machine(30, 10)
    assert log_z(small, generator(0)) == exact_log_z(small)
    with pytest.raises(EngramError, match="too many"):
        exact_log_z(machine(40, 30))
    assert math.isfinite(log_z(machine(40, 30), generator(0), temperatures=50).value)


def test_pseudo_likelihood_is_the_sum_over_units():
    rbm = machine()
    v = (torch.rand(4, 9, generator=generator(1)) < 0.5).float()
    truth = torch.zeros(4)
    for i in range(9):
        other = v.clone()
        other[:, i] = 1 - other[:, i]
        both = torch.stack([-rbm.free_energy(v), -rbm.free_energy(other)])
        truth += both[0] - both.logsumexp(0)
    drawn = torch.stack([pseudo_likelihood(rbm, v, generator(i)) for i in range(3000)]).mean(0)
    torch.testing.assert_close(drawn, truth, rtol=0.05, atol=0.05)


def test_filling_in_keeps_what_is_known_and_draws_the_rest_as_it_should_be():
    """One unit is open: in the long run it is on as often as its probability given the others says."""
    rbm = machine(4, 3)
    v = torch.tensor([[1.0, 0.0, 1.0, 0.0]])
    on = v.clone()
    on[0, 3] = 1
    expected = torch.sigmoid(rbm.free_energy(v) - rbm.free_energy(on)).item()
    known = torch.tensor([[True, True, True, False]]).expand(4000, 4)
    found = rbm.inpaint(v.expand(4000, 4), known, 30, generator(0))
    assert torch.equal(found[:, :3], v.expand(4000, 4)[:, :3])
    assert found[:, 3].mean().item() == pytest.approx(expected, abs=0.03)


def test_tempered_chains_have_the_machines_distribution():
    """Each chain that of its own temperature, though they change places all the time."""
    rbm = machine(4, 3, seed=2)
    tempering = ParallelTempering(rbm, torch.zeros(4, 4000, 4))
    random = generator(0)
    for _ in range(60):
        tempering.step(random)
    v = states(4)
    for r, k in enumerate((1, 2 / 3, 1 / 3, 0)):
        p = torch.softmax(k * (v @ rbm.b) + torch.nn.functional.softplus(k * (v @ rbm.W + rbm.c)).sum(1), 0)
        number = (tempering.v_RBV[r] @ torch.tensor([1.0, 2.0, 4.0, 8.0])).long()
        found = number.bincount(minlength=16) / 4000
        assert (found - p).abs().max() < 0.03


def test_tempering_crosses_between_modes_where_a_single_chain_stays():
    """Two states that are far apart, with nothing probable between them."""
    rbm = RBM(RBM.Config(visible=8, hidden=1))
    rbm.W.fill_(6.0)
    rbm.b.fill_(-3.0)
    rbm.c.fill_(-24.0)  # all on and all off have the same free energy
    tempering, random = ParallelTempering(rbm, torch.zeros(10, 200, 8)), generator(1)
    alone = torch.zeros(200, 8)
    for _ in range(300):
        tempered = tempering.step(random)
        alone = rbm.gibbs(alone, 1, random)
    assert 0.3 < (tempered.mean(1) > 0.5).float().mean() < 0.7
    assert (alone.mean(1) > 0.5).float().mean() < 0.2


def test_tempered_learning_goes_on_exactly_where_it_stopped():
    def learner():
        torch.manual_seed(0)
        rbm = RBM(RBM.Config(visible=6, hidden=4))
        return ContrastiveDivergence(rbm, ContrastiveDivergenceConfig(temperatures=3), 5, 20, generator(0))

    torch.manual_seed(4)
    batches = [{"visible": torch.rand(5, 6).round()} for _ in range(6)]
    straight, first, second = learner(), learner(), learner()
    for batch in batches:
        straight.step(batch)
    for batch in batches[:3]:
        first.step(batch)
    second.model.load_state_dict(first.model.state_dict())
    second.load_state_dict(first.state_dict())
    for batch in batches[3:]:
        second.step(batch)
    assert torch.equal(straight.model.W, second.model.W)
