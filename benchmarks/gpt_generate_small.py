"""Autoregressive generation with a small GPT of characters, where overhead costs as much as matrix products."""

from typing import Any

from engram.cli import bench
from engram.cli.bench import Contestant

NEW = 256
WORK = f"GPT-2 of 6 layers of 384 on 65 characters, greedy, {NEW} new tokens, batch 1; last row: bandwidth limit"
UNIT = "tokens/s"
SIZE: dict[str, Any] = {"vocab_size": 65, "n_positions": 512, "n_embd": 384, "n_layer": 6, "n_head": 6}


def contestants() -> dict[str, Contestant]:
    return bench.load("gpt-generate").contest(SIZE, NEW)
