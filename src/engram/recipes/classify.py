"""Classifiers of pictures: what MLP, CNN and ResNet have in common, and the three recipes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram import data as datasets
from engram.core.errors import EngramError
from engram.core.learner import Batch, Descent, Gradient, Learner, Metrics, cut
from engram.core.registry import Recipe, Request, Sample, must_be_item, recipe
from engram.core.seeding import generator
from engram.data.augment import Augment
from engram.data.batches import Batches
from engram.data.dataset import Data, Split
from engram.figures import classification, network, pictures
from engram.figures.figure import Figure
from engram.layers.pictures import brightness
from engram.models.cnn import CNN
from engram.models.mlp import MLP
from engram.models.resnet import ResNet

EVALUATION_BATCH = 500
TINY = {"data": "digits", "steps": 20, "every": 10}


@dataclass(frozen=True, kw_only=True)
class Labelled(Recipe):
    """Pictures in, classes out, however that is learnt."""

    kind: ClassVar[str] = "foundations"
    best: ClassVar[tuple[str, str]] = ("valid_accuracy", "max")

    data: str = "mnist"
    """data set of labelled pictures (`engram data list`), or a path: folder of class folders, .npz, CSV"""
    model: Any
    """the architecture"""
    batch: int = 128
    """pictures in a batch"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch < 1:
            raise EngramError(f"batch must be at least 1, not {self.batch}.")

    @property
    def per_step(self) -> float:
        return self.batch

    def load(self) -> Data:
        return labelled(self)

    def fresh(self, data: Data) -> nn.Module:
        """A model for this data that has learnt nothing."""
        image = data.train["image"]
        seen = {"shape": tuple(image.shape[1:]), "classes": len(data.classes), **brightness(image)}
        return self.built(replace(self.model, **seen), data)

    def built(self, config: Any, data: Data) -> nn.Module:
        return self.Model(config)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Metrics]:
        logits_BK = model(batch["image"])
        loss = F.cross_entropy(logits_BK, batch["label"])
        return loss, {"accuracy": (logits_BK.detach().argmax(1) == batch["label"]).float().mean()}

    def batches(self, data: Data) -> Batches:
        def prepare(batch: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
            image = self.varied(batch["image"].float().div_(255), generator)
            return {"image": image, "label": batch["label"], **self.chance(image, generator)}

        columns = Split({name: data.train[name] for name in ("image", "label")})
        return Batches(columns, self.batch, generator(self.seed, "batches"), prepare)

    def varied(self, image: Tensor, generator: torch.Generator) -> Tensor:
        """Pictures as they are learnt from."""
        return image

    def chance(self, image: Tensor, generator: torch.Generator) -> dict[str, Any]:
        """What else is random in a step."""
        return {}

    def evaluate(self, learner: Learner, data: Data, split: str) -> dict[str, float]:
        logits_NK, label_N = predict(learner.model, data[split])
        measured = {
            "loss": F.cross_entropy(logits_NK, label_N).item(),
            "accuracy": (logits_NK.argmax(1) == label_N).double().mean().item(),
        }
        return measured | self.gradient_flow(learner.model, data[split]) if split == "valid" else measured

    def gradient_flow(self, model: nn.Module, split: Split) -> dict[str, float]:
        """Norm of the gradient in each layer's weights, relative to the weights, on one batch."""
        batch = {"image": split["image"][: self.batch].float() / 255, "label": split["label"][: self.batch]}
        learning = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        layers = {name: weight for name, weight in learning.items() if weight.ndim > 1}
        with torch.enable_grad():
            loss = self.loss(model, batch)[0]
            gradients = torch.autograd.grad(loss, list(layers.values()), allow_unused=True, materialize_grads=True)
        return {
            f"gradient.{name.removesuffix('.weight')}": (gradient.norm() / weight.norm()).item()
            for (name, weight), gradient in zip(layers.items(), gradients, strict=True)
        }

    def figures(self, learner: Learner, data: Data) -> Iterator[Figure]:
        logits_NK, label_N = predict(learner.model, data.test)
        yield classification.confusion(logits_NK, label_N, data.classes)
        yield classification.mistakes(data.test["image"], logits_NK, label_N, data.classes)
        first = next(weight for weight in learner.model.parameters() if weight.ndim > 1)
        yield pictures.filters(first.detach(), tuple(data.train["image"].shape[1:]))
        yield network.activation_maps(learner.model, data.test["image"][:1].float() / 255)

    def probe(self, model: nn.Module, data: Data, item: int) -> str:
        must_be_item(item, len(data.test))
        index = torch.tensor([item])
        p_K = model(data.test["image"][index].float() / 255).softmax(1)[0]
        truth = data.classes[int(data.test["label"][item])]
        return f"test picture {item}, «{truth}», taken for «{data.classes[int(p_K.argmax())]}» ({p_K.max():.1%})"

    def said_by_all(self, names: Sequence[str], model: nn.Module, data: Data, item: int) -> str:
        """What several networks, whose logits come together, take one picture for."""
        must_be_item(item, len(data.test))
        said = model(data.test["image"][[item]].float() / 255)[:, 0].argmax(1).tolist()
        answers = ", ".join(f"{name} says «{data.classes[k]}»" for name, k in zip(names, said, strict=True))
        return f"test picture {item}, «{data.classes[int(data.test['label'][item])]}»: {answers}"

    def sample(self, learner: Learner, data: Data, request: Request) -> Sample:
        return self.answered(learner.model, data, request)

    def answered(self, model: nn.Module, data: Data, request: Request) -> Sample:
        """Pictures of the test split and what a model takes them for."""
        index = torch.randint(len(data.test), (request.count,), generator=request.generator)
        chosen = data.test.take(index)
        p_NK = predict(model, chosen)[0].softmax(1)
        lines = [
            f"{i:>6}  is {data.classes[int(t)]:<12} taken for {data.classes[int(p.argmax())]:<12} {p.max():.1%}"
            for i, t, p in zip(index.tolist(), chosen["label"], p_NK, strict=True)
        ]
        arrays = {"item": index, "image": chosen["image"], "label": chosen["label"], "probability": p_NK}
        return Sample(arrays, "\n".join(lines), pictures.grid(chosen["image"]))


@dataclass(frozen=True, kw_only=True)
class Classifier(Labelled):
    """Pictures in, classes out, learnt by the gradient of the cross-entropy."""

    smoothing: float = 0.0
    """part of the target that is spread over all classes"""
    augment: Augment = field(default_factory=Augment)
    """how pictures are varied while learning"""
    descent: Descent = field(default_factory=Descent)
    """how to go downhill"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.smoothing < 1:
            raise EngramError(f"smoothing is a part, at least 0 and below 1, not {self.smoothing}.")

    def learner(self, data: Data) -> Gradient:
        model = self.fresh(data)
        parts = [share * self.batch for _, share in cut({"x": range(self.batch)}, self.descent.accumulate)]
        if min(parts) < 2 and any(isinstance(module, nn.BatchNorm2d) for module in model.modules()):
            raise EngramError(
                f"Batch normalisation needs two pictures at least: a batch of {self.batch} in "
                f"{self.descent.accumulate} parts leaves one alone."
            )
        return Gradient(model, self.loss, self.descent, self.steps)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Metrics]:
        logits_BK = model(batch["image"])
        loss = F.cross_entropy(logits_BK, batch["label"], label_smoothing=self.smoothing)
        return loss, {"accuracy": (logits_BK.detach().argmax(1) == batch["label"]).float().mean()}

    def varied(self, image: Tensor, generator: torch.Generator) -> Tensor:
        return self.augment(image, generator)


def labelled(recipe: Recipe) -> Data:
    """The data of a recipe, which must be pictures with their classes."""
    loaded = datasets.load(recipe.data)
    missing = {"image", "label"} - set(loaded.train)
    if missing:
        raise EngramError(f"{recipe.name} learns from labelled pictures, and {recipe.data} has no {min(missing)}.")
    return loaded


def predict(model: nn.Module, split: Split) -> tuple[Tensor, Tensor]:
    """Logits of a whole split, batch by batch, and its labels."""
    image, label = split["image"], split["label"]
    parts = torch.arange(len(split)).split(EVALUATION_BATCH)
    with torch.no_grad():
        return torch.cat([model(image[index].float() / 255) for index in parts]), label


@recipe
@dataclass(frozen=True, kw_only=True)
class MLPRecipe(Classifier):
    """Dense layers classify pictures; the place to watch gradients vanish and overfitting set in."""

    name: ClassVar[str] = "mlp"
    title: ClassVar[str] = "Multi-layer perceptron"
    notes: ClassVar[str] = "003 §3.1, §8, §11–12"
    Model: ClassVar[type[nn.Module]] = MLP
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"tiny": TINY}

    steps: int = 4000
    every: int = 400
    batch: int = 256
    model: MLP.Config = field(default_factory=MLP.Config)
    descent: Descent = field(default_factory=lambda: Descent(lr=2e-3, weight_decay=0.0))


@recipe
@dataclass(frozen=True, kw_only=True)
class CNNRecipe(Classifier):
    """Convolutions and pooling classify pictures."""

    name: ClassVar[str] = "cnn"
    title: ClassVar[str] = "Convolutional network"
    notes: ClassVar[str] = "003 §14–15"
    Model: ClassVar[type[nn.Module]] = CNN
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"tiny": TINY | {"channels": (4, 8, 8)}}

    steps: int = 2400
    every: int = 300
    model: CNN.Config = field(default_factory=CNN.Config)
    smoothing: float = 0.05
    augment: Augment = field(default_factory=lambda: Augment(shift=1))
    descent: Descent = field(default_factory=lambda: Descent(lr=3e-3, weight_decay=0.05, schedule="linear", warmup=0.1))


@recipe
@dataclass(frozen=True, kw_only=True)
class ResNetRecipe(Classifier):
    """Blocks that each add a little to what came in classify pictures."""

    name: ClassVar[str] = "resnet"
    title: ClassVar[str] = "Residual network"
    notes: ClassVar[str] = "001 «ResNet», 003 §13–15"
    Model: ClassVar[type[nn.Module]] = ResNet
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": TINY | {"channels": (4, 8, 8)},
        "full": {"channels": (32, 64, 128), "steps": 7700, "every": 700},
    }

    data: str = "fashion"
    steps: int = 2400
    every: int = 300
    model: ResNet.Config = field(default_factory=ResNet.Config)
    smoothing: float = 0.1
    augment: Augment = field(default_factory=lambda: Augment(shift=1, flip=True))
    descent: Descent = field(default_factory=lambda: Descent(lr=3e-3, weight_decay=0.05, schedule="linear", warmup=0.1))
