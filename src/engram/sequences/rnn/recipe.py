"""Recipe of the recurrent neural network (RNN)."""

from dataclasses import dataclass
from typing import ClassVar

from engram.core.registry import register
from engram.sequences.base import SequenceRecipe, config_field
from engram.sequences.network import RecurrentNetwork


@register
@dataclass(frozen=True, kw_only=True)
class RNNRecipe(SequenceRecipe):
    """Elman network: each hidden state is a function of the input and the hidden state before."""

    name: ClassVar[str] = "rnn"
    title: ClassVar[str] = "Recurrent neural network"
    model: RecurrentNetwork.Config = config_field("rnn")
    """architecture"""
