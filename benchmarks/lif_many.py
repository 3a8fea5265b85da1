"""More independent LIF neurons, where arithmetic costs Brian2 more than its interpreter does."""

from engram import bench
from engram.bench import Contestant

EXTRA = "brian"
NEURONS = 10_000
WORK = f"{NEURONS} independent LIF neurons under constant inputs of their own, 1 s at 0.1 ms"
UNIT = "simulated s/s"


def contestants() -> dict[str, Contestant]:
    return bench.load("lif").contestants(NEURONS)
