"""Recipe of long short-term memory (LSTM)."""

from dataclasses import dataclass
from typing import ClassVar

from engram.core.registry import register
from engram.sequences.base import SequenceRecipe, config_field
from engram.sequences.network import RecurrentNetwork


@register
@dataclass(frozen=True, kw_only=True)
class LSTMRecipe(SequenceRecipe):
    """Long short-term memory: gates control what is written to, kept in and read from a cell state."""

    name: ClassVar[str] = "lstm"
    title: ClassVar[str] = "Long short-term memory"
    model: RecurrentNetwork.Config = config_field("lstm")
    """architecture"""
