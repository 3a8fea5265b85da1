"""Hodgkin–Huxley neurons: Brian2, interpreted and compiled, against engram, second-order accurate at the same cost."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from engram.cli import bench
from engram.cli.bench import Contestant
from engram.core.errors import EngramError
from engram.neurons.hodgkin_huxley.model import THRESHOLD_MV, HodgkinHuxley
from engram.neurons.spikes import Spikes

EXTRA = "brian"
NEURONS, SECONDS, STEP_MS = 1000, 0.1, 0.01
APART_MS = 0.8
"""how far spikes may be from each other: after 0.1 s Brian2 is 0.63 ms late, and 0.063 ms with a tenth of the step"""
WORK = f"{NEURONS} Hodgkin–Huxley neurons, each with its own constant current, {SECONDS} s at {STEP_MS} ms"
UNIT = "simulated s/s"

EQUATIONS = """
dv/dt = (J - 120 * m**3 * h * (v - 50) - 36 * n**4 * (v + 77) - 0.3 * (v + 54.387)) / ms : 1
dm/dt = (alpha_m * (1 - m) - beta_m * m) / ms : 1
dh/dt = (alpha_h * (1 - h) - beta_h * h) / ms : 1
dn/dt = (alpha_n * (1 - n) - beta_n * n) / ms : 1
alpha_m = 1 / exprel(-(v + 40) / 10) : 1
beta_m = 4 * exp(-(v + 65) / 18) : 1
alpha_h = 0.07 * exp(-(v + 65) / 20) : 1
beta_h = 1 / (1 + exp(-(v + 35) / 10)) : 1
alpha_n = 0.1 / exprel(-(v + 55) / 10) : 1
beta_n = 0.125 * exp(-(v + 65) / 80) : 1
J : 1 (constant)
"""


def contestants() -> dict[str, Contestant]:
    J_N = np.linspace(8.0, 40.0, NEURONS)
    model = HodgkinHuxley(HodgkinHuxley.Config(neurons=NEURONS, step_ms=STEP_MS))
    J_TN = torch.from_numpy(J_N).expand(round(1000 * SECONDS / STEP_MS), -1)

    def theirs(b: Any) -> tuple[Any, Any]:
        above = f"v > {THRESHOLD_MV}"
        group = b.NeuronGroup(NEURONS, EQUATIONS, threshold=above, refractory=above, method="exponential_euler")
        group.J = J_N
        group.v, group.m, group.h, group.n = model.init_state()[:, 0].tolist()
        monitor = b.SpikeMonitor(group)
        return b.Network(group, monitor), monitor

    peers, spikes = bench.load("lif").brian(theirs, SECONDS, STEP_MS)
    agree(model.simulate_spikes(model.init_state(), J_TN)[1], spikes)

    def engrams() -> Callable[[], float]:
        def work() -> float:
            model.simulate_spikes(model.init_state(), J_TN)
            return SECONDS

        return work

    return {**peers, "engram": engrams}


def agree(mine: Spikes, theirs: Spikes) -> None:
    for i in range(NEURONS):
        a, b = mine.train(i), theirs.train(i)
        both = min(len(a), len(b))
        if abs(len(a) - len(b)) > 1 or np.abs(a[:both] - b[:both]).max(initial=0) > APART_MS:
            raise EngramError(f"Neuron {i} fires at {a} and at {b} ms.")
