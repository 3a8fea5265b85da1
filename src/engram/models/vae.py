"""Variational autoencoder (Kingma & Welling 2014; note 003 §21).   B batch, Z size of the code, K draws of a code

    mu, log s^2 = f(x)                             encoder: where the code lies, and how surely                    (1)
    z = mu + s * e,  e ~ N(0, I)                   a code, drawn so that gradients reach mu and s                  (2)
    log p(x|z) = sum x log y + (1 - x) log(1 - y)  y = sigma(g(z)): Bernoulli, black or white                      (3)
    log p(x|z) = sum log N(x; g(z), d^2)           or Gaussian: squared error                                      (4)
    KL = 1/2 sum(s^2 + mu^2 - log s^2 - 1)         how far the code's distribution is from N(0, I)                 (5)
    E = mean(-log p(x|z) + beta KL)                loss; with beta = 1 it bounds -log p(x)                         (6)
    log p(x) >= log 1/K sum_k p(x|z_k) p(z_k) / q(z_k|x)     a tighter bound, the tighter the more draws           (7)
    x' = g(z),  z ~ N(0, I)                        new things                                                      (8)

(7) is that of Burda, Grosse & Salakhutdinov (2016), who name it the importance-weighted bound.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.tap import tap
from engram.layers.activation import ActivationName
from engram.layers.coders import Coding, coders, initialise


class VAE(nn.Module):
    """A thing, the distribution of its code, and what codes stand for."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Coding):
        code: int = 20
        activation: ActivationName = "relu"
        """function of every hidden unit"""
        pixels: Literal["bernoulli", "gaussian"] = "bernoulli"
        """whether a pixel is black or white, or any shade; points are always gaussian"""
        deviation: float = 0.1
        """how far gaussian data may be from what the decoder says (d), in its own units"""

        def __post_init__(self) -> None:
            super().__post_init__()
            if not self.deviation > 0:
                raise EngramError(f"deviation must be above 0, not {self.deviation}.")

        @property
        def binary(self) -> bool:
            return self.pixels == "bernoulli" and self.pictures

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.encoder, self.decoder = coders(config, 2 * config.code, config.code, config.activation)
        initialise(self)

    def posterior(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance of the code of x."""
        mu_BZ, logvar_BZ = self.encoder(self.config.inside(x)).chunk(2, -1)
        return tap("mean", mu_BZ), tap("log_variance", logvar_BZ.clamp(-20, 20))  # (1)

    def encode(self, x: Tensor) -> Tensor:
        """The middle of where the codes of things lie."""
        return self.posterior(x)[0]

    def decode(self, z_BZ: Tensor) -> Tensor:
        """What codes stand for: the mean of p(x|z)."""
        g = self.decoder(z_BZ)
        return tap("reconstruction", torch.sigmoid(g) if self.config.binary else self.config.outside(g))

    def forward(self, x: Tensor) -> Tensor:
        return self.decode(self.encode(x))

    def log_likelihood(self, x: Tensor, z_BZ: Tensor) -> Tensor:
        """log p(x|z), one number for each of the batch."""
        g = self.decoder(z_BZ)
        if self.config.binary:
            return -F.binary_cross_entropy_with_logits(g, x, reduction="none").flatten(1).sum(1)  # (3)
        d = self.config.deviation
        away = (x - (self.config.centre + self.config.scale * g)) / d
        return (-0.5 * away.square() - math.log(d * math.sqrt(2 * math.pi))).flatten(1).sum(1)  # (4)

    def loss(self, x: Tensor, noise_BZ: Tensor, beta: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
        """(6) for a batch, with e given, and the means of its two parts."""
        mu_BZ, logvar_BZ = self.posterior(x)
        z_BZ = mu_BZ + (0.5 * logvar_BZ).exp() * noise_BZ  # (2)
        reconstruction = -self.log_likelihood(x, z_BZ).mean()
        divergence = kl(mu_BZ, logvar_BZ).mean()
        return reconstruction + beta * divergence, reconstruction, divergence  # (6)

    def bound(self, x: Tensor, draws: int, generator: torch.Generator, at_once: int = 50) -> Tensor:
        """(7): a lower bound of log p(x) in nats, one number for each of the batch; with one draw, that of (6)."""
        mu_BZ, logvar_BZ = self.posterior(x)
        parts = []
        for start in range(0, draws, at_once):
            K = min(at_once, draws - start)
            e_KBZ = torch.randn(K, *mu_BZ.shape, generator=generator)
            z_KBZ = mu_BZ + (0.5 * logvar_BZ).exp() * e_KBZ
            many = x.expand(K, *x.shape).flatten(0, 1)
            log_x_KB = self.log_likelihood(many, z_KBZ.flatten(0, 1)).view(K, -1)
            log_ratio_KB = 0.5 * (e_KBZ.square() + logvar_BZ - z_KBZ.square()).sum(-1)  # log p(z) - log q(z|x)
            parts.append(log_x_KB + log_ratio_KB)
        return torch.cat(parts).logsumexp(0) - math.log(draws)  # (7)

    def codes(self, count: int, generator: torch.Generator) -> Tensor:
        return torch.randn(count, self.config.code, generator=generator)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        return self.decode(self.codes(count, generator))  # (8)


def kl(mu_BZ: Tensor, logvar_BZ: Tensor) -> Tensor:
    """(5), one number for each of the batch."""
    return 0.5 * (logvar_BZ.exp() + mu_BZ.square() - logvar_BZ - 1).sum(-1)
