"""Text generation with SmolLM2-135M, four texts at a time: each weight is read once for all of them."""

from engram.cli import bench
from engram.cli.bench import Contestant

BATCH = 4
base = bench.load("decode")
WORK = f"SmolLM2-135M, greedy, {BATCH} prompts of {base.PROMPT} and {base.NEW} new tokens each"
UNIT = "tokens/s"


def contestants() -> dict[str, Contestant]:
    made: dict[str, Contestant] = base.contest(
        lambda generate: lambda: base.generate_batch(generate, BATCH), limit=False
    )
    return made
