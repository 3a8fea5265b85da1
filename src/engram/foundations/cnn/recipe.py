"""Recipe of the convolutional neural network (CNN) on images."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Lt
from torch import nn

from engram.core.registry import register
from engram.data.augment import Augment
from engram.data.dataset import Data
from engram.foundations.base import TINY, ImageClassifier
from engram.foundations.cnn.model import CNN
from engram.training.learner import GradientLearner
from engram.training.optimizer import OptimizerConfig


@register
@dataclass(frozen=True, kw_only=True)
class CNNRecipe(ImageClassifier[CNN]):
    """Classify images with a convolutional neural network: convolution, batch normalization, max-pooling."""

    name: ClassVar[str] = "cnn"
    title: ClassVar[str] = "Convolutional network"
    Model: ClassVar[type[nn.Module]] = CNN
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"tiny": TINY | {"channels": (4, 8, 8)}}

    steps: int = 2400
    eval_every: int = 300
    model: CNN.Config = field(default_factory=CNN.Config)
    label_smoothing: Annotated[float, Ge(0), Lt(1)] = 0.05
    """share of the target distribution spread over all classes; 0 disables"""
    augment: Augment = field(default_factory=lambda: Augment(shift=1))
    optimization: OptimizerConfig = field(
        default_factory=lambda: OptimizerConfig(lr=3e-3, weight_decay=0.05, schedule="linear", warmup=0.1)
    )
    """optimizer and learning-rate schedule"""

    def learner(self, data: Data) -> GradientLearner[CNN]:
        return self.gradient_learner(data, self.optimization)
