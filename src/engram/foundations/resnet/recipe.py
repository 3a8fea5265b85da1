"""Recipe of the residual network (ResNet) on images."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Lt
from torch import nn

from engram.core.registry import register
from engram.data.augment import Augment
from engram.data.dataset import Data
from engram.foundations.base import TINY, ImageClassifier
from engram.foundations.resnet.model import ResNet
from engram.training.learner import GradientLearner
from engram.training.optimizer import OptimizerConfig


@register
@dataclass(frozen=True, kw_only=True)
class ResNetRecipe(ImageClassifier[ResNet]):
    """Classify images with a residual network (He et al. 2016): blocks that learn h + f(h)."""

    name: ClassVar[str] = "resnet"
    title: ClassVar[str] = "Residual network"
    Model: ClassVar[type[nn.Module]] = ResNet
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": TINY | {"channels": (4, 8, 8)},
        "full": {"channels": (32, 64, 128), "steps": 7700, "eval_every": 700},
    }

    data: str = "fashion"
    steps: int = 2400
    eval_every: int = 300
    model: ResNet.Config = field(default_factory=ResNet.Config)
    label_smoothing: Annotated[float, Ge(0), Lt(1)] = 0.1
    """share of the target distribution spread over all classes; 0 disables"""
    augment: Augment = field(default_factory=lambda: Augment(shift=1, flip=True))
    optimization: OptimizerConfig = field(
        default_factory=lambda: OptimizerConfig(lr=3e-3, weight_decay=0.05, schedule="linear", warmup=0.1)
    )
    """optimizer and learning-rate schedule"""

    def learner(self, data: Data) -> GradientLearner[ResNet]:
        return self.gradient_learner(data, self.optimization)
