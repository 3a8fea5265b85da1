"""Recipe of the multi-layer perceptron (MLP), on images and on tables."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn

from engram import data as datasets
from engram.core.errors import EngramError
from engram.core.learner import Batch, Learner, Metrics
from engram.core.recipe import Sample, SampleRequest, check_item, choose_items
from engram.core.registry import register
from engram.core.seeding import generator
from engram.data.dataset import Data, Split
from engram.data.loaders import BatchLoader
from engram.data.table_splits import TableOptions
from engram.foundations.base import TINY, ImageClassifier, predict
from engram.foundations.mlp import plots, tables
from engram.foundations.mlp.model import MLP
from engram.hub.predict import predict_split
from engram.plots import classification
from engram.plots.figure import Figure
from engram.training.learner import GradientLearner
from engram.training.optimizer import OptimizerConfig


@register
@dataclass(frozen=True, kw_only=True)
class MLPRecipe(ImageClassifier[MLP]):
    """Classify images, or predict a column of a table, with a multi-layer perceptron."""

    name: ClassVar[str] = "mlp"
    title: ClassVar[str] = "Multi-layer perceptron"
    Model: ClassVar[type[nn.Module]] = MLP
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": TINY,
        "table": {"data": "breast-cancer", "steps": 300, "eval_every": 30, "batch": 64, "hidden": (64,), "lr": 3e-3,
                  "weight_decay": 0.1, "warmup": 0},
    }  # fmt: skip

    data: str = "mnist"
    """data set of labeled images or a table (`engram data list`), or a path: folder of images, CSV, Parquet, .npz"""
    steps: int = 4000
    eval_every: int = 400
    batch: int = 256
    model: MLP.Config = field(default_factory=MLP.Config)
    table: TableOptions = field(default_factory=TableOptions)
    label_smoothing: Annotated[float, Ge(0), Lt(1)] = 0.0
    """share of the target distribution spread over all classes; 0 disables"""
    optimization: OptimizerConfig = field(default_factory=lambda: OptimizerConfig(lr=2e-3, weight_decay=0.0))
    """optimizer and learning-rate schedule"""

    def load(self) -> Data:
        loaded = datasets.load(self.data, **self.table.options())
        inputs = {"image", "point"} & set(loaded.train)
        if not inputs:
            raise EngramError(f"{self.name} learns from labeled images or tables, and {self.data} holds neither.")
        if not {"label", "target"} & set(loaded.train):
            what = "image has a label" if "image" in inputs else "column is named target: give --target COLUMN"
            raise EngramError(f"{self.name} learns to predict, and in {self.data} no {what}.")
        return loaded

    def derived_config(self, data: Data) -> dict[str, Any]:
        if "image" in data.train:
            return super().derived_config(data)
        point_NF = data.train["point"].double()
        mean_F, std_F = point_NF.mean(0), point_NF.std(0, correction=0)
        std_F = torch.where(std_F > 1e-12 * mean_F.abs().clamp(min=1), std_F, torch.ones_like(std_F))
        found = {"shape": (point_NF.shape[1],), "mean": tuple(mean_F.tolist()), "std": tuple(std_F.tolist())}
        if "label" in data.train:
            return {**found, "classes": len(data.classes)}
        target_N = data.train["target"].double()
        spread = target_N.std(correction=0).item() or 1.0
        return {**found, "classes": 1, "output": "number", "target_mean": target_N.mean().item(),
                "target_std": spread}  # fmt: skip

    def learner(self, data: Data) -> GradientLearner[MLP]:
        return self.gradient_learner(data, self.optimization)

    # ------------------------------------------------------------------ tables

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Metrics]:
        """Cross-entropy, or for regression the mean squared error in standard deviations of the target."""
        if "target" not in batch:
            return super().loss(model, batch)
        config: Any = model.config
        error_B = (model(batch["image"]) - batch["target"]) / config.target_std
        return error_B.square().mean(), {}

    def batches(self, data: Data) -> BatchLoader:
        if "image" in data.train:
            return super().batches(data)
        target = "label" if "label" in data.train else "target"
        columns = Split({"image": data.train["point"], target: data.train[target]})
        return BatchLoader(columns, self.batch, generator(self.seed, "batches"))

    def score(self, outputs_NK: Tensor, split: Split) -> dict[str, float]:
        """Metrics of outputs; also of regression, and the area under the ROC curve of two classes."""
        if "label" in split:
            found = super().score(outputs_NK, split)
            two = "point" in split and outputs_NK.shape[1] == 2
            return {**found, "auc": tables.auc(outputs_NK, split["label"])} if two else found
        return tables.regression_metrics(outputs_NK, split["target"])

    def evaluate(self, learner: Learner[MLP], data: Data, split: str) -> dict[str, float]:
        metrics = super().evaluate(learner, data, split)
        if "label" in data.train:
            return metrics
        config: Any = learner.model.config
        return {"loss": (metrics["rmse"] / config.target_std) ** 2, **metrics}

    def figures(self, learner: Learner[MLP], data: Data) -> Iterator[Figure]:
        if "image" in data.train:
            yield from super().figures(learner, data)
        elif "label" in data.train:
            logits_NK, label_N = predict(learner.model, data.test)
            yield classification.confusion(logits_NK, label_N, data.classes)
            if len(data.classes) == 2:
                yield from plots.binary_figures(logits_NK.softmax(1)[:, 1], label_N == 1, data.classes[1])
            yield plots.calibration_figure(logits_NK, label_N)
            yield self.importance(learner.model, data)
        else:
            name = data.target or "target"
            yield from plots.regression_figures(predict_split(learner.model, data.test), data.test["target"], name)
            yield self.importance(learner.model, data)

    def importance(self, model: MLP, data: Data) -> Figure:
        """Permutation importance of the columns, by accuracy or R²."""
        assert data.encoder is not None
        target = data.test["label"] if "label" in data.test else data.test["target"]

        def score(output: Tensor) -> float:
            if "label" in data.test:
                return (output.argmax(1) == target).double().mean().item()
            return tables.regression_metrics(output, target)["r2"]

        found = tables.permutation_importance(model, data.test, data.encoder, score, self.seed)
        return plots.importance_figure(found, "accuracy" if "label" in data.test else "R²")

    def trace(self, model: MLP, data: Data, item: int) -> str:
        if "target" not in data.test:
            return super().trace(model, data, item)
        check_item(item, len(data.test))
        row = self.describe_prediction(item, model(data.test["point"][[item]])[0], data)
        return f"test row {item}, true {row['true']:.6g}, predicted {row['predicted']:.6g}"

    def describe_prediction(self, item: int, output_K: Tensor, data: Data) -> dict[str, Any]:
        """Also of regression: true and predicted number."""
        if "target" not in data.test:
            return super().describe_prediction(item, output_K, data)
        return {"item": item, "true": data.test["target"][item].item(), "predicted": output_K.item()}

    def sample(self, learner: Learner[MLP], data: Data, request: SampleRequest) -> Sample:
        """Random rows of the test split with their predictions."""
        if "image" in data.train or request.args.image:
            return super().sample(learner, data, request)
        index = choose_items(request.count, len(data.test), request.generator)
        chosen = data.test.select(index)
        output = predict_split(learner.model, chosen)
        rows = [self.describe_prediction(i, one, data) for i, one in zip(index.tolist(), output, strict=True)]
        lines = [self.trace(learner.model, data, item) for item in index.tolist()]
        arrays = {"item": index, **chosen.columns, "prediction": output}
        return Sample(arrays, "\n".join(lines), rows=rows)
