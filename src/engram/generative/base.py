"""Base recipe of generative models.

Data, evaluation and figures that autoencoder, VAE, GAN and diffusion share.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_types import Ge
from torch import Tensor

from engram import data as datasets
from engram.core.errors import EngramError
from engram.core.learner import Learner, M
from engram.core.recipe import Recipe, Sample, check_item
from engram.core.seeding import generator
from engram.data.dataset import Data, Split, sample_column
from engram.data.loaders import BatchLoader
from engram.data.table_splits import TableOptions, standardize_rows
from engram.generative.feature_extractor import SampleQuality, build_feature_extractor, take_samples
from engram.metrics.generative import nearest_neighbors
from engram.plots import generative as views
from engram.plots.figure import Figure
from engram.plots.images import grid

PointsName = Literal["moons", "spirals", "rings", "gaussians", "checkerboard", "swiss-roll"]
POINTS = 20_000
CHUNK = 250
"""samples generated at a time"""


@dataclass(frozen=True, kw_only=True)
class GenerativeRecipe(Recipe[M, Data]):
    """Base of recipes whose model generates images or points like those of a data set."""

    best: ClassVar[tuple[str, str]] = ("valid_frechet_distance", "min")
    unit: ClassVar[str] = "samples"
    samples: ClassVar[int] = 64

    data: str = "mnist"
    """data set of images or a table (`engram data list`), "points", or a path: folder of images, .npz, .npy, CSV"""
    points: PointsName = "moons"
    """distribution of the points, for --data points"""
    batch: Annotated[int, Ge(2)] = 128
    """samples per batch"""
    eval_samples: Annotated[int, Ge(10)] = 5000
    """samples generated for the final evaluation; a fifth of them for each evaluation during training"""
    model: Any
    """architecture"""
    table: TableOptions = field(default_factory=TableOptions)

    @property
    def items_per_step(self) -> float:
        return self.batch

    # ------------------------------------------------------------------ data

    def load(self) -> Data:
        if self.data == "points":
            return datasets.load("points", shape=self.points, count=POINTS)
        loaded = datasets.load(self.data, **self.table.options())
        if not {"image", "point"} & set(loaded.train):
            raise EngramError(f"{self.name} learns from images or points, and {self.data} has neither.")
        loaded = standardize_rows(loaded)
        build_feature_extractor(loaded, sample_column(loaded))  # may be trained first: better now than after an hour
        return loaded

    def sample_space(self, data: Data) -> dict[str, Any]:
        """Fields of the model's `SampleSpace` that follow from the data."""
        x = data.train[sample_column(data)]
        shape = tuple(x.shape[1:])
        if sample_column(data) == "image":
            return {"shape": shape}
        return {"shape": shape, "center": x.mean().item(), "scale": x.std().item()}

    def batches(self, data: Data) -> BatchLoader:
        name = sample_column(data)

        def prepare(batch: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
            x = batch.pop(name)
            x = x.float().div_(255) if name == "image" else x
            return {"x": x, **self.draw_noise(x, batch, generator)}

        columns = {key: data.train[key] for key in (name, "label") if key in data.train}
        return BatchLoader(Split(columns), self.batch, generator(self.seed, "batches"), prepare)

    @abstractmethod
    def draw_noise(self, x: Tensor, batch: Mapping[str, Any], generator: torch.Generator) -> dict[str, Any]:
        """Draw everything random that a training step on `x` needs; it is added to the batch."""

    def real_samples(self, data: Data, split: str, count: int) -> Tensor:
        """The first `count` samples of a split; pixels from 0 to 1."""
        return take_samples(data[split], sample_column(data), count)

    # ------------------------------------------------------------------ evaluation

    def generate(self, model: Any, count: int, generator: torch.Generator) -> Tensor:
        """Generate `count` samples at once."""
        return model.sample(count, generator)

    def generate_chunks(self, model: Any, count: int, generator: torch.Generator) -> Tensor:
        """Generate `count` samples, `CHUNK` at a time."""
        return torch.cat([self.generate(model, min(CHUNK, count - i), generator) for i in range(0, count, CHUNK)])

    @abstractmethod
    def model_metrics(self, model: Any, data: Data, split: str) -> dict[str, float]:
        """Metrics that only this kind of model has: its loss, reconstruction error, a bound of the likelihood."""

    def evaluate(self, learner: Learner[M], data: Data, split: str) -> dict[str, float]:
        """Metrics of this kind of model, and those of its generated samples."""
        count = self.eval_samples if split == "test" else self.eval_samples // 5
        quality = SampleQuality.of(data, split, sample_column(data), count)
        samples = self.generate_chunks(learner.model, quality.size, generator(self.seed, "measured"))
        metrics = quality.compute(samples)
        if split != "test":
            del metrics["frechet_distance_real"]  # constant during training
        return self.model_metrics(learner.model, data, split) | metrics

    # ------------------------------------------------------------------ figures

    def figures(self, learner: Learner[M], data: Data) -> Iterator[Figure]:
        model, is_image = learner.model, sample_column(data) == "image"
        x = self.generate_chunks(model, 64 if is_image else 2000, generator(self.seed, "figures"))
        yield views.samples_figure(x, self.real_samples(data, "test", 2000), "Samples of the model, not selected.")
        quality = SampleQuality.of(data, "test", sample_column(data), min(1000, self.eval_samples))
        samples = self.generate_chunks(model, quality.size, generator(self.seed, "measured"))
        yield views.quality_figure(quality.compute(samples))
        if is_image:
            _, index = nearest_neighbors(x[:16], quality.train)
            yield views.nearest_training_images(x, quality.train[index])
        yield from self.model_figures(model, data)

    @abstractmethod
    def model_figures(self, model: Any, data: Data) -> Iterator[Figure]:
        """Figures that only this kind of model has."""

    def trace(self, model: M, data: Data, item: int) -> str:
        check_item(item, len(data.test))
        x = take_samples(data.test.select(torch.tensor([item])), sample_column(data), 1)
        self.run_model(model, x)
        return f"test sample {item}"

    def run_model(self, model: Any, x: Tensor) -> None:
        """Run the model on a sample, for active taps."""
        model(x)


def decode_rows(sample: Sample, data: Data) -> Sample:
    """Samples of a table as values of its columns; other samples stay as they are."""
    if data.encoder is None:
        return sample
    point_NF = sample.arrays["point"].numpy()
    return replace(sample, text=data.encoder.to_csv(point_NF), rows=data.encoder.decode_rows(point_NF))


def as_sample(x: Tensor, text: str, columns: int = 0, arrays: Mapping[str, Tensor] | None = None) -> Sample:
    """Generated samples as arrays and as one image: a grid of images, or the density of points."""
    if x.ndim == 4:
        return Sample({"image": x, **(arrays or {})}, text, grid(x, columns))
    rows = [{"point": point} for point in x.tolist()]
    return Sample({"point": x, **(arrays or {})}, text, views.density(x), rows=rows)
