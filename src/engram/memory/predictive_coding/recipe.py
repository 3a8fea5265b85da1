"""Recipe of predictive coding on labeled images, as a classifier or as a generative model."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_types import Ge
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.learner import Learner
from engram.core.recipe import Recipe, Sample, SampleRequest, check_item, choose_items
from engram.core.registry import register
from engram.core.seeding import generator
from engram.data.dataset import Data, Split
from engram.data.loaders import BatchLoader
from engram.foundations.base import load_labeled_images
from engram.memory.predictive_coding import plots as views
from engram.memory.predictive_coding.learner import InferenceConfig, PredictiveCodingLearner
from engram.memory.predictive_coding.model import PredictiveCoding, State
from engram.plots import classification
from engram.plots.figure import Figure
from engram.plots.images import grid, sheet
from engram.training.optimizer import OptimizerConfig

TEST_INFERENCE_STEPS = 100
PLOTTED_STEPS = 60
EVALUATED = 5000
VARIANCES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)
"""variance of the bottom layer over that of the hidden layers: the larger, the closer to backpropagation"""


@register
@dataclass(frozen=True, kw_only=True)
class PredictiveCodingRecipe(Recipe[PredictiveCoding, Data]):
    """Learns by local updates from prediction errors, and compares them with backpropagation."""

    name: ClassVar[str] = "predictive-coding"
    title: ClassVar[str] = "Predictive coding"
    Model: ClassVar[type[nn.Module]] = PredictiveCoding
    best: ClassVar[tuple[str, str]] = ("valid_accuracy", "max")
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"data": "digits", "hidden": (16,), "steps": 20, "eval_every": 10, "inference_steps": 5},
        "generative": {"top": "label", "hidden": (256,), "lr": 1e-3, "bottom_variance": 1.0},
    }

    data: str = "mnist"
    """data set of labeled images (`engram data list`), or a path: folder of class folders, .npz, CSV"""
    steps: Annotated[int, Ge(1)] = 2000
    """number of training steps"""
    eval_every: Annotated[int, Ge(1)] = 400
    """steps between evaluations; each is followed by a checkpoint"""
    batch: Annotated[int, Ge(1)] = 128
    """batch size, in images or rows"""
    top: Literal["image", "label"] = "image"
    """clamped at the top layer: "image" (classifier) or "label" (generative model)"""
    hidden: tuple[int, ...] = (128,)
    """units of the hidden layers, from the bottom to the top"""
    model: PredictiveCoding.Config = field(default_factory=lambda: PredictiveCoding.Config(bottom_variance=30.0))
    """network model"""
    inference: InferenceConfig = field(default_factory=InferenceConfig)
    """inference of the hidden layers"""
    optimization: OptimizerConfig = field(default_factory=lambda: OptimizerConfig(lr=2e-3, weight_decay=0.0))
    """optimizer and learning-rate schedule"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(units < 1 for units in self.hidden):
            raise EngramError(f"hidden layers must have at least one unit, not {self.hidden}.")

    @property
    def items_per_step(self) -> float:
        return self.batch

    def load(self) -> Data:
        return load_labeled_images(self)

    def learner(self, data: Data) -> PredictiveCodingLearner:
        ends = [len(data.classes), data.train["image"][0].numel()]
        bottom, top = ends if self.top == "image" else ends[::-1]
        model = PredictiveCoding(replace(self.model, sizes=(bottom, *self.hidden, top)))
        return PredictiveCodingLearner(model, self.inference, self.optimization, self.steps)

    def batches(self, data: Data) -> BatchLoader:
        def prepare(batch: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
            return dict(zip(("bottom", "top"), self.clamped(batch["image"], batch["label"], data), strict=True))

        columns = Split({name: data.train[name] for name in ("image", "label")})
        return BatchLoader(columns, self.batch, generator(self.seed, "batches"), prepare)

    def clamped(self, image: Tensor, label: Tensor, data: Data) -> tuple[Tensor, Tensor]:
        """Values clamped at the bottom and at the top."""
        pixels, target = image.flatten(1).float() / 255, F.one_hot(label, len(data.classes)).float()
        return (target, pixels) if self.top == "image" else (pixels, target)

    # ------------------------------------------------------------------ evaluation

    def class_scores(self, model: Any, image: Tensor) -> Tensor:
        """Scores of the classes: predicted from the image, or inferred at the top."""
        found = []
        for part in image.split(500):
            pixels = part.flatten(1).float() / 255
            found.append(model(pixels) if self.top == "image" else model.infer_top(pixels, TEST_INFERENCE_STEPS))
        return torch.cat(found)

    def evaluate(self, learner: Learner[PredictiveCoding], data: Data, split: str) -> dict[str, float]:
        image, label = data[split]["image"][:EVALUATED], data[split]["label"][:EVALUATED]
        if split == "test":
            image, label = data.test["image"], data.test["label"]
        right = (self.class_scores(learner.model, image).argmax(1) == label).double().mean().item()
        bottom, top = self.clamped(image[:1000], label[:1000], data)
        model: Any = learner.model
        away = (bottom - model(top)).square().sum(1).mean().item()
        return {"accuracy": right, "loss": 0.5 * away / self.model.bottom_variance}

    # ------------------------------------------------------------------ figures

    def figures(self, learner: Learner[PredictiveCoding], data: Data) -> Iterator[Figure]:
        model: Any = learner.model
        image, label = data.test["image"], data.test["label"]
        logits = self.class_scores(model, image[:2000])
        yield classification.confusion(logits, label[:2000], data.classes)
        bottom, top = self.clamped(image[: self.batch], label[: self.batch], data)
        yield views.plot_inference(self.layer_errors(model, bottom, top))
        yield self.compare_with_backprop(model, bottom, top)
        if self.top == "label":
            yield self.plot_generated(model, data)

    def layer_errors(self, model: Any, bottom: Tensor, top: Tensor) -> Tensor:
        """Energy nu_i |e_i|^2 / 2 of each layer at every inference step, mean over the batch: steps × layers."""
        x = model.predict_all(top)
        x[0] = bottom
        free, found = tuple(range(1, len(x) - 1)), []
        for steps in range(PLOTTED_STEPS):
            state: State = model.relax(x, free, steps)
            each = [0.5 * model.config.nu(i) * e.square().sum(1).mean() for i, e in enumerate(state.e)]
            found.append(torch.stack(each))
        return torch.stack(found)

    def compare_with_backprop(self, model: Any, bottom: Tensor, top: Tensor) -> Figure:
        """Cosine similarity of the local updates and the gradients of backpropagation."""
        cosine_SL = torch.stack([update_similarity(model, bottom, top, nu) for nu in VARIANCES])
        return views.plot_update_similarity(VARIANCES, cosine_SL)

    def plot_generated(self, model: Any, data: Data) -> Figure:
        classes = torch.eye(len(data.classes))
        images = model(classes).clamp(0, 1).view(-1, *data.train["image"].shape[1:])
        caption = "The image that each label predicts."
        return Figure("Generated", caption, sheet(images, 10, data.classes))

    def trace(self, model: PredictiveCoding, data: Data, item: int) -> str:
        check_item(item, len(data.test))
        _, top = self.clamped(data.test["image"][item : item + 1], data.test["label"][item : item + 1], data)
        model(top)
        return f"test image {item}, label {data.classes[int(data.test['label'][item])]}"

    def sample(self, learner: Learner[PredictiveCoding], data: Data, request: SampleRequest) -> Sample:
        """Test images with their true and predicted classes."""
        index = choose_items(request.count, len(data.test), request.generator)
        chosen = data.test.take(index)
        answer = self.class_scores(learner.model, chosen["image"]).argmax(1)
        lines = [
            f"{i:>6}  true {data.classes[int(t)]:<12} predicted {data.classes[int(a)]}"
            for i, t, a in zip(index.tolist(), chosen["label"], answer, strict=True)
        ]
        arrays = {"item": index, "image": chosen["image"], "label": chosen["label"], "answer": answer}
        return Sample(arrays, "\n".join(lines), grid(chosen["image"]))


def update_similarity(model: PredictiveCoding, bottom: Tensor, top: Tensor, times: float) -> Tensor:
    """Cosine of local updates and gradients in each layer, with nu_1 = `times` × nu of the hidden layers."""
    other = copy.deepcopy(model)
    other.config = replace(model.config, bottom_variance=times * model.config.variance)
    state, _ = other.infer_hidden(bottom, top, 500)
    with torch.enable_grad():
        weights = [weight.detach().requires_grad_() for weight in model.M]
        x = top
        for i in reversed(range(len(weights))):
            x = torch.addmm(model.beta[i].detach(), model.sigma(x), weights[i])
        loss = 0.5 * (bottom - x).square().sum(1).mean()
        gradients = torch.autograd.grad(loss, weights)
    local = [model.sigma(state.x[i + 1]).T @ e for i, e in enumerate(state.e)]
    return torch.stack(
        [F.cosine_similarity(a.flatten(), -b.flatten(), dim=0) for a, b in zip(local, gradients, strict=True)]
    )
