r"""RoPE of checkpoints: its settings in config.json, and the order of the rows that it rotates.

    x_0, x_1, ..., x_{R/2}, x_{R/2+1}, ... \to x_0, x_{R/2}, x_1, x_{R/2+1}, ...     rows of queries and keys     (1)

    Symbols:
        R     width that is rotated, of the head width D

transformers rotates pairs (x_i, x_{i + R/2}), engram pairs (x_2i, x_2i+1): by (1) both are the same.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.generation.quantization import QuantizedWeight
from engram.nn.position import RoPE
from engram.nn.transformer_block import BlockConfig

T = TypeVar("T")
Rows = TypeVar("Rows", Tensor, QuantizedWeight)
FULL, SLIDING = "full_attention", "sliding_attention"
KINDS = {"default": "none", "linear": "linear", "llama3": "llama3", "yarn": "yarn"}
"""kinds of scaling, their name → ours"""


def to_pairs(rows: Rows, head_width: int, rotated: int) -> Rows:
    """Order rows as engram rotates them (1): of a matrix, a bias or a gain of queries or keys."""
    head_HD = torch.arange(len(rows)).unflatten(0, (-1, head_width))
    first, second = head_HD[:, :rotated].chunk(2, 1)
    pairs = torch.stack([first, second], 2).flatten(1, 2)
    return rows[torch.cat([pairs, head_HD[:, rotated:]], 1).flatten()]  # type: ignore[return-value]


def to_halves(rows: Rows, head_width: int, rotated: int) -> Rows:
    """Order rows as transformers rotates them: the inverse of `to_pairs`."""
    head_HD = torch.arange(len(rows)).unflatten(0, (-1, head_width))
    halves = torch.cat([head_HD[:, 0:rotated:2], head_HD[:, 1:rotated:2], head_HD[:, rotated:]], 1)
    return rows[halves.flatten()]  # type: ignore[return-value]


def shortest_cycle(values: Sequence[T]) -> tuple[T, ...]:
    """Return the shortest tuple that gives these values when it is repeated."""
    for length in range(1, len(values) + 1):
        if all(value == values[i % length] for i, value in enumerate(values)):
            return tuple(values[:length])
    return tuple(values)


def read_rope(settings: Mapping[str, Any], context: int, *, theta: float = 10_000.0, fraction: float = 1.0) -> RoPE:
    """Read RoPE from config.json, as transformers 5 writes it (`rope_parameters`) or earlier ones do.

    `theta` is the default base, `fraction` that of each head that is rotated.
    """
    about = dict(settings.get("rope_parameters") or settings.get("rope_scaling") or {})
    kind = about.get("rope_type") or about.get("type") or "default"
    if kind not in KINDS:
        raise EngramError(f"its RoPE scaling is {kind!r}, and engram has {', '.join(KINDS)}.")
    fraction, theta = float(fraction), float(about.get("rope_theta") or settings.get("rope_theta") or theta)
    if kind == "default":
        return RoPE(theta=(theta,), rotary_fraction=fraction)
    factor, yarn = float(about.get("factor") or 1.0), kind == "yarn"
    original = about.get("original_max_position_embeddings") or context
    return RoPE(
        theta=(theta,),
        rotary_fraction=fraction,
        rope_scaling=KINDS[kind],  # type: ignore[arg-type]
        rope_factor=factor,
        original_context=int(original),
        low_rotations=float(about.get("beta_slow" if yarn else "low_freq_factor") or 1.0),
        high_rotations=float(about.get("beta_fast" if yarn else "high_freq_factor") or (32.0 if yarn else 4.0)),
        rope_amplitude=yarn_amplitude(about, factor) if yarn else 1.0,
    )


def yarn_amplitude(about: Mapping[str, Any], factor: float) -> float:
    """Factor of rotated queries and keys, by the rules of transformers.

    Truncated correction ranges alone are known.
    """
    if about.get("truncate") is False:
        raise EngramError("its YaRN ranges are not truncated to whole pairs, and those of engram are.")
    if (given := about.get("attention_factor")) is not None:
        return float(given)

    def scale(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    whole, every = about.get("mscale"), about.get("mscale_all_dim")
    return scale(whole) / scale(every) if whole and every else scale(1.0)


def rotary_fraction(settings: Mapping[str, Any], default: float) -> float:
    """Read the fraction of each head that is rotated, of a family that knows partial RoPE."""
    about = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
    fraction = about.get("partial_rotary_factor") or settings.get("partial_rotary_factor") or default
    size = int(settings.get("hidden_size", 0) / (settings.get("num_attention_heads") or 1))
    if int(size * fraction) % 2:
        raise EngramError(f"it rotates {int(size * fraction)} of {size} numbers of a head, and pairs are needed.")
    return float(fraction)


def write_rope(rope: RoPE, theta: float) -> dict[str, Any]:
    """Return `rope_parameters` of config.json."""
    kind = next(theirs for theirs, ours in KINDS.items() if ours == rope.rope_scaling)
    about: dict[str, Any] = {"rope_type": kind, "rope_theta": theta}
    if rope.rotary_fraction != 1:
        about["partial_rotary_factor"] = rope.rotary_fraction
    if kind == "default":
        return about
    about["factor"] = rope.rope_factor
    if kind != "linear":
        low, high = ("beta_slow", "beta_fast") if kind == "yarn" else ("low_freq_factor", "high_freq_factor")
        about |= {low: rope.low_rotations, high: rope.high_rotations}
        about["original_max_position_embeddings"] = rope.original_context
    if kind == "yarn":
        about["attention_factor"] = rope.rope_amplitude
    return about


def read_windows(settings: Mapping[str, Any], layers: int, kinds: Sequence[str]) -> tuple[int, ...]:
    """Return the sliding window of each layer as a cycle, from the kinds of the layers (`layer_types`)."""
    window = int(settings.get("sliding_window") or 0)
    return shortest_cycle([window if kind == SLIDING else 0 for kind in kinds[:layers]]) or (0,)


def layer_types(config: BlockConfig) -> list[str]:
    """Return the kind of each layer."""
    return [SLIDING if config.window(i) else FULL for i in range(config.layers)]


def largest_window(config: BlockConfig) -> int | None:
    """Return the sliding window of all layers that have one; None without."""
    return max(config.attention_window) or None


def several_windows(config: BlockConfig) -> list[str]:
    """Say why windows of different widths have no counterpart."""
    widths = sorted(set(config.attention_window) - {0})
    return [f"attention_window must have one width, not {' and '.join(map(str, widths))}"] if len(widths) > 1 else []
