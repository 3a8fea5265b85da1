"""Word vectors on two threads."""

from engram.cli import bench
from engram.cli.bench import Contestant

WORK = f"{bench.load('word2vec').WORK}, on two threads"
UNIT = "words/s"


def contestants() -> dict[str, Contestant]:
    return bench.load("word2vec").contestants(workers=2)
