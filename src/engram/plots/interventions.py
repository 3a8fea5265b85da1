r"""Interventions on a Transformer in the forward pass.

Head ablation, edited attention weights, activation patching.

    a_h \leftarrow 0                                                         ablate head h                          (1)
    A_{mt} \leftarrow w,\ A_{ms} \leftarrow A_{ms} (1 - w) / (1 - A_{mt})    edit a weight; rows still sum to 1     (2)
    z \leftarrow z'                                                          patch an activation                    (3)

    Symbols:
        a_h              output of head h
        A                attention weights of a head; row m is the query, column t the key
        w                new weight
        z, z'            activation of a head, of attention or of the residual stream; the same for the source text
        B, H, T          batch of one text, heads, tokens
        D, E             head width, model width

All of them replace taps (core/tap.py), in the order of the forward pass: attention weights by (2), heads by (3) and
(1), the output of attention by (3), the residual stream after the layer by (3).
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.core.tap import Replacement

MAX_INTERVENTIONS = 512
"""largest number of interventions of each kind"""
COMPONENTS = {"head": "attention.heads", "attention": "attention.out", "residual": "residual"}
"""components whose activation can be patched, and their taps"""


class Ablation(NamedTuple):
    """Set the output of a head to zero (1)."""

    layer: int
    head: int


class Edit(NamedTuple):
    """Set one attention weight of a head (2)."""

    layer: int
    head: int
    query: int
    key: int
    weight: float


class Patch(NamedTuple):
    """Replace an activation by that of the source text (3)."""

    component: str
    layer: int
    head: int
    token: int
    """-1 for all tokens"""


def parse_interventions(cls: Any, name: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Convert lists of JSON to tuples of class `cls`."""
    if len(values) > MAX_INTERVENTIONS:
        raise EngramError(f"{name} may be {MAX_INTERVENTIONS}, and there are {len(values)}.")
    kinds = [(int, float) if kind is float else (kind,) for kind in cls.__annotations__.values()]
    for value in values:
        valid = isinstance(value, (list, tuple)) and len(value) == len(kinds)
        if not valid or not all(type(part) in kind for part, kind in zip(value, kinds, strict=True)):
            raise EngramError(f"{name} are lists of {', '.join(cls._fields)}, not {str(value)[:60]}.")
    return tuple(cls(*value) for value in values)


Step = Callable[[Tensor], Tensor]


def make_replacements(
    ablations: Sequence[Ablation], edits: Sequence[Edit], patches: Sequence[Patch], source: Mapping[str, Tensor]
) -> dict[str, Replacement]:
    """Return the replacement of each tap; nothing is patched without activations of the `source` text."""
    steps: dict[str, list[Step]] = defaultdict(list)
    for layer in sorted({edit.layer for edit in edits}):
        of_layer = [edit for edit in edits if edit.layer == layer]
        steps[f"blocks.{layer}.attention.weights"].append(partial(edit_weights, edits=of_layer))
    for patch in patches if source else ():
        steps[tap_name(patch)].append(partial(apply_patch, source=source[tap_name(patch)], patch=patch))
    for layer in sorted({ablation.layer for ablation in ablations}):
        heads = [ablation.head for ablation in ablations if ablation.layer == layer]
        steps[f"blocks.{layer}.attention.heads"].append(partial(ablate_heads, heads=heads))
    return {name: partial(apply_steps, steps=several) for name, several in steps.items()}


def apply_steps(value: Tensor, steps: Sequence[Step]) -> Tensor:
    """Apply all replacements of one tap in order."""
    for step in steps:
        value = step(value)
    return value


def ablate_heads(value_BHTD: Tensor, heads: Sequence[int]) -> Tensor:
    """Set the outputs of some heads to zero."""
    return value_BHTD.index_fill(1, torch.tensor(heads), 0.0)  # (1)


def edit_weights(A_BHTT: Tensor, edits: Sequence[Edit]) -> Tensor:
    """Set some attention weights, and rescale the rest of their rows."""
    rows: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
    for edit in edits:
        rows[edit.head, edit.query][edit.key] = edit.weight
    A_BHTT = A_BHTT.clone()
    for (head, query), fixed in rows.items():
        A_BHTT[:, head, query] = edit_row(A_BHTT[0, head, query], fixed)
    return A_BHTT


def edit_row(row_T: Tensor, fixed: Mapping[int, float]) -> Tensor:
    """Set some weights of a row (2).

    They are normalized themselves where no sum of 1 is possible otherwise.
    """
    keys, weight = list(fixed), torch.tensor(list(fixed.values()), dtype=row_T.dtype)
    others_T = row_T.index_fill(0, torch.tensor(keys), 0.0)
    left, rest = 1 - weight.sum(), others_T.sum()
    if left >= 0 and rest > 0:
        others_T = others_T * (left / rest)
        others_T[keys] = weight
        return others_T
    if not weight.sum() > 0:
        return row_T.clone()
    return torch.zeros_like(row_T).index_copy(0, torch.tensor(keys), weight / weight.sum())


def tap_name(patch: Patch) -> str:
    """Return the tap that a patch replaces."""
    return f"blocks.{patch.layer}.{COMPONENTS[patch.component]}"


def apply_patch(value: Tensor, source: Tensor, patch: Patch) -> Tensor:
    """Patch (3) a head, B × H × T × D, or attention or residual stream, B × T × E."""
    tokens = slice(None) if patch.token < 0 else patch.token
    value = value.clone()
    if patch.component == "head":
        value[:, patch.head, tokens] = source[:, patch.head, tokens]
    else:
        value[:, tokens] = source[:, tokens]
    return value
