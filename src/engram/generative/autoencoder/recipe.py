"""Recipe of the autoencoder."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from engram.core.learner import Batch, Learner, Metrics
from engram.core.recipe import Sample, SampleRequest
from engram.core.registry import register
from engram.core.seeding import generator
from engram.data.dataset import Data, sample_column
from engram.generative.autoencoder.model import Autoencoder
from engram.generative.base import GenerativeRecipe
from engram.generative.latent import (
    CHANNELS,
    POINTS,
    TINY,
    LatentSampleArgs,
    latent_figures,
    reconstruction_error,
    sample_latent_model,
)
from engram.plots.figure import Figure
from engram.plots.images import sheet
from engram.training.learner import GradientLearner
from engram.training.optimizer import OptimizerConfig


@register
@dataclass(frozen=True, kw_only=True)
class AutoencoderRecipe(GenerativeRecipe[Autoencoder]):
    """Compresses samples to a small latent and reconstructs them."""

    name: ClassVar[str] = "autoencoder"
    title: ClassVar[str] = "Autoencoder"
    Model: ClassVar[type[nn.Module]] = Autoencoder
    SampleArgs: ClassVar[type] = LatentSampleArgs
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": TINY,
        "points": POINTS | {"latent_dim": 1, "steps": 2000, "eval_every": 500},
        "denoising": {"noise": 0.6},
        "full": {"channels": CHANNELS, "steps": 3000, "eval_every": 1000},
    }

    steps: int = 2000
    eval_every: int = 500
    model: Autoencoder.Config = field(default_factory=Autoencoder.Config)
    optimization: OptimizerConfig = field(default_factory=lambda: OptimizerConfig(lr=1e-3, weight_decay=1e-4))
    """optimizer and learning-rate schedule"""

    def learner(self, data: Data) -> GradientLearner[Autoencoder]:
        def loss(model: Autoencoder, batch: Batch) -> tuple[Tensor, Metrics]:
            return model.loss(batch["x"], batch["noise"]), {}

        model = Autoencoder(replace(self.model, **self.sample_space(data)))
        return GradientLearner(model, loss, self.optimization, self.steps)

    def draw_noise(self, x: Tensor, batch: Mapping[str, Any], generator: torch.Generator) -> dict[str, Any]:
        return {"noise": torch.randn(x.shape, generator=generator) if self.model.noise else torch.zeros_like(x)}

    def model_metrics(self, model: Autoencoder, data: Data, split: str) -> dict[str, float]:
        return {"reconstruction_error": reconstruction_error(model, self.real_samples(data, split, 5000))}

    def model_figures(self, model: Autoencoder, data: Data) -> Iterator[Figure]:
        yield from latent_figures(self, model, data)
        if self.model.noise and sample_column(data) == "image":
            x = self.real_samples(data, "test", 16)
            e = torch.randn(x.shape, generator=generator(self.seed, "corrupt"))
            noisy = (x + self.model.noise * model.config.scale * e).clamp(0, 1)
            caption = "Test images with noise above their reconstructions."
            yield Figure("Denoising", caption, sheet(torch.cat([noisy, model(noisy)]), 16))

    def sample(self, learner: Learner[Autoencoder], data: Data, request: SampleRequest) -> Sample:
        return sample_latent_model(self, learner.model, data, request)
