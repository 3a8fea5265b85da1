"""Base of all recipes that classify images: data, cross-entropy loss, metrics, figures and predictions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor, nn
from torch.nn import functional as F

from engram import data as datasets
from engram.core.errors import EngramError
from engram.core.learner import Batch, Learner, M, Metrics
from engram.core.recipe import AnyRecipe, Recipe, Sample, SampleRequest, check_item, choose_items
from engram.core.seeding import generator
from engram.data.augment import Augment
from engram.data.dataset import Data, Split
from engram.data.loaders import BatchLoader
from engram.hub.predict import describe_data, inputs_at, predict_split
from engram.nn.image_input import pixel_statistics
from engram.plots import classification, images, network
from engram.plots.figure import Figure
from engram.training.learner import GradientLearner, micro_batches
from engram.training.optimizer import OptimizerConfig

TINY = {"data": "digits", "steps": 20, "eval_every": 10}


@dataclass(frozen=True, kw_only=True)
class ImageClassifier(Recipe[M, Data]):
    """Classifies labeled images by the cross-entropy of the model's logits."""

    best: ClassVar[tuple[str, str]] = ("valid_accuracy", "max")
    predicts: ClassVar[bool] = True
    """whether the model gives logits of one network"""

    data: str = "mnist"
    """data set of labeled images (`engram data list`), or a path: folder of class folders, .npz, CSV"""
    model: Any
    """the architecture"""
    batch: Annotated[int, Ge(1)] = 128
    """batch size, in images"""
    augment: Augment = field(default_factory=Augment)
    """random augmentation of the training images"""

    @property
    def label_smoothing(self) -> float:
        """Share of the target distribution that is spread over all classes; recipes with this flag declare a field."""
        return 0.0

    @property
    def items_per_step(self) -> float:
        return self.batch

    def load(self) -> Data:
        return load_labeled_images(self)

    def files(self, data: Data) -> Mapping[str, bytes]:
        if not self.predicts:
            return {}
        return describe_data(data)

    # ------------------------------------------------------------------ model and learner

    def init_model(self, data: Data) -> M:
        """Build an untrained model for the image shape, the classes and the pixel statistics of the data."""
        return self.build_model(replace(self.model, **self.derived_config(data)), data)

    def derived_config(self, data: Data) -> dict[str, Any]:
        """Return the fields of the model's configuration that follow from the data."""
        image = data.train["image"]
        return {"shape": tuple(image.shape[1:]), "classes": len(data.classes), **pixel_statistics(image)}

    def build_model(self, config: Any, data: Data) -> M:
        """Build the model of a complete configuration."""
        model: Any = self.Model(config)
        return model

    def gradient_learner(self, data: Data, optimization: OptimizerConfig) -> GradientLearner[M]:
        """Build an untrained model and a learner that minimizes `loss`."""
        model = self.init_model(data)
        sizes = [share * self.batch for _, share in micro_batches({"x": range(self.batch)}, optimization.grad_accum)]
        if min(sizes) < 2 and any(isinstance(module, nn.BatchNorm2d) for module in model.modules()):
            raise EngramError(
                f"Batch normalization needs two images at least: a batch of {self.batch} in "
                f"{optimization.grad_accum} parts leaves one alone."
            )
        return GradientLearner(model, self.loss, optimization, self.steps)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Metrics]:
        """Cross-entropy of a batch, and its accuracy."""
        logits_BK = model(batch["image"])
        loss = F.cross_entropy(logits_BK, batch["label"], label_smoothing=self.label_smoothing)
        return loss, {"accuracy": (logits_BK.detach().argmax(1) == batch["label"]).float().mean()}

    def batches(self, data: Data) -> BatchLoader:
        def prepare(batch: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
            image = self.augment(batch["image"].float().div_(255), generator)
            return {"image": image, "label": batch["label"], **self.random_inputs(image, generator)}

        columns = Split({name: data.train[name] for name in ("image", "label")})
        return BatchLoader(columns, self.batch, generator(self.seed, "batches"), prepare)

    def random_inputs(self, image: Tensor, generator: torch.Generator) -> dict[str, Any]:
        """Further random inputs of a training step, such as the start of an attack."""
        return {}

    # ------------------------------------------------------------------ metrics and figures

    def evaluate(self, learner: Learner[M], data: Data, split: str) -> dict[str, float]:
        metrics = self.score(predict_split(learner.model, data[split]), data[split])
        return metrics | self.gradient_flow(learner.model, data[split]) if split == "valid" else metrics

    def score(self, outputs_NK: Tensor, split: Split) -> dict[str, float]:
        """Metrics of the model's outputs for the samples of a split."""
        label_N = split["label"]
        return {
            "loss": F.cross_entropy(outputs_NK, label_N).item(),
            "accuracy": (outputs_NK.argmax(1) == label_N).double().mean().item(),
        }

    def gradient_flow(self, model: nn.Module, split: Split) -> dict[str, float]:
        """Gradient norm of each layer's weights divided by the norm of the weights, on one batch."""
        batch = self.first_batch(split)
        trainable = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        layers = {name: weight for name, weight in trainable.items() if weight.ndim > 1}
        with torch.enable_grad():
            loss = self.loss(model, batch)[0]
            gradients = torch.autograd.grad(loss, list(layers.values()), allow_unused=True, materialize_grads=True)
        return {
            f"gradient.{name.removesuffix('.weight')}": (gradient.norm() / weight.norm()).item()
            for (name, weight), gradient in zip(layers.items(), gradients, strict=True)
        }

    def first_batch(self, split: Split) -> Batch:
        """Return the first samples of a split as a training batch, without augmentation."""
        first, target = torch.arange(min(self.batch, len(split))), "target" if "target" in split else "label"
        return {"image": inputs_at(split, first), target: split[target][first]}

    def figures(self, learner: Learner[M], data: Data) -> Iterator[Figure]:
        logits_NK, label_N = predict(learner.model, data.test)
        yield classification.confusion(logits_NK, label_N, data.classes)
        yield classification.mistakes(data.test["image"], logits_NK, label_N, data.classes)
        first = next(weight for weight in learner.model.parameters() if weight.ndim > 1)
        yield images.filters(first.detach(), tuple(data.train["image"].shape[1:]))
        yield network.activation_maps(learner.model, data.test["image"][:1].float() / 255)

    # ------------------------------------------------------------------ predictions

    def trace(self, model: M, data: Data, item: int) -> str:
        check_item(item, len(data.test))
        p_K = model(inputs_at(data.test, torch.tensor([item]))).softmax(1)[0]
        truth = data.classes[int(data.test["label"][item])]
        kind = "image" if "image" in data.test else "row"
        return f'test {kind} {item}, true "{truth}", predicted "{data.classes[int(p_K.argmax())]}" ({p_K.max():.1%})'

    def trace_networks(self, names: Sequence[str], model: nn.Module, data: Data, item: int) -> str:
        """Predictions of several networks, whose logits the model stacks, for one test image."""
        check_item(item, len(data.test))
        predicted = model(data.test["image"][[item]].float() / 255)[:, 0].argmax(1).tolist()
        words = ", ".join(f'{name} predicts "{data.classes[k]}"' for name, k in zip(names, predicted, strict=True))
        return f'test image {item}, true "{data.classes[int(data.test["label"][item])]}": {words}'

    def sample(self, learner: Learner[M], data: Data, request: SampleRequest) -> Sample:
        return self.sample_predictions(learner.model, data, request)

    def sample_predictions(self, model: nn.Module, data: Data, request: SampleRequest) -> Sample:
        """Random images of the test split with the predicted class and its probability."""
        index = choose_items(request.count, len(data.test), request.generator)
        chosen = data.test.take(index)
        p_NK = predict(model, chosen)[0].softmax(1)
        lines = [
            f"{i:>6}  true {data.classes[int(t)]:<12} predicted {data.classes[int(p.argmax())]:<12} {p.max():.1%}"
            for i, t, p in zip(index.tolist(), chosen["label"], p_NK, strict=True)
        ]
        arrays = {"item": index, "image": chosen["image"], "label": chosen["label"], "probability": p_NK}
        return Sample(arrays, "\n".join(lines), images.grid(chosen["image"]))


def load_labeled_images(recipe: AnyRecipe) -> Data:
    """Load the data of a recipe, and refuse data without images or labels."""
    loaded = datasets.load(recipe.data)
    missing = {"image", "label"} - set(loaded.train)
    if missing:
        raise EngramError(f"{recipe.name} learns from labeled images, and {recipe.data} has no {min(missing)}.")
    return loaded


def predict(model: nn.Module, split: Split) -> tuple[Tensor, Tensor]:
    """Logits of a whole split, computed batch by batch, and its labels."""
    return predict_split(model, split), split["label"]
