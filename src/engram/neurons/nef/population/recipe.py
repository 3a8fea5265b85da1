"""Recipe of population coding."""

from dataclasses import dataclass, field
from typing import ClassVar

from torch import nn

from engram.core.registry import register
from engram.neurons.nef.base import NEFRecipe
from engram.neurons.nef.population.model import PopulationCode
from engram.neurons.nef.system import NEFConfig


@register
@dataclass(frozen=True, kw_only=True)
class PopulationRecipe(NEFRecipe):
    """An ensemble of spiking neurons represents a value; linear decoders read it."""

    name: ClassVar[str] = "population"
    title: ClassVar[str] = "Population coding (NEF)"
    Model: ClassVar[type[nn.Module]] = PopulationCode

    model: NEFConfig = field(default_factory=lambda: NEFConfig(neurons=200))
    """the ensembles and their connections"""
