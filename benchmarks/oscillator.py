"""NEF oscillator: the Nengo reference simulator against engram, with the same neurons and identical spikes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engram.cli.bench import Contestant
from engram.core.errors import EngramError
from engram.neurons.nef.ensemble import Ensemble
from engram.neurons.nef.network import NEFNetwork, State

NEURONS, SECONDS = 1000, 10
WORK = f"an oscillator of {NEURONS} LIF neurons for {SECONDS} s at 1 ms; build time excluded"
UNIT = "simulated s/s"


def contestants() -> dict[str, Contestant]:
    turn = 2 * np.pi
    signal_TD = torch.zeros(1000 * SECONDS, 2)
    signal_TD[:100, 0] = 1
    return contest(signal_TD, loop=[[1, -0.1 * turn], [0.1 * turn, 1]], gain=1.0, input_tau_ms=5.0)


def contest(signal_TD: Tensor, *, loop: Any, gain: float, input_tau_ms: float) -> dict[str, Contestant]:
    """Both simulators of an ensemble with an input and a recurrent connection through a synapse of 100 ms."""
    import nengo

    steps, dimensions = signal_TD.shape
    values = signal_TD.numpy()
    with nengo.Network(seed=1) as theirs:
        node = nengo.Node(lambda t: values[round(1000 * t) - 1])
        ensemble = nengo.Ensemble(NEURONS, dimensions)
        nengo.Connection(node, ensemble, transform=gain, synapse=input_tau_ms / 1000)
        back = nengo.Connection(ensemble, ensemble, transform=loop, synapse=0.1)
        fired = nengo.Probe(ensemble.neurons)
        nengo.Probe(ensemble, synapse=0.01)
    checked = nengo.Simulator(theirs, progress_bar=False)
    checked.run_steps(steps)

    net = NEFNetwork()
    u, x = net.add_node(dimensions), net.add_ensemble(twin(checked, ensemble))
    net.connect(u, x, transform=gain, tau_synapse_ms=input_tau_ms)
    net.connect(x, x, decoders=torch.from_numpy(np.array(checked.data[back].weights).T.copy()), tau_synapse_ms=100)
    net.add_probe(x, tau_synapse_ms=10)
    start = net.init_state()
    start.v_N[:] = checked.model.sig[ensemble.neurons]["voltage"].initial_value
    agree(net, start, {u: signal_TD}, checked.data[fired] > 0)

    def nengos() -> Callable[[], float]:
        sim = nengo.Simulator(theirs, progress_bar=False)

        def work() -> float:
            sim.reset()
            sim.run_steps(steps)
            return SECONDS

        return work

    def engrams() -> Callable[[], float]:
        def work() -> float:
            net.step(start, {u: signal_TD})
            return SECONDS

        return work

    return {"Nengo": nengos, "engram": engrams}


def twin(sim: Any, ensemble: Any) -> Ensemble:
    """The ensemble with the encoders, gains and biases of a Nengo ensemble."""
    built = sim.data[ensemble]
    made = Ensemble(Ensemble.Config(neurons=ensemble.n_neurons, dimensions=ensemble.dimensions))
    for mine, other in ((made.encoder_ND, built.encoders), (made.gain_N, built.gain), (made.bias_N, built.bias)):
        mine.copy_(torch.from_numpy(other))
    return made


def agree(net: NEFNetwork, start: State, inputs: dict[Any, Any], theirs_TN: Any) -> None:
    _, recording = net.step(start, inputs)
    mine_TN = np.zeros_like(theirs_TN)
    mine_TN[np.ceil(np.round(recording.spikes.time_ms, 9)).astype(int) - 1, recording.spikes.neuron] = True
    if not np.array_equal(mine_TN, theirs_TN):
        raise EngramError(f"Spikes must be identical, and {(mine_TN != theirs_TN).sum()} differ.")
