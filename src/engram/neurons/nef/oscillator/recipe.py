"""Recipe of a neural oscillator."""

from dataclasses import dataclass, field
from typing import ClassVar

from torch import nn

from engram.core.registry import register
from engram.neurons.nef.base import NEFRecipe
from engram.neurons.nef.oscillator.model import Oscillator


@register
@dataclass(frozen=True, kw_only=True)
class OscillatorRecipe(NEFRecipe):
    """An ensemble with a rotating recurrent connection oscillates after one pulse."""

    name: ClassVar[str] = "oscillator"
    title: ClassVar[str] = "Oscillator (NEF)"
    Model: ClassVar[type[nn.Module]] = Oscillator

    model: Oscillator.Config = field(default_factory=Oscillator.Config)
    """the ensembles and their connections"""
