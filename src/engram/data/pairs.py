"""Texts in pairs: a source and its target, tokenised and held in memory; batches of texts that are about as long.

B batch, T tokens
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.data.batches import Batches
from engram.data.columns import Strings
from engram.data.dataset import Info, Parts, Split
from engram.data.plain import text_of
from engram.data.tokeniser import Tokeniser

SORTED_TOGETHER = 64
"""batches whose texts are sorted by length among themselves"""


@dataclass(frozen=True)
class Pairs:
    """Tokenised pairs, split by split."""

    info: Info
    tokeniser: Tokeniser
    splits: dict[str, Split]
    """columns source and target, as texts and as tokens (source_ids, target_ids), and `length`"""
    folder: Path | None = None

    def __getitem__(self, split: str) -> Split:
        if not self.splits:
            raise EngramError(f"{self.info.name} comes without data: give it a --text.")
        return self.splits[split]


def encoded(split: Split, tokeniser: Tokeniser, context: int) -> Split:
    """The split with its texts as tokens; a text that is longer than the context is cut before its last token."""
    columns: dict[str, Any] = {}
    for side in ("source", "target"):
        columns[side] = list(split[side])
        ids = tokeniser.encode_all(columns[side])
        columns[f"{side}_ids"] = [row[: context - 1] + row[-1:] if len(row) > context else row for row in ids]
    sizes = zip(columns["source_ids"], columns["target_ids"], strict=True)
    columns["length"] = torch.tensor([max(len(source), len(target)) for source, target in sizes])
    return Split(columns)


def padded(rows: Sequence[Sequence[int]], padding: int) -> Tensor:
    """Rows of unequal length as B × T, filled up on the right."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[padding] * (width - len(row))] for row in rows])


class ByLength(Batches):
    """Shuffled batches in which texts are about as long as each other, so that little of a batch is padding."""

    def _begin(self) -> None:
        super()._begin()
        whole = len(self.order) // self.batch * self.batch
        order, length = self.order[:whole], self.split["length"]
        parts = [part[length[part].argsort(stable=True)] for part in order.split(SORTED_TOGETHER * self.batch)]
        batches = torch.cat(parts).view(-1, self.batch)
        self.order = torch.cat([batches[self._shuffled(len(batches))].flatten(), self.order[whole:]])

    def _shuffled(self, count: int) -> Tensor:
        return torch.randperm(count, generator=self.generator)


def read_pairs(path: Path) -> Parts:
    """One's own pairs: a line each, source and target with a tab between them."""
    lines = [line for line in text_of(path).splitlines() if line.strip()]
    cells = [line.split("\t") for line in lines]
    for number, row in enumerate(cells, 1):
        if len(row) < 2 or not row[0].strip() or not row[1].strip():
            raise EngramError(
                f"Line {number} of {path} is no pair: a source and a target with a tab between are needed."
            )
    if not cells:
        raise EngramError(f"{path} is empty.")
    source, target = (Strings.of(row[side].strip() for row in cells) for side in (0, 1))
    return Parts({"": Split({"source": source, "target": target})})
