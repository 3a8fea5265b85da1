"""A spiking integrator: Nengo's reference simulator against engram, the same neurons, every spike the same."""

import torch

from engram import bench
from engram.bench import Contestant

NEURONS, SECONDS = 1000, 10
WORK = f"an integrator of {NEURONS} LIF neurons for {SECONDS} s at 1 ms; the simulators are built before"
UNIT = "simulated s/s"


def contestants() -> dict[str, Contestant]:
    t_s = torch.arange(1000 * SECONDS) / 1000
    return bench.load("oscillator").contest(torch.sin(t_s)[:, None], loop=1.0, drive=0.1, drive_tau_ms=100.0)
