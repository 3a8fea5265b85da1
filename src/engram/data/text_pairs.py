"""Pairs of source and target text, tokenized in memory, and batches bucketed by length.

B batch, T tokens
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.data.columns import Strings
from engram.data.dataset import Info, Parts, Split
from engram.data.loaders import BatchLoader
from engram.data.text_files import read_text_file
from engram.data.tokenizer import Tokenizer

PAIRS = (".tsv", ".jsonl")
"""endings of files of pairs"""
SOURCES = ("prompt", "instruction", "question", "source")
TARGETS = ("response", "answer", "completion", "output", "target")
"""names of the two texts of a pair in a .jsonl file"""
BUCKET_BATCHES = 64
"""batches whose texts are sorted together by length"""


@dataclass(frozen=True)
class TextPairs:
    """Tokenized pairs of texts, by split."""

    info: Info
    tokenizer: Tokenizer
    splits: dict[str, Split]
    """columns source and target, as texts and as tokens (source_ids, target_ids), and `length`"""
    folder: Path | None = None

    def __getitem__(self, split: str) -> Split:
        if not self.splits:
            raise EngramError(f"{self.info.name} comes without data: give it a --text.")
        return self.splits[split]


def encode_pairs(split: Split, tokenizer: Tokenizer, context: int) -> Split:
    """Return the split with token ids added.

    A text longer than `context` is truncated before its last token.
    """
    columns: dict[str, Any] = {}
    for side in ("source", "target"):
        columns[side] = list(split[side])
        ids = tokenizer.encode_batch(columns[side])
        columns[f"{side}_ids"] = [row[: context - 1] + row[-1:] if len(row) > context else row for row in ids]
    sizes = zip(columns["source_ids"], columns["target_ids"], strict=True)
    columns["length"] = torch.tensor([max(len(source), len(target)) for source, target in sizes])
    return Split(columns)


def pad_rows(rows: Sequence[Sequence[int]], padding: int) -> Tensor:
    """Return rows of unequal length as a tensor B × T, padded on the right."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[padding] * (width - len(row))] for row in rows])


class LengthBucketLoader(BatchLoader):
    """Shuffled batches of texts of similar length, so that little of a batch is padding."""

    def _start_epoch(self) -> None:
        super()._start_epoch()
        whole = len(self.order) // self.batch * self.batch
        order, length = self.order[:whole], self.split["length"]
        parts = [part[length[part].argsort(stable=True)] for part in order.split(BUCKET_BATCHES * self.batch)]
        batches = torch.cat(parts).view(-1, self.batch)
        self.order = torch.cat([batches[self._permute(len(batches))].flatten(), self.order[whole:]])

    def _permute(self, count: int) -> Tensor:
        return torch.randperm(count, generator=self.generator)


def read_pairs(path: Path) -> Parts:
    """Read pairs of the user from a .tsv file: one pair per line, source and target separated by a tab."""
    lines = [line for line in read_text_file(path).splitlines() if line.strip()]
    cells = [line.split("\t") for line in lines]
    for number, row in enumerate(cells, 1):
        if len(row) < 2 or not row[0].strip() or not row[1].strip():
            raise EngramError(
                f"Line {number} of {path} is no pair: a source and a target with a tab between are needed."
            )
    if not cells:
        raise EngramError(f"{path} is empty.")
    source, target = (Strings.from_texts(row[side].strip() for row in cells) for side in (0, 1))
    return Parts({"": Split({"source": source, "target": target})})


def read_json_pairs(path: Path) -> Parts:
    """Read pairs from a .jsonl file: prompt and response, or messages of which the last is the answer."""
    rows = [
        (number, parse_json_pair(line))
        for number, line in enumerate(read_text_file(path).splitlines(), 1)
        if line.strip()
    ]
    for number, row in rows:
        if row is None:
            raise EngramError(
                f'Line {number} of {path} is no pair: an object with "prompt" and "response" is needed, or one with '
                '"messages", each with role and content, of which the last is of the assistant.'
            )
    if not rows:
        raise EngramError(f"{path} is empty.")
    columns = zip(*(row for _, row in rows if row is not None), strict=True)
    names = ("source", "target", "messages")
    return Parts({"": Split({name: Strings.from_texts(column) for name, column in zip(names, columns, strict=True)})})


def parse_json_pair(line: str) -> tuple[str, str, str] | None:
    """Return prompt, answer and earlier messages as JSON ("" for a prompt alone); None if it is none."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    messages = value.get("messages")
    if messages is None:
        source, target = (next((value[name] for name in names if name in value), "") for names in (SOURCES, TARGETS))
        texts = isinstance(source, str) and isinstance(target, str) and source.strip() and target.strip()
        return (str(source), str(target), "") if texts else None
    if not isinstance(messages, list) or len(messages) < 2 or not all(map(is_message, messages)):
        return None
    *before, last = ({"role": one["role"], "content": one["content"]} for one in messages)
    if last["role"] != "assistant" or not last["content"].strip():
        return None
    return before[-1]["content"], last["content"], json.dumps(before, ensure_ascii=False)


def is_message(value: Any) -> bool:
    """Whether a value is a message of a chat."""
    return isinstance(value, dict) and isinstance(value.get("role"), str) and isinstance(value.get("content"), str)
