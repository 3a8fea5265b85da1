"""Base recipe of restricted Boltzmann machines and deep belief networks: binarized images, contrastive divergence."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import torch
from annotated_types import Ge
from torch import Tensor

from engram import data as datasets
from engram.core.errors import EngramError
from engram.core.learner import Learner, M
from engram.core.recipe import Recipe, Sample, SampleRequest, check_item
from engram.core.seeding import generator
from engram.data.dataset import Data, Split
from engram.data.loaders import BatchLoader
from engram.memory.rbm.learner import ContrastiveDivergenceConfig
from engram.nn.bernoulli import sample_bernoulli
from engram.plots import images
from engram.plots.figure import Figure

SAMPLE_STEPS = 1000
"""Gibbs steps of a sample"""
EVALUATED = 10_000
"""samples of a split that metrics are computed on"""


@dataclass(frozen=True, kw_only=True)
class BoltzmannRecipe(Recipe[M, Data]):
    """Train binary units on images by contrastive divergence and sample new images by Gibbs sampling."""

    data: str = "mnist"
    """image data set (`engram data list`), or a path: folder of images, .npz, .npy"""
    steps: int = 12_000
    eval_every: int = 1200
    batch: Annotated[int, Ge(1)] = 100
    """images per batch"""
    model: Any
    """architecture"""
    contrastive_divergence: ContrastiveDivergenceConfig = field(default_factory=ContrastiveDivergenceConfig)
    """contrastive divergence settings"""

    @property
    def items_per_step(self) -> float:
        return self.batch

    def load(self) -> Data:
        loaded = datasets.load(self.data)
        if "image" not in loaded.train:
            raise EngramError(f"{self.name} learns from images, and {self.data} has none.")
        return loaded

    def batches(self, data: Data) -> BatchLoader:
        def prepare(batch: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
            return {"visible": binarize(batch["image"], generator)}

        return BatchLoader(Split({"image": data.train["image"]}), self.batch, generator(self.seed, "batches"), prepare)

    def binarized(self, data: Data, split: str, count: int) -> Tensor:
        """Return the first images of a split as rows of 0 and 1, the same ones every time."""
        return binarize(data[split]["image"][:count], generator(self.seed, split))

    def trace(self, model: M, data: Data, item: int) -> str:
        check_item(item, len(data.test))
        model(self.binarized(data, "test", item + 1)[item:])
        return f"test image {item}"

    def to_images(self, v_NV: Tensor, data: Data) -> Tensor:
        """Reshape rows of visible units to images, N × C × H × W."""
        return v_NV.view(-1, *data.train["image"].shape[1:])

    def sample_images(self, model: Any, data: Data, count: int, random: torch.Generator) -> Tensor:
        """Sample images by Gibbs chains from noise."""
        return self.to_images(model.sample(count, SAMPLE_STEPS, random), data)

    def sample_figures(self, model: Any, data: Data) -> Iterator[Figure]:
        """Yield figures of samples and of reconstructions."""
        caption = f"Samples after {SAMPLE_STEPS} Gibbs steps from random noise."
        samples = self.sample_images(model, data, 64, generator(self.seed, "dreams"))
        yield Figure("Samples", caption, images.sheet(samples, 16))
        v_NV = self.binarized(data, "test", 16)
        both = self.to_images(torch.cat([v_NV, model(v_NV)]), data)
        yield Figure("Reconstructions", "Test images above, their reconstructions below.", images.sheet(both, 16))

    def sample(self, learner: Learner[M], data: Data, request: SampleRequest) -> Sample:
        """Sample images by Gibbs sampling."""
        image = self.sample_images(learner.model, data, request.count, request.generator)
        text = f"{request.count} images, each after {SAMPLE_STEPS} Gibbs steps from noise"
        return Sample({"image": image}, text, images.grid(image))


def binarize(image_NCHW: Tensor, generator: torch.Generator) -> Tensor:
    """Sample rows of 0 and 1 from images: a pixel is on with the probability of its brightness."""
    return sample_bernoulli(image_NCHW.flatten(1).float().div_(255), generator)
