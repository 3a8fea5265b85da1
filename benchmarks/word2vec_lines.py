"""Word vectors where sentences are short: lines of poetry."""

from engram.cli import bench
from engram.cli.bench import Contestant

WORK = f"skip-gram, one epoch of 1.9 million words of poetry in short lines: {bench.load('word2vec').SETTINGS}"
UNIT = "words/s"


def contestants() -> dict[str, Contestant]:
    speed = bench.load("word2vec")
    return speed.contestants(text=speed.Text("poetry", speed.POEMS))
