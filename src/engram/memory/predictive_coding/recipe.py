"""Recipe of predictive coding on labeled images or table rows, as classifier or generative model."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_types import Ge
from torch import Tensor, nn
from torch.nn import functional as F

from engram import data as datasets
from engram.core.errors import EngramError
from engram.core.learner import Learner
from engram.core.recipe import Recipe, Sample, SampleRequest, check_item, choose_items
from engram.core.registry import register
from engram.core.seeding import generator
from engram.data.dataset import Data, Split, sample_column
from engram.data.loaders import BatchLoader
from engram.data.table_splits import TableOptions, standardize_rows
from engram.hub.classify import ImageSampleArgs, classify_image, load_image
from engram.hub.predict import describe_data
from engram.memory.predictive_coding import plots as views
from engram.memory.predictive_coding.learner import InferenceConfig, PredictiveCodingLearner
from engram.memory.predictive_coding.model import PredictiveCoding, State
from engram.plots import classification
from engram.plots.figure import Figure
from engram.plots.images import grid, sheet
from engram.training.optimizer import OptimizerConfig

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

    unit: ClassVar[str] = "samples"
    SampleArgs: ClassVar[type] = ImageSampleArgs

    data: str = "mnist"
    """data set of labeled images or a table (`engram data list`), or a path: folder of class folders, .npz, CSV"""
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
    table: TableOptions = field(default_factory=TableOptions)
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
        loaded = datasets.load(self.data, **self.table.options())
        missing = [] if {"image", "point"} & set(loaded.train) else ["images nor rows"]
        missing += [] if "label" in loaded.train else ["classes"]
        if missing:
            raise EngramError(f"{self.name} learns from labeled images or rows, and {self.data} has no {missing[0]}.")
        return standardize_rows(loaded)

    def files(self, data: Data) -> Mapping[str, bytes]:
        return describe_data(data, probabilities=False)

    def learner(self, data: Data) -> PredictiveCodingLearner:
        ends = [len(data.classes), data.train[sample_column(data)][0].numel()]
        bottom, top = ends if self.top == "image" else ends[::-1]
        sizes, classes = (bottom, *self.hidden, top), "bottom" if self.top == "image" else "top"
        model = PredictiveCoding(replace(self.model, sizes=sizes, classes=classes))  # type: ignore[arg-type]
        return PredictiveCodingLearner(model, self.inference, self.optimization, self.steps)

    def batches(self, data: Data) -> BatchLoader:
        name = sample_column(data)

        def prepare(batch: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
            return dict(zip(("bottom", "top"), self.clamped(batch[name], batch["label"], data), strict=True))

        columns = Split({column: data.train[column] for column in (name, "label")})
        return BatchLoader(columns, self.batch, generator(self.seed, "batches"), prepare)

    def clamped(self, x: Tensor, label: Tensor, data: Data) -> tuple[Tensor, Tensor]:
        """Values clamped at the bottom and at the top."""
        inputs, target = as_inputs(x), F.one_hot(label, len(data.classes)).float()
        return (target, inputs) if self.top == "image" else (inputs, target)

    # ------------------------------------------------------------------ evaluation

    def class_scores(self, model: Any, x: Tensor) -> Tensor:
        """Scores of the classes: predicted from the inputs, or inferred at the top."""
        return torch.cat([model.predict_scores(as_inputs(part)) for part in x.split(500)])

    def evaluate(self, learner: Learner[PredictiveCoding], data: Data, split: str) -> dict[str, float]:
        count = len(data.test) if split == "test" else EVALUATED
        x, label = data[split][sample_column(data)][:count], data[split]["label"][:count]
        right = (self.class_scores(learner.model, x).argmax(1) == label).double().mean().item()
        bottom, top = self.clamped(x[:1000], label[:1000], data)
        model: Any = learner.model
        away = (bottom - model(top)).square().sum(1).mean().item()
        return {"accuracy": right, "loss": 0.5 * away / self.model.bottom_variance}

    # ------------------------------------------------------------------ figures

    def figures(self, learner: Learner[PredictiveCoding], data: Data) -> Iterator[Figure]:
        model: Any = learner.model
        x, label = data.test[sample_column(data)], data.test["label"]
        logits = self.class_scores(model, x[:2000])
        yield classification.confusion(logits, label[:2000], data.classes)
        bottom, top = self.clamped(x[: self.batch], label[: self.batch], data)
        yield views.plot_inference(self.layer_errors(model, bottom, top))
        yield self.compare_with_backprop(model, bottom, top)
        if self.top == "label" and "image" in data.test:
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
        name = sample_column(data)
        _, top = self.clamped(data.test[name][item : item + 1], data.test["label"][item : item + 1], data)
        model(top)
        kind = "image" if name == "image" else "row"
        return f"test {kind} {item}, label {data.classes[int(data.test['label'][item])]}"

    def sample(self, learner: Learner[PredictiveCoding], data: Data, request: SampleRequest) -> Sample:
        """Classify an image file, or random images or rows of the test split."""
        if request.args.image:
            if sample_column(data) != "image":
                raise EngramError("The model takes rows of a table, not images.")
            image = load_image(request.args.image, data.train["image"].shape[1:])
            scores: Any = learner.model
            return classify_image(
                lambda x: scores.predict_scores(x.flatten(1)), image, data.classes, probabilities=False
            )
        index = choose_items(request.count, len(data.test), request.generator)
        chosen, name = data.test.select(index), sample_column(data)
        answer = self.class_scores(learner.model, chosen[name]).argmax(1)
        rows = [
            {"item": i, "true": data.classes[t], "predicted": data.classes[a]}
            for i, t, a in zip(index.tolist(), chosen["label"].tolist(), answer.tolist(), strict=True)
        ]
        lines = [f"{row['item']:>6}  true {row['true']:<12} predicted {row['predicted']}" for row in rows]
        arrays = {"item": index, name: chosen[name], "label": chosen["label"], "answer": answer}
        return Sample(arrays, "\n".join(lines), grid(chosen["image"]) if name == "image" else None, rows=rows)


def as_inputs(x: Tensor) -> Tensor:
    """Return the values of a layer: pixels from 0 to 1, or standardized rows of a table."""
    return x.flatten(1).float() / 255 if x.dtype == torch.uint8 else x


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
