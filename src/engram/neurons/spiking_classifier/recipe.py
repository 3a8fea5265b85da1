"""Recipe of a spiking classifier of images, trained with surrogate gradients."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn

from engram.core.learner import Learner
from engram.core.registry import register
from engram.core.tap import watch
from engram.data.dataset import Data
from engram.foundations.base import TINY, ImageClassifier, predict
from engram.hub.classify import ImageInspectArgs
from engram.hub.predict import inputs_at
from engram.neurons.spiking_classifier import plots
from engram.neurons.spiking_classifier.model import SpikingNet
from engram.plots import classification, images
from engram.plots.figure import Figure
from engram.training.learner import GradientLearner
from engram.training.optimizer import OptimizerConfig


@register
@dataclass(frozen=True, kw_only=True)
class SpikingRecipe(ImageClassifier[SpikingNet]):
    """Leaky integrate-and-fire neurons classify images; surrogate gradients replace those of the spikes."""

    name: ClassVar[str] = "spiking-classifier"
    title: ClassVar[str] = "Spiking classifier"
    Model: ClassVar[type[nn.Module]] = SpikingNet
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": TINY | {"hidden": (32,), "time": 8},
        "full": {"hidden": (1000, 1000), "steps": 9000, "eval_every": 1000},
    }

    data: str = "fashion"
    steps: int = 2500
    eval_every: int = 500
    model: SpikingNet.Config = field(default_factory=SpikingNet.Config)
    label_smoothing: Annotated[float, Ge(0), Lt(1)] = 0.0
    """share of the target distribution spread over all classes; 0 disables"""
    optimization: OptimizerConfig = field(
        default_factory=lambda: OptimizerConfig(lr=1e-3, weight_decay=0.0, schedule="linear")
    )
    """optimizer and learning-rate schedule"""

    def learner(self, data: Data) -> GradientLearner[SpikingNet]:
        return self.gradient_learner(data, self.optimization)

    def figures(self, learner: Learner[SpikingNet], data: Data) -> Iterator[Figure]:
        model = learner.model
        logits_NK, label_N = predict(model, data.test)
        yield classification.confusion(logits_NK, label_N, data.classes)
        yield classification.mistakes(data.test["image"], logits_NK, label_N, data.classes)
        yield from self.views(model, inputs_at(data.test, torch.tensor([0])), data, int(data.test["label"][0]))
        first = next(weight for weight in model.parameters() if weight.ndim > 1)
        yield images.filters(first.detach(), tuple(data.train["image"].shape[1:]))

    def views(self, model: SpikingNet, image_1CHW: Tensor, data: Data, label: int | None) -> list[Figure]:
        """Spike rasters and output membranes while the model classifies one image.

        `label` is its class, if known.
        """
        with torch.no_grad(), watch(model, "spikes.*", "membrane") as seen:
            model(image_1CHW)
        layers = {name.removeprefix("spikes."): s_TBN for name, s_TBN in seen.items() if name.startswith("spikes.")}
        rasters = [
            plots.layer_raster(s_TBN[:, 0], "input" if name == "in" else f"layer {name}")
            for name, s_TBN in layers.items()
        ]
        truth = "" if label is None else data.classes[label]
        return [*rasters, plots.membranes(seen["membrane"][:, 0], data.classes, truth)]

    def inspect(self, model: SpikingNet, data: Data, args: ImageInspectArgs) -> tuple[str, list[Figure]]:
        description, image_1CHW = self.inspected(model, data, args)
        views = self.views(model, image_1CHW, data, None if args.image else int(data.test["label"][args.item]))
        image = images.sheet(image_1CHW, 8)
        return description, [Figure("Image", f"{description[0].upper()}{description[1:]}.", image), *views]
