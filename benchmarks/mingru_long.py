"""minGRU over sequences of twice the length."""

from engram.cli import bench
from engram.cli.bench import Contestant

LENGTH = 4096
WORK = f"forward and backward of a recurrent layer, batch 8, width 256, length {LENGTH}"
UNIT = "steps/s"


def contestants() -> dict[str, Contestant]:
    return bench.load("mingru").contestants(LENGTH)
