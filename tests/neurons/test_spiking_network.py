"""Spiking networks, beside a dense simulation in NumPy, closed forms, and the neurons alone."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.linalg import expm

from engram.core.errors import EngramError
from engram.neurons.hodgkin_huxley.model import HodgkinHuxley, detect_spikes
from engram.neurons.lif.model import LIF
from engram.neurons.spiking_network import network
from engram.neurons.spiking_network.network import SpikingNetwork


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_network(shortest_ms: float = 0.0) -> SpikingNetwork:
    """Groups of unequal neurons with three delays."""
    net, g = SpikingNetwork(step_ms=0.5), generator(4)
    first = net.add_lif(30, input=1.3, tau_m_ms=np.linspace(10, 30, 30), tau_ref_ms=2.0, tau_s_ms=4.0)
    second = net.add_lif(10, input=1.1, tau_m_ms=15.0, tau_ref_ms=1.0, tau_s_ms=15.0)
    net.connect(first, second, weight=1.5, probability=0.4, delay_ms=1.5 + shortest_ms, generator=g)
    net.connect(second, first, weight=-1.0, probability=0.5, delay_ms=shortest_ms, generator=g)
    net.connect(first, first, weight=torch.rand(30, 30, generator=g) - 0.4, delay_ms=4.0 + shortest_ms)
    return net


def dense(net: SpikingNetwork, steps: int, delays: dict[float, torch.Tensor]) -> list[tuple[int, int]]:
    """(step, neuron) of all spikes, from matrices and loops in plain sight."""
    rows = {name: np.concatenate([row[name] for row in net._rows]) for name in net._rows[0]}
    v, s, wait = np.zeros(net.neurons), np.zeros(net.neurons), np.zeros(net.neurons)
    found, history = [], []
    of_each = zip(rows["tau_m_ms"], rows["tau_s_ms"], rows["input"], strict=True)
    grow = [expm(net.step_ms * np.array([[-1 / m, 1 / m, u / m], [0, -1 / q, 0], [0, 0, 0]])) for m, q, u in of_each]
    for t in range(steps):
        for i in range(net.neurons):
            grown = grow[i] @ np.array([v[i], s[i], 1.0])
            if wait[i] == 0:
                v[i] = grown[0]
            else:
                wait[i] -= 1
            s[i] = grown[1]
        fired = v >= 1
        v[fired] = 0
        wait[fired] = np.round(rows["tau_ref_ms"] / net.step_ms)[fired]
        found += [(t, i) for i in np.nonzero(fired)[0]]
        history.append(fired)
        for delay_ms, W in delays.items():
            then = t - round(delay_ms / net.step_ms)
            if then >= 0:
                s += (history[then] @ W.numpy()) / rows["tau_s_ms"]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("shortest_ms", [0.0, 0.5, 3.0, 20.0])
def test_spikes_are_those_of_a_dense_simulation(shortest_ms, monkeypatch):
    monkeypatch.setattr(network, "WIDE", 16)  # several blocks, of which the last is not full
    net = random_network(shortest_ms)
    first, second = net.groups
    delays = {ms + shortest_ms: torch.zeros(40, 40, dtype=torch.float64) for ms in (0.0, 1.5, 4.0)}
    delays[1.5 + shortest_ms][first.numbers, second.numbers] = net.weights(first, second)
    delays[shortest_ms][second.numbers, first.numbers] = net.weights(second, first)
    delays[4.0 + shortest_ms][first.numbers, first.numbers] = net.weights(first, first)
    _, recording = net.step(net.init_state(), 600)
    ordered = recording.spikes.sort_by_time()
    found = sorted(zip(np.round(ordered.time_ms / 0.5).astype(int) - 1, ordered.neuron, strict=True))
    assert len(found) > 200
    assert found == dense(net, 600, delays)


def test_without_connections_neurons_are_alone():
    v_in = np.linspace(0.5, 3, 12)
    net = SpikingNetwork(step_ms=0.1)
    net.add_lif(12, input=v_in, tau_ref_ms=1.5)
    _, recording = net.step(net.init_state(), 3000, record=range(12))
    alone = LIF(LIF.Config(neurons=12, exact=False, tau_ref_ms=1.5))
    _, v_TN, spiked = alone.step(alone.state, torch.from_numpy(v_in).expand(3000, -1))
    assert recording.spikes.neuron.tolist() == spiked.neuron.tolist()
    np.testing.assert_allclose(recording.spikes.time_ms, spiked.time_ms, atol=1e-9)
    torch.testing.assert_close(recording.v_TR, v_TN, atol=1e-9, rtol=0)


@pytest.mark.parametrize("tau_s_ms", [3.0, 20.0, 20.0 * (1 + 1e-7)])
def test_one_spike_is_heard_as_the_differential_equations_say(tau_s_ms):
    net = SpikingNetwork(step_ms=0.1)
    loud = net.add_lif(1, input=torch.tensor([1.5]).numpy())
    quiet = net.add_lif(1, tau_s_ms=tau_s_ms)
    net.connect(loud, quiet, weight=3.0, delay_ms=2.0)
    _, recording = net.step(net.init_state(), 400, record=[1])
    heard = round(recording.spikes.train(0)[0] / 0.1) - 1 + 20  # the step at whose end the spike arrives
    assert (recording.s_TR[:heard] == 0).all()
    assert recording.s_TR[heard, 0].item() == pytest.approx(3.0 / tau_s_ms, rel=1e-12)
    solved = solve_ivp(lambda t, x: [(x[1] - x[0]) / 20, -x[1] / tau_s_ms], (0, 5), [0, 3.0 / tau_s_ms], rtol=1e-10,
                       atol=1e-12).y[:, -1]  # fmt: skip
    assert recording.v_TR[heard + 50, 0].item() == pytest.approx(solved[0], rel=1e-7)
    assert recording.s_TR[heard + 50, 0].item() == pytest.approx(solved[1], rel=1e-7)


def test_hodgkin_huxley_neurons_alone_and_connected():
    model = HodgkinHuxley(HodgkinHuxley.Config(neurons=20))
    J = torch.linspace(0, 40, 20, dtype=torch.float64)
    net = SpikingNetwork(step_ms=0.01)
    quiet = net.add_lif(3, tau_s_ms=2.0)
    loud = net.add_hodgkin_huxley(model, input=J.numpy())
    net.connect(loud, quiet, weight=0.7, delay_ms=1.0)
    _, recording = net.step(net.init_state(), 5000, record=range(net.neurons))
    _, alone_T4N = model.step(model.state, J.expand(5000, -1))
    assert torch.equal(recording.v_TR[:, 3:], alone_T4N[:, 0])
    times_ms, who = detect_spikes(torch.cat([model.init_state()[None, 0], alone_T4N[:, 0]]).numpy(), 0.01)
    late = who[np.lexsort([times_ms, who])] + 3
    assert recording.spikes.neuron[recording.spikes.neuron >= 3].tolist() == late.tolist()
    arrived = (recording.spikes.time_ms[recording.spikes.neuron >= 3] + 1.0 <= 50 + 1e-9).sum()
    heard = recording.s_TR[:, 0].diff() > 0.3
    assert 0 < heard.sum() <= arrived


def test_hodgkin_huxley_neurons_hear_each_other():
    model = HodgkinHuxley(HodgkinHuxley.Config(neurons=2))
    net = SpikingNetwork(step_ms=0.01)
    pair = net.add_hodgkin_huxley(model, input=np.array([15.0, 0.0]), tau_s_ms=2.0)
    _, silent = net.step(net.init_state(), 3000)
    net.connect(pair, pair, weight=torch.tensor([[0.0, 60.0], [0.0, 0.0]]))
    _, heard = net.step(net.init_state(), 3000)
    assert len(silent.spikes.train(1)) == 0
    assert len(heard.spikes.train(1)) >= 1
    assert heard.spikes.train(0).tolist() == silent.spikes.train(0).tolist()


@pytest.mark.parametrize("shortest_ms", [0.0, 3.0])
def test_time_may_be_cut_anywhere(shortest_ms):
    net = random_network(shortest_ms)
    net.add_poisson_input(net.groups[0], rate_hz=200.0, weight=0.5)
    whole_state, whole = net.step(net.init_state(generator(1)), 500, record=[0, 35])
    state, times, who, v = net.init_state(generator(1)), [], [], []
    for steps in (1, 5, 6, 188, 300):
        began_ms = state.elapsed_steps * net.step_ms
        state, part = net.step(state, steps, record=[0, 35])
        times += (part.spikes.time_ms + began_ms).tolist()
        who += part.spikes.neuron.tolist()
        v.append(part.v_TR)
    order = np.lexsort([times, who])
    np.testing.assert_allclose(np.array(times)[order], whole.spikes.time_ms, atol=1e-9)
    assert np.array(who)[order].tolist() == whole.spikes.neuron.tolist()
    assert torch.equal(torch.cat(v), whole.v_TR)
    assert np.array_equal(state.v_N, whole_state.v_N)
    assert state.random[0] == whole_state.random[0]


def test_more_spikes_than_there_was_room_for():
    net = SpikingNetwork(step_ms=0.1)
    net.add_lif(600, input=500.0, tau_ref_ms=0.0)
    _, recording = net.step(net.init_state(), 50)
    assert len(recording.spikes.time_ms) == 600 * 50


def test_an_input_of_ones_own():
    net = SpikingNetwork(step_ms=0.1)
    net.add_lif(2, input=0.5)
    extra_TN = torch.zeros(1000, 2)
    extra_TN[:, 1] = 1.0
    _, recording = net.step(net.init_state(), 1000, input_TN=extra_TN)
    assert len(recording.spikes.train(0)) == 0
    assert len(recording.spikes.train(1)) > 2
    with pytest.raises(EngramError, match="1000×2"):
        net.step(net.init_state(), 1000, input_TN=extra_TN[:, :1])


def test_poisson_spikes_have_their_rate_and_its_variance():
    net = SpikingNetwork(step_ms=0.1)
    group = net.add_lif(50, tau_s_ms=10.0)
    net.add_poisson_input(group, rate_hz=800.0, weight=0.01)
    state, _ = net.step(net.init_state(generator(2)), 2000)
    _, recording = net.step(state, 50_000, record=range(50))
    assert len(recording.spikes.time_ms) == 0
    expected = 0.8 * 0.01  # spikes in a ms, each of area 0.01
    assert recording.s_TR.mean().item() == pytest.approx(expected, rel=0.01)
    assert recording.s_TR.var().item() == pytest.approx(0.8 * 0.01**2 / (2 * 10.0), rel=0.05)  # Campbell


def test_chance_connects_as_many_as_it_should():
    net = SpikingNetwork()
    group, other = net.add_lif(500), net.add_lif(400)
    net.connect(group, other, weight=1.0, probability=0.05, generator=generator())
    assert net.synapses == pytest.approx(10_000, abs=4 * math.sqrt(9500))
    into = (net.weights(group, other) != 0).sum(0).float()
    assert into.var().item() == pytest.approx(500 * 0.05 * 0.95, rel=0.3)
    before = net.synapses
    net.connect(other, other, weight=1.0)
    assert net.synapses - before == 400 * 399
    assert net.weights(other, other).diagonal().abs().sum() == 0
    net.connect(group, group, weight=2.0, probability=0.0, generator=generator())
    assert net.weights(group, group).abs().sum() == 0


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")  # which torch calls beta
def test_a_sparse_matrix_is_the_dense_one():
    W = torch.where(torch.rand(6, 7, generator=generator()) < 0.3, 1.5, 0.0)
    for weight in (W, W.to_sparse_coo(), W.to_sparse_csr(), W.numpy()):
        net = SpikingNetwork()
        a, b = net.add_lif(6), net.add_lif(7)
        net.connect(a, b, weight=weight)
        assert torch.equal(net.weights(a, b), W.double())
        assert net.synapses == (W != 0).sum()


def test_what_cannot_be_is_refused():
    net = SpikingNetwork()
    with pytest.raises(EngramError, match="no neurons"):
        net.step(net.init_state(), 1)
    group = net.add_lif(3)
    for changes, words in (
        ({"weight": torch.zeros(2, 3)}, "3×3"),
        ({"weight": 1.0, "probability": 1.5}, "probability"),
        ({"weight": 1.0, "delay_ms": -1.0}, "delay_ms"),
        ({"weight": torch.full((3, 3), torch.nan)}, "finite"),
    ):
        with pytest.raises(EngramError, match=words):
            net.connect(group, group, **changes)
    with pytest.raises(EngramError, match="tau_m_ms"):
        net.add_lif(3, tau_m_ms=0.0)
    with pytest.raises(EngramError, match="one number or 3"):
        net.add_lif(3, input=np.zeros(4))
    with pytest.raises(EngramError, match="rate_hz"):
        net.add_poisson_input(group, rate_hz=-1.0, weight=1.0)
    with pytest.raises(EngramError, match="numbered"):
        net.step(net.init_state(), 1, record=[3])
    with pytest.raises(EngramError, match="step of"):
        net.add_hodgkin_huxley(HodgkinHuxley())
    with pytest.raises(EngramError, match="step_ms"):
        SpikingNetwork(step_ms=0.0)


def test_scipys_sparse_matrices_are_taken():
    from scipy import sparse

    W = sparse.random(20, 30, 0.2, format="csr", random_state=0)
    net = SpikingNetwork()
    source, target = net.add_lif(20), net.add_lif(30)
    net.connect(source, target, weight=W)
    assert np.array_equal(net.weights(source, target).numpy(), W.toarray())


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"weight": math.nan}, "weight"),
        ({"weight": torch.ones(5, 5), "probability": 0.1}, "probability"),
        ({"weight": 1.0, "delay_ms": math.nan}, "delay_ms"),
        ({"weight": 1.0, "delay_ms": -1.0}, "delay_ms"),
        ({"weight": 1.0, "probability": 1.5}, "probability"),
    ],
)
def test_connections_that_make_no_sense_are_refused(wrong, word):
    net = SpikingNetwork()
    group = net.add_lif(5)
    with pytest.raises(EngramError, match=word):
        net.connect(group, group, **wrong)


def test_more_synapses_than_there_is_memory_for_are_refused():
    net = SpikingNetwork()
    group = net.add_lif(1_000_000)
    with pytest.raises(EngramError, match="synapses"):
        net.connect(group, group, weight=1.0, probability=0.5)


def test_a_state_from_before_a_connection_is_refused():
    net = SpikingNetwork(step_ms=0.1)
    group = net.add_lif(5, input=1.5)
    before = net.init_state()
    net.connect(group, group, weight=1.0, delay_ms=2.0)
    with pytest.raises(EngramError, match="init_state"):
        net.step(before, 10)


def test_refractory_times_and_steps_are_not_negative():
    net = SpikingNetwork()
    with pytest.raises(EngramError, match="tau_ref_ms"):
        net.add_lif(3, tau_ref_ms=-1.0)
    net.add_lif(3)
    with pytest.raises(EngramError, match="steps"):
        net.step(net.init_state(), -5)
