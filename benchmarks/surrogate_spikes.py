"""A training step of a spiking classifier that sees spikes, where the first product is most of the work."""

from engram.cli import bench
from engram.cli.bench import Contestant

WORK = "training step of 784–1000–10 leaky neurons, 25 time steps, batch 128, images as random spikes"
UNIT = "images/s"


def contestants() -> dict[str, Contestant]:
    return bench.load("surrogate").contest("spikes")
