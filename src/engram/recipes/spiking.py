"""A spiking classifier, taught by surrogate gradients."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import nn

from engram.core.learner import Descent, Learner
from engram.core.registry import recipe
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
        with torch.no_grad(), watch(model, "spikes.*", "membrane") as seen:
            model(data.test["image"][:1].float() / 255)
        for name in seen:
            if name.startswith("spikes."):
                yield spiking.layer_raster(seen[name][:, 0], f"layer {name.removeprefix('spikes.')}")
        yield spiking.membranes(seen["membrane"][:, 0], data.classes, data.classes[int(data.test["label"][0])])
        first = next(weight for weight in model.parameters() if weight.ndim > 1)
        yield pictures.filters(first.detach(), tuple(data.train["image"].shape[1:]))
