"""Recipe of a neural integrator."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from annotated_types import Ge
from torch import nn

from engram.core.registry import register
from engram.neurons.nef.base import NEFRecipe
from engram.neurons.nef.integrator.model import Integrator
from engram.neurons.nef.system import NEFConfig


@register
@dataclass(frozen=True, kw_only=True)
class IntegratorRecipe(NEFRecipe):
    """An ensemble with a recurrent connection integrates its input and keeps the sum as working memory."""

    name: ClassVar[str] = "integrator"
    title: ClassVar[str] = "Integrator (NEF)"
    Model: ClassVar[type[nn.Module]] = Integrator

    steps: Annotated[int, Ge(1)] = 100
    """number of simulated windows"""
    model: NEFConfig = field(default_factory=NEFConfig)
    """the ensembles and their connections"""
