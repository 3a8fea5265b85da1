"""Recipe of the gated recurrent unit (GRU)."""

from dataclasses import dataclass
from typing import ClassVar

from engram.core.registry import register
from engram.sequences.base import SequenceRecipe, config_field
from engram.sequences.network import RecurrentNetwork


@register
@dataclass(frozen=True, kw_only=True)
class GRURecipe(SequenceRecipe):
    """Gated recurrent unit: an update gate keeps or replaces the state, a reset gate ignores it."""

    name: ClassVar[str] = "gru"
    title: ClassVar[str] = "Gated recurrent unit"
    model: RecurrentNetwork.Config = config_field("gru")
    """architecture"""
