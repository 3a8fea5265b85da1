"""Word vectors on two threads."""

from engram import bench
from engram.bench import Contestant

WORK = f"{bench.load('word2vec').WORK}, on two threads"
UNIT = "words/s"


def contestants() -> dict[str, Contestant]:
    return bench.load("word2vec").contestants(workers=2)
