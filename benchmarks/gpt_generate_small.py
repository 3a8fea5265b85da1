"""Text from a small GPT of characters, where what surrounds the products costs as much as they do."""

from typing import Any

from engram import bench
from engram.bench import Contestant

NEW = 256
WORK = f"GPT-2 of 6 layers of 384 on 65 characters, greedy, {NEW} new tokens, batch 1; last, the limit of bandwidth"
UNIT = "tokens/s"
SIZE: dict[str, Any] = {"vocab_size": 65, "n_positions": 512, "n_embd": 384, "n_layer": 6, "n_head": 6}


def contestants() -> dict[str, Contestant]:
    return bench.load("gpt-generate").contest(SIZE, NEW)
