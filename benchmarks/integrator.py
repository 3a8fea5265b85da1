"""NEF integrator: the Nengo reference simulator against engram, with the same neurons and identical spikes."""

import torch

from engram.cli import bench
from engram.cli.bench import Contestant

NEURONS, SECONDS = 1000, 10
WORK = f"an integrator of {NEURONS} LIF neurons for {SECONDS} s at 1 ms; build time excluded"
UNIT = "simulated s/s"


def contestants() -> dict[str, Contestant]:
    t_s = torch.arange(1000 * SECONDS) / 1000
    return bench.load("oscillator").contest(torch.sin(t_s)[:, None], loop=1.0, gain=0.1, input_tau_ms=100.0)
