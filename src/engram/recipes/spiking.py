"""A spiking classifier, taught by surrogate gradients."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import nn

from engram.core.learner import Descent, Learner
from engram.core.registry import Item, recipe
from engram.core.tap import watch
from engram.data.dataset import Data
from engram.figures import classification, pictures, spiking
from engram.figures.figure import Figure
from engram.models.spiking import SpikingNet
from engram.recipes.classify import TINY, Classifier, predict


@recipe
@dataclass(frozen=True, kw_only=True)
class SpikingRecipe(Classifier):
    """Leaky neurons that fire classify pictures, taught by a gradient that stands for the one they do not have."""

    name: ClassVar[str] = "spiking"
    title: ClassVar[str] = "Spiking classifier"
    kind: ClassVar[str] = "neurons"
    notes: ClassVar[str] = "003 §2.5"
    Model: ClassVar[type[nn.Module]] = SpikingNet
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": TINY | {"hidden": (32,), "time": 8},
        "full": {"hidden": (1000, 1000), "steps": 9000, "every": 1000},
    }

    data: str = "fashion"
    steps: int = 2500
    every: int = 500
    model: SpikingNet.Config = field(default_factory=SpikingNet.Config)
    descent: Descent = field(default_factory=lambda: Descent(lr=1e-3, weight_decay=0.0, schedule="linear"))

    def figures(self, learner: Learner, data: Data) -> Iterator[Figure]:
        model = learner.model
        logits_NK, label_N = predict(model, data.test)
        yield classification.confusion(logits_NK, label_N, data.classes)
        yield classification.mistakes(data.test["image"], logits_NK, label_N, data.classes)
        yield from self.views(model, data, 0)[1]
        first = next(weight for weight in model.parameters() if weight.ndim > 1)
        yield pictures.filters(first.detach(), tuple(data.train["image"].shape[1:]))

    def views(self, model: nn.Module, data: Data, item: int) -> tuple[str, list[Figure]]:
        """What one picture was taken for, who fires while it is seen, and what the outputs make of it."""
        with torch.no_grad(), watch(model, "spikes.*", "membrane") as seen:
            said = self.probe(model, data, item)
        layers = {name.removeprefix("spikes."): s_TBN for name, s_TBN in seen.items() if name.startswith("spikes.")}
        rasters = [
            spiking.layer_raster(s_TBN[:, 0], "input" if name == "in" else f"layer {name}")
            for name, s_TBN in layers.items()
        ]
        truth = data.classes[int(data.test["label"][item])]
        return said, [*rasters, spiking.membranes(seen["membrane"][:, 0], data.classes, truth)]

    def look(self, model: nn.Module, data: Data, subject: Item) -> tuple[str, list[Figure]]:
        said, views = self.views(model, data, subject.item)
        picture = pictures.sheet(data.test["image"][torch.tensor([subject.item])], 8)
        return said, [Figure("Picture", f"{said[0].upper()}{said[1:]}.", picture), *views]
