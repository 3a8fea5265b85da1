"""Recipe of minGRU."""

from dataclasses import dataclass
from typing import ClassVar

from engram.core.registry import register
from engram.sequences.base import SequenceRecipe, config_field
from engram.sequences.network import RecurrentNetwork


@register
@dataclass(frozen=True, kw_only=True)
class MinGRURecipe(SequenceRecipe):
    """Minimal gated recurrent unit: gates depend on the input alone; a parallel scan computes all steps."""

    name: ClassVar[str] = "mingru"
    title: ClassVar[str] = "Minimal gated recurrent unit"
    model: RecurrentNetwork.Config = config_field("mingru")
    """architecture"""
