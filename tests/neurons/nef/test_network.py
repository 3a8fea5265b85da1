"""NEF networks, spike by spike beside Nengo, and beside the mathematics."""

import nengo
import numpy as np
import pytest
import torch

from engram.core.errors import EngramError
from engram.neurons.nef.ensemble import Ensemble
from engram.neurons.nef.network import NEFNetwork, NetworkObject, State

STEPS = 1500


def twin(sim, ensemble) -> Ensemble:
    """The same population as one of Nengo's."""
    built = sim.data[ensemble]
    model = Ensemble(Ensemble.Config(neurons=ensemble.n_neurons, dimensions=ensemble.dimensions))
    model.encoder_ND.copy_(torch.from_numpy(built.encoders))
    model.gain_N.copy_(torch.from_numpy(built.gain))
    model.bias_N.copy_(torch.from_numpy(built.bias))
    return model


def weights(sim, connection) -> torch.Tensor:
    return torch.from_numpy(np.array(sim.data[connection].weights).T.copy())


def began(net: NEFNetwork, sim, *ensembles) -> State:
    state = net.init_state()
    state.v_N[:] = np.concatenate([sim.model.sig[one.neurons]["voltage"].initial_value for one in ensembles])
    return state


def spiked(recording, steps: int, neurons: int) -> np.ndarray:
    """T × N, whether there was a spike in the step."""
    grid = np.zeros((steps, neurons), bool)
    step = np.ceil(np.round(recording.spikes.time_ms, 9)).astype(int) - 1
    grid[step, recording.spikes.neuron] = True
    return grid


def test_an_integrator_fires_exactly_as_nengos():
    with nengo.Network(seed=3) as theirs:
        node, ensemble = nengo.Node(lambda t: np.sin(6 * t)), nengo.Ensemble(200, 1)
        nengo.Connection(node, ensemble, transform=0.1, synapse=0.1)
        loop = nengo.Connection(ensemble, ensemble, synapse=0.1)
        seen, fired = nengo.Probe(ensemble, synapse=0.01), nengo.Probe(ensemble.neurons)
    with nengo.Simulator(theirs, progress_bar=False) as sim:
        sim.run_steps(STEPS)
    net = NEFNetwork()
    u, x = net.add_node(1), net.add_ensemble(twin(sim, ensemble))
    net.connect(u, x, transform=0.1, tau_synapse_ms=100)
    net.connect(x, x, decoders=weights(sim, loop), tau_synapse_ms=100)
    probe = net.add_probe(x, tau_synapse_ms=10)
    signal = torch.from_numpy(np.sin(6 * np.arange(1, STEPS + 1) * 0.001))[:, None]
    _, recording = net.step(began(net, sim, ensemble), {u: signal})
    assert np.array_equal(spiked(recording, STEPS, 200), sim.data[fired] > 0)
    assert np.abs(recording.probes[probe].numpy() - sim.data[seen]).mean() < 0.02  # decoders from other samples


def test_an_oscillator_and_a_second_population_fire_exactly_as_nengos():
    with nengo.Network(seed=5) as theirs:
        node = nengo.Node(lambda t: [1.0, 0.0] if t <= 0.1 else [0.0, 0.0])
        first, second = nengo.Ensemble(150, 2), nengo.Ensemble(80, 1)
        nengo.Connection(node, first)
        loop = nengo.Connection(first, first, transform=[[1, -0.6], [0.6, 1]], synapse=0.1)
        product = nengo.Connection(first, second, function=lambda x: x[0] * x[1], synapse=0.005)
        fired = [nengo.Probe(one.neurons) for one in (first, second)]
    with nengo.Simulator(theirs, progress_bar=False) as sim:
        sim.run_steps(STEPS)
    net = NEFNetwork()
    u, a, b = net.add_node(2), net.add_ensemble(twin(sim, first)), net.add_ensemble(twin(sim, second))
    net.connect(u, a, tau_synapse_ms=5)
    net.connect(a, a, decoders=weights(sim, loop), tau_synapse_ms=100)
    net.connect(a, b, decoders=weights(sim, product), tau_synapse_ms=5)
    signal = torch.zeros(STEPS, 2)
    signal[:100, 0] = 1
    _, recording = net.step(began(net, sim, first, second), {u: signal})
    both = np.concatenate([sim.data[one] > 0 for one in fired], 1)
    assert np.array_equal(spiked(recording, STEPS, 230), both)


def settled(net: NEFNetwork, probe: NetworkObject, inputs: dict[NetworkObject, float], steps: int = 600) -> float:
    held = {node: torch.full((steps, 1), value) for node, value in inputs.items()}
    _, recording = net.step(net.init_state(torch.Generator().manual_seed(0)), held, steps)
    return recording.probes[probe][-200:].mean().item()


