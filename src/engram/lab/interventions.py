"""What is changed in a Transformer while it reads: heads off, weights edited, values patched from elsewhere.

B batch of one, H heads, T tokens, D width of a head, E width of the stream

    off       head <- 0                                       what the head gives is left out                      (1)
    edit      A[m, t] <- w,  the rest of row m shares 1 - w   as it did before, so that the row sums to one        (2)
    patch     head, attention or stream <- that of a second text of as many tokens (activation patching)           (3)

All are taps that are replaced (core/tap): weights by (2), then heads by (3) and (1), then what the layer's attention
adds to the stream by (3), then the stream after the layer by (3).
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.core.tap import Replacement

MOST_CHANGES = 512
"""heads off, edits and patches, of each"""
PARTS = {"head": "attention.heads", "attention": "attention.out", "stream": "stream"}
"""what can be taken from another text, and the tap that it passes"""


class Off(NamedTuple):
    layer: int
    head: int


class Edit(NamedTuple):
    layer: int
    head: int
    asks: int
    answers: int
    weight: float


class Patch(NamedTuple):
    what: str
    layer: int
    head: int
    token: int
    """-1 for every one"""


def each(cls: Any, name: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Lists as what they are lists of."""
    if len(values) > MOST_CHANGES:
        raise EngramError(f"{name} may be {MOST_CHANGES}, and there are {len(values)}.")
    kinds = [(int, float) if kind is float else (kind,) for kind in cls.__annotations__.values()]
    for value in values:
        fitting = isinstance(value, (list, tuple)) and len(value) == len(kinds)
        if not fitting or not all(type(part) in kind for part, kind in zip(value, kinds, strict=True)):
            raise EngramError(f"{name} are lists of {', '.join(cls._fields)}, not {str(value)[:60]}.")
    return tuple(cls(*value) for value in values)


Step = Callable[[Tensor], Tensor]


def changes(
    off: Sequence[Off], edits: Sequence[Edit], patches: Sequence[Patch], second: Mapping[str, Tensor]
) -> dict[str, Replacement]:
    """What replaces what, by the name of the tap; without what a second text shows, nothing is patched."""
    steps: dict[str, list[Step]] = defaultdict(list)
    for layer in sorted({edit.layer for edit in edits}):
        of_layer = [edit for edit in edits if edit.layer == layer]
        steps[f"blocks.{layer}.attention.weights"].append(partial(edited, edits=of_layer))
    for patch in patches if second else ():
        steps[tap_of(patch)].append(partial(patched, other=second[tap_of(patch)], patch=patch))
    for layer in sorted({one.layer for one in off}):
        heads = [one.head for one in off if one.layer == layer]
        steps[f"blocks.{layer}.attention.heads"].append(partial(silenced, heads=heads))
    return {name: partial(through, steps=several) for name, several in steps.items()}


def through(value: Tensor, steps: Sequence[Step]) -> Tensor:
    for step in steps:
        value = step(value)
    return value


def silenced(value_BHTD: Tensor, heads: Sequence[int]) -> Tensor:
    return value_BHTD.index_fill(1, torch.tensor(heads), 0.0)  # (1)


def edited(A_BHTT: Tensor, edits: Sequence[Edit]) -> Tensor:
    rows: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
    for edit in edits:
        rows[edit.head, edit.asks][edit.answers] = edit.weight
    A_BHTT = A_BHTT.clone()
    for (head, asks), fixed in rows.items():
        A_BHTT[:, head, asks] = renormalised(A_BHTT[0, head, asks], fixed)
    return A_BHTT


def renormalised(row_T: Tensor, fixed: Mapping[int, float]) -> Tensor:
    """(2): a row that sums to one, with some weights set; where these leave nothing or take all, they share it."""
    place, weight = list(fixed), torch.tensor(list(fixed.values()), dtype=row_T.dtype)
    others_T = row_T.index_fill(0, torch.tensor(place), 0.0)
    left, rest = 1 - weight.sum(), others_T.sum()
    if left >= 0 and rest > 0:
        others_T = others_T * (left / rest)
        others_T[place] = weight
        return others_T
    if not weight.sum() > 0:
        return row_T.clone()
    return torch.zeros_like(row_T).index_copy(0, torch.tensor(place), weight / weight.sum())


def tap_of(patch: Patch) -> str:
    return f"blocks.{patch.layer}.{PARTS[patch.what]}"


def patched(value: Tensor, other: Tensor, patch: Patch) -> Tensor:
    """(3), of heads, B × H × T × D, or of all that is B × T × E."""
    tokens = slice(None) if patch.token < 0 else patch.token
    value = value.clone()
    if patch.what == "head":
        value[:, patch.head, tokens] = other[:, patch.head, tokens]
    else:
        value[:, tokens] = other[:, tokens]
    return value
