"""A prompt of 512 tokens and one new token with SmolLM2-135M: the products are of many rows, bound by arithmetic."""

from collections.abc import Callable
from typing import Any

from engram.cli import bench
from engram.cli.bench import Contestant

LENGTH = 512
WORK = f"SmolLM2-135M, prompt of {LENGTH} tokens and one new token"
UNIT = "tokens/s"


def contestants() -> dict[str, Contestant]:
    base = bench.load("decode")

    def work(generate: Any) -> Callable[[], float]:
        def prefill() -> float:
            generate(base.prompts(1, LENGTH), 1)
            return LENGTH

        return prefill

    made: dict[str, Contestant] = base.contest(work, limit=False)
    return made