@pytest.mark.parametrize("spiking", [True, False])
def test_a_channel_an_addition_and_a_product(spiking):
    net = NEFNetwork(spiking=spiking)
    u, w = net.add_node(1), net.add_node(1)
    pair = net.add_ensemble(Ensemble.Config(neurons=800, dimensions=2, radius=1.5))
    line = net.add_ensemble(Ensemble.Config(neurons=300, seed=1))
    net.connect(u, pair, transform=[[1.0], [0.0]], tau_synapse_ms=0)
    net.connect(w, pair, transform=[[0.0], [1.0]], tau_synapse_ms=0)
    net.connect(pair, line, function=lambda x: x[:, :1] + x[:, 1:], tau_synapse_ms=10)
    both, added = (
        net.add_probe(pair, lambda x: x[:, :1] * x[:, 1:], tau_synapse_ms=30),
        net.add_probe(line, tau_synapse_ms=30),
    )
    assert settled(net, both, {u: 0.8, w: -0.7}) == pytest.approx(-0.56, abs=0.05)
    assert settled(net, added, {u: 0.8, w: -0.5}) == pytest.approx(0.3, abs=0.05)


def test_rates_integrate():
    net = NEFNetwork(spiking=False)
    u, x = net.add_node(1), net.add_ensemble(Ensemble.Config(neurons=500))
    net.connect(u, x, transform=0.1, tau_synapse_ms=100)
    net.connect(x, x, tau_synapse_ms=100)
    probe = net.add_probe(x, tau_synapse_ms=5)
    signal = torch.zeros(2000, 1)
    signal[200:700] = 1.0  # half a second at one: the integral is a half
    _, recording = net.step(net.init_state(), {u: signal})
    assert recording.probes[probe][900].item() == pytest.approx(0.5, abs=0.03)
    assert recording.probes[probe][-1].item() == pytest.approx(recording.probes[probe][900].item(), abs=0.05)
    assert len(recording.spikes.time_ms) == 0


