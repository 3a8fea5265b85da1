"""A recurrent network of LIF neurons: Brian2, interpreted and compiled, against engram, every spike the same."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from engram.cli import bench
from engram.cli.bench import Contestant
from engram.neurons.spiking_network.network import SpikingNetwork

EXTRA = "brian"
EXCITED, CALM, PROBABILITY, DELAY_MS = 3200, 800, 0.02, 1.5
STEPS, STEP_MS, TAU_MS, TAU_S_MS, WAIT_MS = 10_000, 0.1, 20.0, 5.0, 2.0
WEIGHT, STRONGER = 0.2, 5.0
WORK = f"{EXCITED + CALM} LIF neurons, {PROBABILITY:.0%} connected, 20% inhibitory, 1 s at {STEP_MS} ms"
UNIT = "simulated s/s"


def contestants() -> dict[str, Contestant]:
    N = EXCITED + CALM
    random = torch.Generator().manual_seed(0)
    input_N = (0.927 + 0.1 * torch.rand(N, dtype=torch.float64, generator=random)).numpy()
    v_N = torch.rand(N, dtype=torch.float64, generator=random).numpy()
    net = SpikingNetwork(step_ms=STEP_MS)
    # A neuron of Brian2 fires at the beginning of a step, and waits a step less.
    everyone = net.add_lif(N, tau_m_ms=TAU_MS, tau_ref_ms=WAIT_MS - STEP_MS, tau_s_ms=TAU_S_MS, input=input_N)
    exists_NN = torch.rand(N, N, generator=random) < PROBABILITY
    weight_NN = exists_NN.double() * WEIGHT
    weight_NN[EXCITED:] *= -STRONGER
    net.connect(everyone, everyone, weight=weight_NN, delay_ms=DELAY_MS)
    source_M, target_M = (one.numpy() for one in net.weights(everyone, everyone).nonzero(as_tuple=True))
    start = net.init_state(random)
    start.v_N[:] = v_N

    def theirs(b: Any) -> tuple[Any, Any]:
        group = b.NeuronGroup(
            N,
            "dv/dt = (s + u - v) / tau : 1 (unless refractory)\nds/dt = -s / tau_s : 1\nu : 1 (constant)",
            threshold="v >= 1",
            reset="v = 0",
            refractory=WAIT_MS * b.ms,
            method="exact",
            namespace={"tau": TAU_MS * b.ms, "tau_s": TAU_S_MS * b.ms},
        )
        group.u, group.v = input_N, v_N
        synapses = b.Synapses(group, group, "w : 1", on_pre="s += w", delay=DELAY_MS * b.ms)
        synapses.connect(i=source_M, j=target_M)
        synapses.w = np.where(source_M < EXCITED, WEIGHT, -STRONGER * WEIGHT) / TAU_S_MS
        monitor = b.SpikeMonitor(group)
        return b.Network(group, synapses, monitor), monitor

    lif = bench.load("lif")
    peers, spikes = lif.brian(theirs)
    lif.agree(net.step(start, STEPS)[1].spikes, spikes)

    def engrams() -> Callable[[], float]:
        def work() -> float:
            net.step(start, STEPS)
            return 1.0

        return work

    return {**peers, "engram": engrams}
