"""Base of all recipes that classify images.

Data, cross-entropy loss, metrics, figures and predictions.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from engram.core.tap import watch
from engram.data.augment import Augment
from engram.data.dataset import Data, Split
from engram.data.loaders import BatchLoader
from engram.hub.classify import ImageInspectArgs, ImageSampleArgs, class_scores, classify_image, load_image
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
    SampleArgs: ClassVar[type] = ImageSampleArgs
    InspectArgs: ClassVar[type] = ImageInspectArgs

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
        """Share of the target distribution that is spread over all classes.

        Recipes with this flag declare a field.
        """
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

    def classifier(self, model: M, data: Data) -> Callable[[Tensor], Tensor]:
        """Return the network whose logits of the classes are the predictions."""
        return class_scores(model)

    def trace(self, model: M, data: Data, item: int) -> str:
        check_item(item, len(data.test))
        output_K = self.classifier(model, data)(inputs_at(data.test, torch.tensor([item])))[0]
        row, kind = self.describe_prediction(item, output_K, data), "image" if "image" in data.test else "row"
        return f'test {kind} {item}, true "{row["true"]}", predicted "{row["predicted"]}" ({row["probability"]:.1%})'

    def describe_prediction(self, item: int, output_K: Tensor, data: Data) -> dict[str, Any]:
        """Return true and predicted class of a test sample, and the probability of the predicted one."""
        p, k = output_K.softmax(0).max(0)
        true = data.classes[int(data.test["label"][item])]
        return {"item": item, "true": true, "predicted": data.classes[int(k)], "probability": p.item()}

    def trace_networks(self, names: Sequence[str], model: nn.Module, data: Data, item: int) -> str:
        """Predictions of several networks, whose logits the model stacks, for one test image."""
        check_item(item, len(data.test))
        predicted = model(data.test["image"][[item]].float() / 255)[:, 0].argmax(1).tolist()
        words = ", ".join(f'{name} predicts "{data.classes[k]}"' for name, k in zip(names, predicted, strict=True))
        return f'test image {item}, true "{data.classes[int(data.test["label"][item])]}": {words}'

    def inspect(self, model: M, data: Data, args: Any) -> tuple[str, list[Figure]] | None:
        """Classify an image file, and show the recorded activations."""
        if not args.image:
            return None
        with watch(model) as activations:
            description, _ = self.inspected(model, data, args)
        return description, list(network.activation_figures(activations))

    def inspected(self, model: Any, data: Data, args: Any) -> tuple[str, Tensor]:
        """Return a description of the prediction for the inspected image, and the image, 1 × C × H × W."""
        if not args.image:
            return self.trace(model, data, args.item), inputs_at(data.test, torch.tensor([args.item]))
        image_1CHW = load_image(args.image, model.config.shape, data.preprocess)
        best = classify_image(self.classifier(model, data), image_1CHW, data.classes).rows[0]
        return f'{args.image}, predicted "{best["class"]}" ({best["probability"]:.1%})', image_1CHW

    def sample(self, learner: Learner[M], data: Data, request: SampleRequest) -> Sample:
        """Classify an image file, or random images of the test split."""
        model: Any = learner.model
        scores = self.classifier(model, data)
        if request.args.image:
            image_1CHW = load_image(request.args.image, model.config.shape, data.preprocess)
            return classify_image(scores, image_1CHW, data.classes)
        index = choose_items(request.count, len(data.test), request.generator)
        chosen = data.test.select(index)
        output_NK = predict_split(scores, chosen)
        rows = [self.describe_prediction(i, one, data) for i, one in zip(index.tolist(), output_NK, strict=True)]
        lines = [
            f"{row['item']:>6}  true {row['true']:<12} predicted {row['predicted']:<12} {row['probability']:.1%}"
            for row in rows
        ]
        arrays = {
            "item": index,
            "image": chosen["image"],
            "label": chosen["label"],
            "probability": output_NK.softmax(1),
        }
        return Sample(arrays, "\n".join(lines), images.grid(chosen["image"]), rows=rows)


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
