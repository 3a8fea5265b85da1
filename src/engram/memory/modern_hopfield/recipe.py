"""Recipe of a modern Hopfield network."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

from annotated_types import Ge
from torch import Tensor, nn

from engram.core.registry import register
from engram.core.seeding import generator
from engram.data.dataset import Data
from engram.memory.base import AssociativeMemory
from engram.memory.hopfield import plots
from engram.memory.hopfield.model import Recall, sign
from engram.memory.modern_hopfield.learner import ModernHopfieldLearner
from engram.memory.modern_hopfield.model import ModernHopfield
from engram.plots.figure import Figure


@register
@dataclass(frozen=True, kw_only=True)
class ModernHopfieldRecipe(AssociativeMemory[ModernHopfield]):
    """Associative memory of exponential capacity, whose update is the attention of Transformers."""

    name: ClassVar[str] = "modern-hopfield"
    title: ClassVar[str] = "Modern Hopfield network"
    Model: ClassVar[type[nn.Module]] = ModernHopfield
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"data": "patterns", "steps": 20, "eval_every": 10, "batch": 1},
        "full": {"steps": 550, "eval_every": 110, "batch": 100},
    }

    data: str = "mnist"
    steps: int = 100
    eval_every: int = 20
    batch: int = 100
    corruption: float = 0.2
    model: ModernHopfield.Config = field(default_factory=ModernHopfield.Config)
    recall_steps: Annotated[int, Ge(1)] = 3
    """updates of the state during recall"""

    def learner(self, data: Data) -> ModernHopfieldLearner:
        M, N = self.patterns(data).shape
        return ModernHopfieldLearner(ModernHopfield(replace(self.model, units=N, patterns=M)))

    def recall(self, model: ModernHopfield, cue_BN: Tensor) -> Recall:
        return model.recall(cue_BN, self.recall_steps)

    def model_figures(self, model: ModernHopfield, data: Data) -> Iterator[Figure]:
        """Recall by beta: mixtures of patterns where it is small, single patterns where it is large."""
        x_MN, betas = self.stored_patterns(model, data)[:200], [2.0**k for k in range(-10, 3)]
        cue = self.flip(x_MN, self.corruption, generator(self.seed, "beta"))
        parts = []
        for beta in betas:
            other = ModernHopfield.from_patterns(model.memory[:10_000], beta)
            found = sign(other.recall(cue, self.recall_steps).x)
            parts.append((found == x_MN).all(1).float().mean().item())
        caption = "Fraction of patterns recalled without error, by beta: where it is small, several patterns are mixed."
        figure = plots.fraction_curves("Inverse temperature", caption, betas, {"recalled": parts}, "beta")
        figure.plot.update_xaxes(type="log")
        yield figure
