r"""Variational autoencoder (VAE), trained on the evidence lower bound (ELBO) (Kingma & Welling 2014).

    \mu, \log \sigma^2 = f(x)                                      encoder: mean and log variance of q(z|x)      (1)
    z = \mu + \sigma \odot \epsilon                                reparameterization                            (2)
    \log p(x|z) = \sum x \log y + (1 - x) \log(1 - y)              Bernoulli likelihood                          (3)
    \log p(x|z) = \sum \log N(x; g(z), s^2)                        Gaussian likelihood                           (4)
    KL = 1/2 \sum (\sigma^2 + \mu^2 - \log \sigma^2 - 1)           divergence of q(z|x) from N(0, I)             (5)
    L = -\log p(x|z) + \beta KL                                    loss; with weight 1 the negative ELBO         (6)
    \log p(x) \ge \log 1/K \sum_k p(x|z_k) p(z_k) / q(z_k|x)       importance-weighted (IWAE) bound              (7)
    x' = g(z), z \sim N(0, I)                                      new samples                                   (8)

    Symbols:
        x            sample
        z            latent
        f, g         encoder and decoder
        y            sigmoid of g(z), the probability of white
        \epsilon     noise from N(0, I)
        s            standard deviation of the Gaussian likelihood
        \beta        weight of the divergence (Higgins et al. 2017)
        B, Z, K      batch, latent dimensions, importance samples

The IWAE bound is that of Burda, Grosse & Salakhutdinov (2016): it is tighter, the more importance samples there are.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Gt
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.fit import FitMixin
from engram.core.tap import tap
from engram.nn.activation import ActivationName
from engram.nn.encoders import LatentConfig, build_encoder_decoder, initialize


class VAE(FitMixin, nn.Module):
    """Variational autoencoder with a diagonal Gaussian posterior and a Bernoulli or Gaussian likelihood."""

    @dataclass(frozen=True, kw_only=True)
    class Config(LatentConfig):
        latent_dim: int = 20
        activation: ActivationName = "relu"
        """activation function of the hidden units"""
        likelihood: Literal["bernoulli", "gaussian"] = "bernoulli"
        """p(x|z) of a pixel: black or white, or any shade; points are always gaussian"""
        sigma: Annotated[float, Gt(0)] = 0.1
        """standard deviation of the gaussian likelihood (s), in units of the data"""

        @property
        def bernoulli(self) -> bool:
            return self.likelihood == "bernoulli" and self.is_image

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.encoder, self.decoder = build_encoder_decoder(
            config, 2 * config.latent_dim, config.latent_dim, config.activation
        )
        initialize(self)

    def posterior(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance of q(z|x), B × Z each."""
        mu_BZ, logvar_BZ = self.encoder(self.config.normalize(x)).chunk(2, -1)
        return tap("mean", mu_BZ), tap("log_variance", logvar_BZ.clamp(-20, 20))  # (1)

    def encode(self, x: Tensor) -> Tensor:
        """Mean of the latents of samples, B × Z."""
        self.config.check(x)
        return self.posterior(x)[0]

    def decode(self, z_BZ: Tensor) -> Tensor:
        """Mean of p(x|z)."""
        g = self.decoder(z_BZ)
        return tap("reconstruction", torch.sigmoid(g) if self.config.bernoulli else self.config.denormalize(g))

    def forward(self, x: Tensor) -> Tensor:
        return self.decode(self.encode(x))

    def log_likelihood(self, x: Tensor, z_BZ: Tensor) -> Tensor:
        """log p(x|z) in nats, B."""
        g = self.decoder(z_BZ)
        if self.config.bernoulli:
            return -F.binary_cross_entropy_with_logits(g, x, reduction="none").flatten(1).sum(1)  # (3)
        sigma = self.config.sigma
        residual = (x - (self.config.center + self.config.scale * g)) / sigma
        return (-0.5 * residual.square() - math.log(sigma * math.sqrt(2 * math.pi))).flatten(1).sum(1)  # (4)

    def loss(self, x: Tensor, noise_BZ: Tensor, beta: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
        """Negative ELBO of a batch with the noise given, its reconstruction term, and its divergence."""
        mu_BZ, logvar_BZ = self.posterior(x)
        z_BZ = mu_BZ + (0.5 * logvar_BZ).exp() * noise_BZ  # (2)
        reconstruction = -self.log_likelihood(x, z_BZ).mean()
        divergence = kl(mu_BZ, logvar_BZ).mean()
        return reconstruction + beta * divergence, reconstruction, divergence  # (6)

    def iwae_bound(self, x: Tensor, samples: int, generator: torch.Generator, chunk: int = 50) -> Tensor:
        """Return the IWAE bound: importance-weighted bound of log p(x) in nats, B; with one sample the ELBO."""
        mu_BZ, logvar_BZ = self.posterior(x)
        parts = []
        for start in range(0, samples, chunk):
            K = min(chunk, samples - start)
            e_KBZ = torch.randn(K, *mu_BZ.shape, generator=generator)
            z_KBZ = mu_BZ + (0.5 * logvar_BZ).exp() * e_KBZ
            repeated = x.expand(K, *x.shape).flatten(0, 1)
            log_x_KB = self.log_likelihood(repeated, z_KBZ.flatten(0, 1)).view(K, -1)
            log_ratio_KB = 0.5 * (e_KBZ.square() + logvar_BZ - z_KBZ.square()).sum(-1)  # log p(z) - log q(z|x)
            parts.append(log_x_KB + log_ratio_KB)
        return torch.cat(parts).logsumexp(0) - math.log(samples)  # (7)

    def sample_latents(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw latents from the prior N(0, I)."""
        return torch.randn(count, self.config.latent_dim, generator=generator)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        return self.decode(self.sample_latents(count, generator))  # (8)


def kl(mu_BZ: Tensor, logvar_BZ: Tensor) -> Tensor:
    """Kullback–Leibler divergence of N(mu, exp(logvar)) from N(0, I), B."""
    return 0.5 * (logvar_BZ.exp() + mu_BZ.square() - logvar_BZ - 1).sum(-1)  # (5)
