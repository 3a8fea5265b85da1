"""Recipe of a transformation: a connection that computes a function."""

from dataclasses import dataclass, field
from typing import ClassVar

from torch import nn

from engram.core.registry import register
from engram.neurons.nef.base import NEFRecipe
from engram.neurons.nef.transformation.model import Transformation


@register
@dataclass(frozen=True, kw_only=True)
class TransformationRecipe(NEFRecipe):
    """A connection between two ensembles computes the product, the sum or the square of two values."""

    name: ClassVar[str] = "transformation"
    title: ClassVar[str] = "Transformation (NEF)"
    Model: ClassVar[type[nn.Module]] = Transformation

    model: Transformation.Config = field(default_factory=Transformation.Config)
    """the ensembles and their connections"""
