"""Stretches of a text that may be larger than memory, each once in a round, shard by shard.

N tokens, T context, S stretches of a shard, o an offset below T that is drawn for each round:

    stretch k = tokens o + k T  to  o + (k + 1) T          k = 0, 1 … (N - 1 - o) // T - 1                 (1)
    shard j = stretches j S … (j + 1) S - 1                 neighbours in the file, hence on the disk       (2)

A round goes through the shards in random order, and through the stretches of each in random order. Both orders and o
follow from the seed and the number of the round: so the position in the data is one number, however large the text.
"""

import bisect
import functools
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.data.tokens import Tokens

SHARD = 1 << 24
"""tokens of a shard: what is read from one part of the disk before the next, at most 64 MB"""


class Round(NamedTuple):
    """The order of one round."""

    offset: int
    shards: Tensor
    """their order"""
    ends: list[int]
    """how many stretches have come when each shard, in this order, is through"""


class Rounds:
    """Endless batches of stretches and of what follows each token; no stretch comes twice in a round, none is left."""

    def __init__(self, tokens: Tokens, batch: int, context: int, seed: int, shard: int = SHARD) -> None:
        if len(tokens.ids) < 2 * context:
            raise EngramError(
                f"The text has {len(tokens.ids)} tokens, and rounds of a context of {context} need {2 * context}: "
                "lower --context."
            )
        self.ids, self.batch, self.context, self.seed = tokens.ids, batch, context, seed
        self.stretches = max(1, shard // context)  # S
        self.round, self.position = 0, 0
        self.order = functools.lru_cache(4)(self._order)
        self.of_shard = functools.lru_cache(4)(self._of_shard)

    def _order(self, round: int) -> Round:
        random = generator(self.seed, f"round {round}")
        offset = int(torch.randint(self.context, (), generator=random))
        count = (len(self.ids) - 1 - offset) // self.context  # (1)
        shards = torch.randperm(-(-count // self.stretches), generator=random)
        sizes = [min(self.stretches, count - j * self.stretches) for j in shards.tolist()]  # (2)
        return Round(offset, shards, list(accumulate(sizes)))

    def _of_shard(self, round: int, shard: int, size: int) -> Tensor:
        """The order of the stretches of a shard."""
        return torch.randperm(size, generator=generator(self.seed, f"round {round} shard {shard}"))

    def _next(self) -> int:
        """Where the next stretch begins."""
        if self.position == self.order(self.round).ends[-1]:
            self.round, self.position = self.round + 1, 0
        order = self.order(self.round)
        turn = bisect.bisect_right(order.ends, self.position)
        before = order.ends[turn - 1] if turn else 0
        shard = int(order.shards[turn])
        within = self.of_shard(self.round, shard, order.ends[turn] - before)[self.position - before]
        k = shard * self.stretches + int(within)
        self.position += 1
        return order.offset + k * self.context

    def __next__(self) -> dict[str, Tensor]:
        start_B = torch.tensor([self._next() for _ in range(self.batch)])
        window_BT = self.ids[start_B[:, None] + torch.arange(self.context + 1)].long()
        return {"x": window_BT[:, :-1], "y": window_BT[:, 1:]}

    def state_dict(self) -> dict[str, Any]:
        return {"round": self.round, "position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.round, self.position = state["round"], state["position"]
        if self.position > self.order(self.round).ends[-1]:
            raise ValueError(f"a round of {self.order(self.round).ends[-1]} stretches has no place {self.position}")
