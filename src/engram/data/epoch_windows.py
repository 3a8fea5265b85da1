r"""Epochs over the windows of a text that may be larger than memory.

Each window once per epoch, shard by shard.

    K = \lfloor (N - 1 - o) / T \rfloor                     windows of an epoch            (1)
    x_k = w_{o + k T}, \dots, w_{o + (k + 1) T}             window k, 0 \le k < K         (2)
    s_k = \lfloor k / S \rfloor                              shard of window k              (3)

    Symbols:
        w, N   tokens of the text, their number
        T      context
        o      offset below T, drawn for each epoch
        S      windows per shard, which are neighbors on disk

An epoch visits the shards in random order, and the windows of each shard in random order. Both orders and o follow from
the seed and the number of the epoch, so the state is two numbers, however large the text.
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
"""tokens per shard, at most 64 MB on disk"""


class EpochOrder(NamedTuple):
    """The order of one epoch."""

    offset: int
    shards: Tensor
    """order of the shards"""
    ends: list[int]
    """cumulative number of windows after each shard, in this order"""


class EpochWindows:
    """Endless batches of windows `x` and their next tokens `y`; every window comes once per epoch."""

    def __init__(self, tokens: Tokens, batch: int, context: int, seed: int, shard: int = SHARD) -> None:
        if len(tokens.ids) < 2 * context:
            raise EngramError(
                f"The text has {len(tokens.ids)} tokens, and epochs of windows of {context} need {2 * context}: "
                "lower --context."
            )
        self.ids, self.batch, self.context, self.seed = tokens.ids, batch, context, seed
        self.windows = max(1, shard // context)  # S
        self.epoch, self.position = 0, 0
        self.order = functools.lru_cache(4)(self._order)
        self.shard_order = functools.lru_cache(4)(self._shard_order)

    def _order(self, epoch: int) -> EpochOrder:
        random = generator(self.seed, f"round {epoch}")
        offset = int(torch.randint(self.context, (), generator=random))
        count = (len(self.ids) - 1 - offset) // self.context  # (1)
        shards = torch.randperm(-(-count // self.windows), generator=random)
        sizes = [min(self.windows, count - j * self.windows) for j in shards.tolist()]  # (3)
        return EpochOrder(offset, shards, list(accumulate(sizes)))

    def _shard_order(self, epoch: int, shard: int, size: int) -> Tensor:
        """Return the order of the windows of a shard."""
        return torch.randperm(size, generator=generator(self.seed, f"round {epoch} shard {shard}"))

    def _next(self) -> int:
        """Return the first token of the next window."""
        if self.position == self.order(self.epoch).ends[-1]:
            self.epoch, self.position = self.epoch + 1, 0
        order = self.order(self.epoch)
        i = bisect.bisect_right(order.ends, self.position)
        before = order.ends[i - 1] if i else 0
        shard = int(order.shards[i])
        within = self.shard_order(self.epoch, shard, order.ends[i] - before)[self.position - before]
        k = shard * self.windows + int(within)
        self.position += 1
        return order.offset + k * self.context  # (2)

    def __next__(self) -> dict[str, Tensor]:
        start_B = torch.tensor([self._next() for _ in range(self.batch)])
        window_BT = self.ids[start_B[:, None] + torch.arange(self.context + 1)].long()
        return {"x": window_BT[:, :-1], "y": window_BT[:, 1:]}

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch, self.position = state["epoch"], state["position"]
        if self.position > self.order(self.epoch).ends[-1]:
            raise ValueError(f"an epoch of {self.order(self.epoch).ends[-1]} windows has no position {self.position}")
