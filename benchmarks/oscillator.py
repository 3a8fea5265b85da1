"""Spiking populations: Nengo's reference simulator against engram, the same neurons, every spike the same."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engram.bench import Contestant
from engram.core.errors import EngramError
from engram.neurons.dynamics import Assembly, State
from engram.neurons.population import Population

NEURONS, SECONDS = 1000, 10
WORK = f"an oscillator of {NEURONS} LIF neurons for {SECONDS} s at 1 ms; the simulators are built before"
UNIT = "simulated s/s"


def contestants() -> dict[str, Contestant]:
    turn = 2 * np.pi
    signal_TD = torch.zeros(1000 * SECONDS, 2)
    signal_TD[:100, 0] = 1
    return contest(signal_TD, loop=[[1, -0.1 * turn], [0.1 * turn, 1]], drive=1.0, drive_tau_ms=5.0)


def contest(signal_TD: Tensor, *, loop: Any, drive: float, drive_tau_ms: float) -> dict[str, Contestant]:
    """A population that hears itself through a matrix and 100 ms, and a signal, in both simulators."""
    import nengo

    steps, dimensions = signal_TD.shape
    values = signal_TD.numpy()
    with nengo.Network(seed=1) as theirs:
        node = nengo.Node(lambda t: values[round(1000 * t) - 1])
        ensemble = nengo.Ensemble(NEURONS, dimensions)
        nengo.Connection(node, ensemble, transform=drive, synapse=drive_tau_ms / 1000)
        back = nengo.Connection(ensemble, ensemble, transform=loop, synapse=0.1)
        fired = nengo.Probe(ensemble.neurons)
        nengo.Probe(ensemble, synapse=0.01)
    checked = nengo.Simulator(theirs, progress_bar=False)
    checked.run_steps(steps)

    net = Assembly()
    u, x = net.input(dimensions), net.population(twin(checked, ensemble))
    net.connect(u, x, transform=drive, tau_ms=drive_tau_ms)
    net.connect(x, x, decoders=torch.from_numpy(np.array(checked.data[back].weights).T.copy()), tau_ms=100)
    net.probe(x, tau_ms=10)
    start = net.rest()
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


def twin(sim: Any, ensemble: Any) -> Population:
    """The same population."""
    built = sim.data[ensemble]
    made = Population(Population.Config(neurons=ensemble.n_neurons, dimensions=ensemble.dimensions))
    for mine, other in ((made.encoder_ND, built.encoders), (made.gain_N, built.gain), (made.bias_N, built.bias)):
        mine.copy_(torch.from_numpy(other))
    return made


def agree(net: Assembly, start: State, inputs: dict[Any, Any], theirs_TN: Any) -> None:
    _, recording = net.step(start, inputs)
    mine_TN = np.zeros_like(theirs_TN)
    mine_TN[np.ceil(np.round(recording.spikes.time_ms, 9)).astype(int) - 1, recording.spikes.neuron] = True
    if not np.array_equal(mine_TN, theirs_TN):
        raise EngramError(f"Every spike is to be the same, and {(mine_TN != theirs_TN).sum()} are not.")
