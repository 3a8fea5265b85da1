"""Recipe of the variational autoencoder (VAE)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor, nn

from engram.core.learner import Batch, Learner, Metrics
from engram.core.recipe import Sample, SampleRequest
from engram.core.registry import register
from engram.core.seeding import generator
from engram.data.dataset import Data
from engram.generative.base import GenerativeRecipe
from engram.generative.latent import (
    POINTS,
    TINY,
    LatentSampleArgs,
    latent_figures,
    reconstruction_error,
    sample_latent_model,
)
from engram.generative.vae.model import VAE
from engram.nn.bernoulli import sample_bernoulli
from engram.plots.figure import Figure
from engram.training.learner import GradientLearner
from engram.training.optimizer import OptimizerConfig

LIKELIHOOD_SAMPLES = {"valid": 500, "test": 2000}
"""samples of a split whose IWAE bound is computed"""


@register
@dataclass(frozen=True, kw_only=True)
class VAERecipe(GenerativeRecipe[VAE]):
    """Autoencoder with a Gaussian posterior near a Gaussian prior, whose samples can be decoded."""

    name: ClassVar[str] = "vae"
    title: ClassVar[str] = "Variational autoencoder"
    Model: ClassVar[type[nn.Module]] = VAE
    SampleArgs: ClassVar[type] = LatentSampleArgs
    best: ClassVar[tuple[str, str]] = ("valid_loss", "min")
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": TINY | {"importance_samples": 5},
        "points": POINTS | {"latent_dim": 2, "steps": 4000, "eval_every": 1000, "sigma": 0.1},
        "plane": {"latent_dim": 2},
        "full": {
            "hidden": (512, 512), "latent_dim": 40, "steps": 20_000, "eval_every": 5000, "importance_samples": 500,
        },
    }  # fmt: skip

    steps: int = 3000
    eval_every: int = 750
    model: VAE.Config = field(default_factory=VAE.Config)
    beta: Annotated[float, Ge(0)] = 1.0
    """weight of the KL term: 1 gives the ELBO; above 1 encourages disentangled latents but blurs reconstructions"""
    binarize: bool = True
    """binarize pixels at random, with their brightness as probability, whenever they are loaded (bernoulli only)"""
    importance_samples: Annotated[int, Ge(1)] = 100
    """importance samples of the IWAE bound in the final evaluation; a tenth of them during training"""
    optimization: OptimizerConfig = field(default_factory=lambda: OptimizerConfig(lr=1e-3, weight_decay=0.0))
    """optimizer and learning-rate schedule"""

    def learner(self, data: Data) -> GradientLearner[VAE]:
        def loss(model: VAE, batch: Batch) -> tuple[Tensor, Metrics]:
            total, reconstruction, divergence = model.loss(batch["x"], batch["noise"], self.beta)
            return total, {"reconstruction_nll": reconstruction.detach(), "kl": divergence.detach()}

        model = VAE(replace(self.model, **self.sample_space(data)))
        return GradientLearner(model, loss, self.optimization, self.steps)

    def draw_noise(self, x: Tensor, batch: Mapping[str, Any], generator: torch.Generator) -> dict[str, Any]:
        noise = torch.randn(len(x), self.model.latent_dim, generator=generator)
        return {"x": self.binarize_pixels(x, generator), "noise": noise}

    def binarize_pixels(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Draw black or white pixels with their brightness as probability, if the recipe binarizes."""
        return (
            sample_bernoulli(x, generator)
            if self.binarize and x.ndim == 4 and self.model.likelihood == "bernoulli"
            else x
        )

    def model_metrics(self, model: VAE, data: Data, split: str) -> dict[str, float]:
        """Loss (negative ELBO for beta 1), divergence, IWAE bound of log p(x) in nats, reconstruction error."""
        random = generator(self.seed, "bound")
        x = self.binarize_pixels(self.real_samples(data, split, LIKELIHOOD_SAMPLES[split]), random)
        e_NZ = torch.randn(len(x), self.model.latent_dim, generator=random)
        total, _, divergence = model.loss(x, e_NZ, self.beta)
        samples = self.importance_samples if split == "test" else max(1, self.importance_samples // 10)
        bound = torch.cat([model.iwae_bound(part, samples, random) for part in x.split(20)])
        return {
            "loss": total.item(),
            "kl": divergence.item(),
            "iwae_bound": bound.mean().item(),
            "reconstruction_error": reconstruction_error(model, self.real_samples(data, split, 5000)),
        }

    def model_figures(self, model: VAE, data: Data) -> Iterator[Figure]:
        yield from latent_figures(self, model, data)

    def sample(self, learner: Learner[VAE], data: Data, request: SampleRequest) -> Sample:
        return sample_latent_model(self, learner.model, data, request)
