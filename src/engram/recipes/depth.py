"""Vanishing and exploding gradients as they happen, and what helps."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.learner import Batch, Descent, Gradient, Learner, Metrics
from engram.core.registry import Request, Sample, recipe
from engram.core.side_by_side import SideBySide
from engram.data.dataset import Data, Split
from engram.figures import depth as views
from engram.figures.figure import Figure
from engram.layers.activation import ActivationName
from engram.models.depth import KINDS, Deep, Depth
from engram.recipes.classify import TINY, Labelled

DEPTHS = (2, 5, 10, 20, 40)
ACTIVATIONS: tuple[ActivationName, ...] = ("logistic", "tanh", "arctan", "relu", "softplus")


@recipe
@dataclass(frozen=True, kw_only=True)
class DepthRecipe(Labelled):
    """Gradients vanish or explode on their way through many layers; normalisation and residuals keep them alive."""

    name: ClassVar[str] = "depth"
    title: ClassVar[str] = "Vanishing and exploding gradients"
    notes: ClassVar[str] = "003 §11–13"
    Model: ClassVar[type[nn.Module]] = Depth
    best: ClassVar[tuple[str, str]] = ("valid_best", "max")
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": TINY | {"depth": 4, "width": 16},
        "exploding": {"activation": "relu", "gain": 2.0, "lr": 1e-5},
        "tanh": {"activation": "tanh"},
    }

    steps: int = 600
    every: int = 100
    model: Depth.Config = field(default_factory=Depth.Config)
    lr: float = 0.05
    """learning rate of plain gradient descent, the same for all"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.lr >= 0:
            raise EngramError(f"lr must not be negative or NaN, and is {self.lr}.")
        if self.batch < 2:
            raise EngramError(f"Batch normalisation needs two pictures at least, and batch is {self.batch}.")

    def learner(self, data: Data) -> SideBySide:
        model: Any = self.fresh(data)
        descent = Descent(optimizer="sgd", lr=self.lr, weight_decay=0.0, schedule="constant", warmup=0.0)

        def loss(net: nn.Module, batch: Batch) -> tuple[Tensor, Metrics]:
            logits = net(model.config.standardise(batch["image"]).flatten(1))
            right = (logits.detach().argmax(1) == batch["label"]).float().mean()
            return F.cross_entropy(logits, batch["label"]), {"accuracy": right}

        return SideBySide({kind: Gradient(model.nets[kind], loss, descent, self.steps) for kind in KINDS}, model)

    def evaluate(self, learner: Learner, data: Data, split: str) -> dict[str, float]:
        model: Any = learner.model
        image, label = data[split]["image"], data[split]["label"]
        with torch.no_grad():
            logits = torch.cat([model(part.float() / 255) for part in image.split(500)], 1)
        accuracy = (logits.argmax(2) == label).double().mean(1)
        found = {"best": accuracy.max().item()}
        for i, kind in enumerate(KINDS):
            loss = F.cross_entropy(logits[i].nan_to_num(), label).item()
            found |= {f"{kind}_loss": loss, f"{kind}_accuracy": accuracy[i].item()}
        if split == "valid":
            for kind in KINDS:
                sizes = self.sizes(model.nets[kind], model, data.valid)
                found |= {f"gradient.{kind}.{i}": size for i, size in enumerate(sizes) if i % self.stride == 0}
        return found

    @property
    def stride(self) -> int:
        """Layers between two that are shown."""
        return max(1, self.model.depth // 5)

    def sizes(self, net: Any, model: Any, split: Split) -> list[float]:
        """The norm of the gradient in every layer, from the input to the output, relative to the weights."""
        image, label = split["image"][: self.batch].float() / 255, split["label"][: self.batch]
        net = copy.deepcopy(net).train()  # as while learning: batches are normalised by themselves
        with torch.enable_grad():
            loss = F.cross_entropy(net(model.config.standardise(image).flatten(1)), label)
            gradients = torch.autograd.grad(loss, [layer.weight for layer in net.layers])
        return [(g.norm() / layer.weight.norm()).item() for g, layer in zip(gradients, net.layers, strict=True)]

    def figures(self, learner: Learner, data: Data) -> Iterator[Figure]:
        model: Any = learner.model
        fresh: Any = self.fresh(data)
        now: dict[str, list[float]] = {kind: self.sizes(model.nets[kind], model, data.test) for kind in KINDS}
        first: dict[str, list[float]] = {kind: self.sizes(fresh.nets[kind], fresh, data.test) for kind in KINDS}
        yield views.layers(first, "Gradients before learning")
        yield views.layers(now, "Gradients after learning")
        yield views.grid({kind: self.ratios(kind, fresh, data) for kind in KINDS}, ACTIVATIONS, DEPTHS)

    def ratios(self, kind: Any, fresh: Any, data: Data) -> list[list[float]]:
        """Gradient of the first layer over that of the last, for each activation and depth."""
        inputs = data.train["image"][0].numel()
        table = []
        for activation in ACTIVATIONS:
            row = []
            for depth in DEPTHS:
                torch.manual_seed(self.seed)
                net = Deep(inputs, len(data.classes), depth, self.model.width, activation, kind, self.model.gain)
                sizes = self.sizes(net, fresh, data.test)
                row.append(sizes[0] / max(sizes[-1], 1e-30))
            table.append(row)
        return table

    def probe(self, model: nn.Module, data: Data, item: int) -> str:
        return self.said_by_all(KINDS, model, data, item)

    def sample(self, learner: Learner, data: Data, request: Request) -> Sample:
        """Pictures of the test split and what the network with norm and residuals takes them for."""
        model: Any = learner.model
        flat = nn.Sequential(Standard(model.config), model.nets["both"])
        return self.answered(flat, data, request)


class Standard(nn.Module):
    """Pixels as the networks take them."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config

    def forward(self, x_BCHW: Tensor) -> Tensor:
        found: Tensor = self.config.standardise(x_BCHW).flatten(1)
        return found
