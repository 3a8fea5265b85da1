"""Base recipe of restricted Boltzmann machines and deep belief networks.

Binary units, contrastive divergence.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, cast

import torch
from annotated_types import Ge
from torch import Tensor

from engram import data as datasets
from engram.core.errors import EngramError
from engram.core.learner import Learner, M
from engram.core.recipe import Recipe, Sample, SampleRequest, check_item
from engram.core.seeding import generator
from engram.data.dataset import Data, Split, sample_column
from engram.data.loaders import BatchLoader
from engram.data.table_splits import TableOptions, normalize_rows
from engram.memory.rbm import plots
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
    """Train binary units by contrastive divergence on images or table rows; sample by Gibbs sampling.

    A pixel is on with the probability of its brightness; a column of a table with that of its value, scaled to 0…1.
    """

    unit: ClassVar[str] = "samples"

    data: str = "mnist"
    """data set of images or a table (`engram data list`), or a path: folder of images, .npz, .npy, CSV"""
    steps: int = 12_000
    eval_every: int = 1200
    batch: Annotated[int, Ge(1)] = 100
    """samples per batch"""
    model: Any
    """architecture"""
    contrastive_divergence: ContrastiveDivergenceConfig = field(default_factory=ContrastiveDivergenceConfig)
    """contrastive divergence settings"""
    table: TableOptions = field(default_factory=TableOptions)

    @property
    def items_per_step(self) -> float:
        return self.batch

    def load(self) -> Data:
        loaded = datasets.load(self.data, **self.table.options())
        if not {"image", "point"} & set(loaded.train):
            raise EngramError(f"{self.name} learns from images or rows of a table, and {self.data} has neither.")
        return normalize_rows(loaded)

    def batches(self, data: Data) -> BatchLoader:
        name = sample_column(data)

        def prepare(batch: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
            return {"visible": binarize(batch[name], generator)}

        return BatchLoader(Split({name: data.train[name]}), self.batch, generator(self.seed, "batches"), prepare)

    def binarized(self, data: Data, split: str, count: int) -> Tensor:
        """Return the first samples of a split as rows of 0 and 1, the same ones every time."""
        return binarize(data[split][sample_column(data)][:count], generator(self.seed, split))

    def trace(self, model: M, data: Data, item: int) -> str:
        check_item(item, len(data.test))
        model(self.binarized(data, "test", item + 1)[item:])
        return f"test {'image' if sample_column(data) == 'image' else 'row'} {item}"

    def to_images(self, v_NV: Tensor, data: Data) -> Tensor:
        """Reshape rows of visible units to images, N × C × H × W."""
        return v_NV.view(-1, *data.train["image"].shape[1:])

    def row_figures(self, model: Any, W_VH: Tensor, data: Data) -> Iterator[Figure]:
        """Yield figures of a model of rows: weights by column, means of samples and of test rows."""
        names = data.encoder.names if data.encoder else [str(i) for i in range(len(W_VH))]
        yield plots.column_weights(W_VH, names)
        samples = model.sample(1000, SAMPLE_STEPS, generator(self.seed, "dreams"))
        yield plots.column_means({"test rows": data.test["point"].clamp(0, 1), "samples": samples}, names)

    def sample_figures(self, model: Any, data: Data) -> Iterator[Figure]:
        """Yield figures of samples and of reconstructions."""
        caption = f"Samples after {SAMPLE_STEPS} Gibbs steps from random noise."
        samples = self.to_images(model.sample(64, SAMPLE_STEPS, generator(self.seed, "dreams")), data)
        yield Figure("Samples", caption, images.sheet(samples, 16))
        v_NV = self.binarized(data, "test", 16)
        both = self.to_images(torch.cat([v_NV, model(v_NV)]), data)
        yield Figure("Reconstructions", "Test images above, their reconstructions below.", images.sheet(both, 16))

    def sample(self, learner: Learner[M], data: Data, request: SampleRequest) -> Sample:
        """Sample images or rows by Gibbs sampling."""
        v_NV = cast(Any, learner.model).sample(request.count, SAMPLE_STEPS, request.generator)
        if sample_column(data) == "point":
            if data.encoder is None:
                return Sample({"point": v_NV}, f"{request.count} rows", rows=[{"point": v} for v in v_NV.tolist()])
            text, rows = data.encoder.to_csv(v_NV.numpy()), data.encoder.decode_rows(v_NV.numpy())
            return Sample({"point": v_NV}, text, rows=rows)
        image = self.to_images(v_NV, data)
        text = f"{request.count} images, each after {SAMPLE_STEPS} Gibbs steps from noise"
        return Sample({"image": image}, text, images.grid(image))


def binarize(x: Tensor, generator: torch.Generator) -> Tensor:
    """Sample rows of 0 and 1 from images (uint8) or from rows of numbers, clipped to 0…1."""
    p_NV = x.flatten(1).float().div_(255) if x.dtype == torch.uint8 else x.clamp(0, 1)
    return sample_bernoulli(p_NV, generator)
