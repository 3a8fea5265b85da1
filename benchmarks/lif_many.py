"""More independent LIF neurons, where arithmetic costs Brian2 more than its interpreter does."""

from engram.cli import bench
from engram.cli.bench import Contestant

EXTRA = "brian"
NEURONS = 10_000
WORK = f"{NEURONS} independent LIF neurons, each with its own constant input, 1 s at 0.1 ms"
UNIT = "simulated s/s"


def contestants() -> dict[str, Contestant]:
    return bench.load("lif").contestants(NEURONS)
