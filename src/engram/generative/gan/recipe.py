"""Recipe of the generative adversarial network (GAN)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from engram.core.learner import Learner
from engram.core.recipe import Sample, SampleRequest
from engram.core.registry import register
from engram.core.seeding import generator
from engram.data.dataset import Data, sample_column
from engram.generative.base import CHUNK, GenerativeRecipe
from engram.generative.gan.learner import GANLearner, GANTrainingConfig
from engram.generative.gan.model import GAN
from engram.generative.latent import CHANNELS, POINTS, TINY, LatentSampleArgs, latent_figures, sample_latent_model
from engram.plots import generative as views
from engram.plots.figure import Figure


@register
@dataclass(frozen=True, kw_only=True)
class GANRecipe(GenerativeRecipe[GAN]):
    """A generator learns to make samples that a discriminator, trained beside it, takes for real."""

    name: ClassVar[str] = "gan"
    title: ClassVar[str] = "Generative adversarial network"
    Model: ClassVar[type[nn.Module]] = GAN
    SampleArgs: ClassVar[type] = LatentSampleArgs
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": TINY,
        "points": POINTS | {
            "latent_dim": 2, "steps": 4000, "eval_every": 1000, "lr": 1e-3, "discriminator_lr": 1e-3,
        },
        "full": {"channels": (48, 96), "steps": 8000, "eval_every": 2000},
    }  # fmt: skip

    steps: int = 2500
    eval_every: int = 500
    batch: int = 64
    model: GAN.Config = field(default_factory=lambda: GAN.Config(channels=CHANNELS, hidden=()))
    training: GANTrainingConfig = field(default_factory=GANTrainingConfig)
    """losses, optimizers and EMA"""

    def learner(self, data: Data) -> GANLearner:
        norm = self.model.discriminator_norm and self.training.loss != "wgan-gp"
        model = GAN(replace(self.model, discriminator_norm=norm, **self.sample_space(data)))
        return GANLearner(model, self.training, self.steps)

    def draw_noise(self, x: Tensor, batch: Mapping[str, Any], generator: torch.Generator) -> dict[str, Any]:
        sets = self.training.discriminator_steps + 1
        return {"latents": torch.randn(len(x), sets, self.model.latent_dim, generator=generator)}

    def model_metrics(self, model: GAN, data: Data, split: str) -> dict[str, float]:
        """Accuracy of the discriminator on real and generated samples; 0.5 is chance."""
        real = torch.cat([model(part) for part in self.real_samples(data, split, 1000).split(CHUNK)])
        fake = model(self.generate_chunks(model, len(real), generator(self.seed, "judged")))
        return {"discriminator_accuracy": (((real > 0).float().mean() + (fake <= 0).float().mean()) / 2).item()}

    def model_figures(self, model: GAN, data: Data) -> Iterator[Figure]:
        yield from latent_figures(self, model, data)
        if sample_column(data) == "point" and data.train["point"].shape[1] == 2:
            caption = "Logit of the discriminator over the plane (positive: real), with real and generated points."
            fake = self.generate_chunks(model, 1000, generator(self.seed, "field"))
            yield views.scalar_field(model, self.real_samples(data, "test", 1000), fake, "Discriminator logit", caption)

    def sample(self, learner: Learner[GAN], data: Data, request: SampleRequest) -> Sample:
        return sample_latent_model(self, learner.model, data, request)
