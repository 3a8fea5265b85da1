"""Recipe of the Lorenz attractor in spiking neurons."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from annotated_types import Ge
from torch import nn

from engram.core.registry import register
from engram.neurons.nef.base import NEFRecipe
from engram.neurons.nef.lorenz.model import Lorenz


@register
@dataclass(frozen=True, kw_only=True)
class LorenzRecipe(NEFRecipe):
    """An ensemble of a thousand neurons follows the chaotic Lorenz equations."""

    name: ClassVar[str] = "lorenz"
    title: ClassVar[str] = "Lorenz attractor (NEF)"
    Model: ClassVar[type[nn.Module]] = Lorenz

    steps: Annotated[int, Ge(1)] = 200
    """number of simulated windows"""
    eval_every: Annotated[int, Ge(1)] = 50
    """windows between evaluations; each is followed by a checkpoint"""
    model: Lorenz.Config = field(default_factory=Lorenz.Config)
    """the ensembles and their connections"""