def test_the_rate_form_is_that_of_the_notes():
    """tau ds/dt = -s + rate(s) W + beta + C, with the whole matrix W, step by step."""
    net = NEFNetwork(spiking=False)
    u, x = net.add_node(1), net.add_ensemble(Ensemble.Config(neurons=40))
    net.connect(u, x, transform=0.1, tau_synapse_ms=50)
    net.connect(x, x, tau_synapse_ms=50)
    probe = net.add_probe(x, tau_synapse_ms=50)
    signal = torch.sin(torch.arange(300) / 30)[:, None]
    _, recording = net.step(net.init_state(), {u: signal})
    model = net.ensemble(x)
    D_N1, E_1N = model.solve_decoders(), model.encoder_ND.T * model.gain_N
    W_NN, kept = D_N1 @ E_1N, np.exp(-1 / 50)
    s_N, seen = torch.zeros(40, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    from engram.neurons.lif.model import firing_rate_hz

    for t in range(300):
        a_N = torch.from_numpy(firing_rate_hz((s_N + model.bias_N).numpy()))
        C_N = 0.1 * signal[t].double() @ E_1N
        s_N = kept * s_N + (1 - kept) * (a_N @ W_NN + C_N)
        seen = kept * seen + (1 - kept) * (a_N @ D_N1)
        assert recording.probes[probe][t].item() == pytest.approx(seen.item(), abs=1e-10)


def test_time_may_be_cut_anywhere():
    net = NEFNetwork()
    u, x = net.add_node(1), net.add_ensemble(Ensemble.Config(neurons=100))
    net.connect(u, x, tau_synapse_ms=5)
    net.connect(x, x, tau_synapse_ms=100)
    probe = net.add_probe(x)
    signal = torch.rand(400, 1, generator=torch.Generator().manual_seed(0))
    start = net.init_state(torch.Generator().manual_seed(1))
    whole, recording = net.step(start, {u: signal})
    state, parts = start, []
    for part in signal.split([1, 99, 300]):
        state, seen = net.step(state, {u: part})
        parts.append(seen.probes[probe])
    assert torch.equal(torch.cat(parts), recording.probes[probe])
    assert np.array_equal(state.v_N, whole.v_N)
    assert np.array_equal(state.refractory_N, whole.refractory_N)
    assert state.elapsed_steps == 400


def test_what_does_not_fit_is_refused():
    net = NEFNetwork()
    u, x = net.add_node(2), net.add_ensemble(Ensemble.Config(neurons=20))
    for words, bad in (
        ("without a transform", lambda: net.connect(u, x)),
        ("1×2", lambda: net.connect(u, x, transform=[[1.0], [2.0]])),
        ("tau_synapse_ms", lambda: net.connect(x, x, tau_synapse_ms=0)),
        ("ends in an ensemble", lambda: net.connect(x, u)),
        ("need an ensemble", lambda: net.connect(u, x, function=lambda v: v)),
        ("shape 5×2", lambda: net.step(net.init_state(), {u: torch.zeros(5, 1)})),
        ("tau_ref_ms", lambda: net.add_ensemble(Ensemble.Config(tau_ref_ms=0.5))),
        ("dimension", lambda: net.add_node(0)),
        ("step_ms", lambda: NEFNetwork(0.0)),
    ):
        with pytest.raises(EngramError, match=words):
            bad()


LONG, TURN = 4000, 2 * np.pi
LOOP = [[1, -0.1 * TURN], [0.1 * TURN, 1]]


def nengos_value(seed, dimensions, loop, signal_TD, gain, tau_ms):
    """What a population of Nengo's holds that hears itself, with neurons as it draws them."""
    with nengo.Network(seed=seed) as model:
        node = nengo.Node(lambda t: signal_TD[round(1000 * t) - 1])
        ensemble = nengo.Ensemble(1000, dimensions)
        nengo.Connection(node, ensemble, transform=gain, synapse=tau_ms / 1000)
        nengo.Connection(ensemble, ensemble, transform=loop, synapse=0.1)
        probe = nengo.Probe(ensemble, synapse=0.01)
    with nengo.Simulator(model, progress_bar=False) as simulator:
        simulator.run_steps(LONG)
        return simulator.data[probe]


def own_value(seed, dimensions, loop, signal_TD, gain, tau_ms):
    """The same with neurons as drawn here."""
    net = NEFNetwork()
    config = Ensemble.Config(neurons=1000, dimensions=dimensions, seed=seed)
    u, x = net.add_node(dimensions), net.add_ensemble(config)
    net.connect(u, x, transform=gain, tau_synapse_ms=tau_ms)
    net.connect(x, x, transform=loop, tau_synapse_ms=100)
    seen = net.add_probe(x, tau_synapse_ms=10)
    start = net.init_state(torch.Generator().manual_seed(seed))
    return net.step(start, {u: torch.from_numpy(signal_TD)})[1].probes[seen].numpy()


def test_an_integrator_drifts_no_more_than_nengos():
    pulse_TD = np.zeros((LONG, 1))
    pulse_TD[:500] = 1.2
    drifts = []
    for held in (nengos_value, own_value):
        values = [held(seed, 1, 1.0, pulse_TD, 0.1, 100.0)[:, 0] for seed in range(3)]
        drifts.append(np.mean([abs(x_T[-500:].mean() - x_T[1000:1500].mean()) for x_T in values]))
    theirs, mine = drifts
    assert mine < 1.5 * theirs + 0.005
    assert mine < 0.03


@pytest.mark.download
def test_an_oscillator_turns_as_regularly_as_nengos():
    kick_TD = np.zeros((LONG, 2))
    kick_TD[:100, 0] = 1
    errors = []
    for held in (nengos_value, own_value):
        apart = []
        for seed in range(3):
            y_TD = held(seed, 2, LOOP, kick_TD, 1.0, 5.0)[1000:]
            phase_T = np.unwrap(np.arctan2(y_TD[:, 1], y_TD[:, 0]))
            apart.append(abs((phase_T[-1] - phase_T[0]) / TURN / (len(phase_T) - 1) * 1000 - 1))
        errors.append(np.mean(apart))
    theirs, mine = errors
    assert mine < 1.5 * theirs + 0.002
    assert mine < 0.01


@pytest.mark.slow
def test_error_of_spikes_falls_with_the_root_of_the_number_of_neurons():
    counts, errors = (400, 1600), []
    for count in counts:
        square = []
        for seed in range(4):
            net = NEFNetwork()
            u, x = net.add_node(1), net.add_ensemble(Ensemble.Config(neurons=count, seed=seed))
            net.connect(u, x)
            seen = net.add_probe(x, tau_synapse_ms=20)
            for value in (-0.7, -0.2, 0.35, 0.8):
                start = net.init_state(torch.Generator().manual_seed(seed))
                held_TD = net.step(start, {u: torch.full((1500, 1), value)})[1].probes[seen]
                square.append((held_TD[500:] - value).square().mean().item())
        errors.append(np.sqrt(np.mean(square)))
    slope = np.log(errors[1] / errors[0]) / np.log(counts[1] / counts[0])
    assert slope == pytest.approx(-0.5, abs=0.15)
