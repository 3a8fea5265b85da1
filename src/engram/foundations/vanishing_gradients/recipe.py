"""Recipe of vanishing and exploding gradients; batch normalization and residuals as remedies."""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.learner import Batch, Learner, Metrics
from engram.core.registry import register
from engram.data.dataset import Data, Split
from engram.foundations.base import TINY, ImageClassifier
from engram.foundations.vanishing_gradients import plots
from engram.foundations.vanishing_gradients.model import ARCHITECTURES, Architecture, DeepMLP, VanishingGradients
from engram.nn.activation import ActivationName
from engram.plots.figure import Figure
from engram.training.learner import GradientLearner
from engram.training.multi_learner import MultiLearner
from engram.training.optimizer import OptimizerConfig

DEPTHS = (2, 5, 10, 20, 40)
ACTIVATIONS: tuple[ActivationName, ...] = ("logistic", "tanh", "arctan", "relu", "softplus")


@register
@dataclass(frozen=True, kw_only=True)
class VanishingGradientsRecipe(ImageClassifier[VanishingGradients]):
    """Compare deep networks whose gradients vanish or explode with batch-normalized and residual ones."""

    name: ClassVar[str] = "vanishing-gradients"
    title: ClassVar[str] = "Vanishing and exploding gradients"
    predicts: ClassVar[bool] = False
    Model: ClassVar[type[nn.Module]] = VanishingGradients
    best: ClassVar[tuple[str, str]] = ("valid_best_accuracy", "max")
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": TINY | {"layers": 4, "width": 16},
        "exploding": {"activation": "relu", "gain": 2.0, "lr": 1e-5},
        "tanh": {"activation": "tanh"},
    }

    steps: int = 600
    eval_every: int = 100
    batch: Annotated[int, Ge(2)] = 128
    """batch size, in images; batch normalization needs two at least"""
    model: VanishingGradients.Config = field(default_factory=VanishingGradients.Config)
    lr: Annotated[float, Ge(0)] = 0.05
    """learning rate of gradient descent, the same for all networks"""

    def learner(self, data: Data) -> MultiLearner:
        model: Any = self.init_model(data)
        optimization = OptimizerConfig(optimizer="sgd", lr=self.lr, weight_decay=0.0, schedule="constant", warmup=0.0)

        def loss(net: nn.Module, batch: Batch) -> tuple[Tensor, Metrics]:
            logits = net(model.config.standardize(batch["image"]).flatten(1))
            accuracy = (logits.detach().argmax(1) == batch["label"]).float().mean()
            return F.cross_entropy(logits, batch["label"]), {"accuracy": accuracy}

        return MultiLearner(
            {name: GradientLearner(model.nets[name], loss, optimization, self.steps) for name in ARCHITECTURES}, model
        )

    def evaluate(self, learner: Learner[VanishingGradients], data: Data, split: str) -> dict[str, float]:
        model = learner.model
        image, label = data[split]["image"], data[split]["label"]
        with torch.no_grad():
            logits = torch.cat([model(part.float() / 255) for part in image.split(500)], 1)
        accuracy = (logits.argmax(2) == label).double().mean(1)
        metrics = {"best_accuracy": accuracy.max().item()}
        for i, name in enumerate(ARCHITECTURES):
            loss = F.cross_entropy(logits[i].nan_to_num(), label).item()
            metrics |= {f"{name}_loss": loss, f"{name}_accuracy": accuracy[i].item()}
        if split == "valid":
            stride = max(1, self.model.layers // 5)
            for name in ARCHITECTURES:
                norms = self.gradient_norms(model.nets[name], model.config, data.valid)
                metrics |= {f"gradient.{name}.{i}": norm for i, norm in enumerate(norms) if i % stride == 0}
        return metrics

    def gradient_norms(self, net: Any, config: VanishingGradients.Config, split: Split) -> list[float]:
        """Gradient norm of every layer, from the input to the output, relative to the norm of its weights."""
        image, label = split["image"][: self.batch].float() / 255, split["label"][: self.batch]
        net = copy.deepcopy(net).train()  # batch statistics, as in training
        with torch.enable_grad():
            loss = F.cross_entropy(net(config.standardize(image).flatten(1)), label)
            gradients = torch.autograd.grad(loss, [layer.weight for layer in net.layers])
        return [(g.norm() / layer.weight.norm()).item() for g, layer in zip(gradients, net.layers, strict=True)]

    def figures(self, learner: Learner[VanishingGradients], data: Data) -> Iterator[Figure]:
        untrained = self.init_model(data)
        for model, when in ((untrained, "before"), (learner.model, "after")):
            norms: dict[str, list[float]] = {
                name: self.gradient_norms(model.nets[name], model.config, data.test) for name in ARCHITECTURES
            }
            yield plots.gradient_norms(norms, f"Gradients {when} training")
        ratios: dict[str, list[list[float]]] = {
            name: self.gradient_ratios(name, untrained.config, data) for name in ARCHITECTURES
        }
        yield plots.gradient_ratios(ratios, ACTIVATIONS, DEPTHS)

    def gradient_ratios(self, name: Architecture, config: VanishingGradients.Config, data: Data) -> list[list[float]]:
        """Gradient norm of the first layer over that of the last, by activation function and depth."""
        inputs = data.train["image"][0].numel()
        table = []
        for activation in ACTIVATIONS:
            row = []
            for depth in DEPTHS:
                torch.manual_seed(self.seed)
                net = DeepMLP(inputs, len(data.classes), depth, self.model.width, activation, name, self.model.gain)
                norms = self.gradient_norms(net, config, data.test)
                row.append(norms[0] / max(norms[-1], 1e-30))
            table.append(row)
        return table

    def trace(self, model: VanishingGradients, data: Data, item: int) -> str:
        return self.trace_networks(ARCHITECTURES, model, data, item)

    def classifier(self, model: VanishingGradients, data: Data) -> Callable[[Tensor], Tensor]:
        """Return the network with batch normalization and residual connections."""
        return nn.Sequential(Standardize(model.config), model.nets["both"])


class Standardize(nn.Module):
    """Standardizes and flattens images."""

    def __init__(self, config: VanishingGradients.Config) -> None:
        super().__init__()
        self.config = config

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return self.config.standardize(x_BCHW).flatten(1)
