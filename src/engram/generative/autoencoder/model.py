r"""Autoencoder: encoder and decoder (Rumelhart et al. 1986; denoising: Vincent et al. 2008).

    z = f(x + s \epsilon)                                  encoder; s > 0: denoising autoencoder                (1)
    x' = g(z)                                              decoder; tied: the encoder's weights transposed      (2)
    L = ||x' - x||^2 / D                                   reconstruction loss, averaged over the batch         (3)
    m \leftarrow m + r (\text{mean}(z) - m)                running mean of the latents                          (4)
    S \leftarrow S + r (\text{cov}(z) - S)                 running covariance of the latents                    (5)
    x' = g(z), z \sim N(m, S)                              new samples                                          (6)

    Symbols:
        x, x'        normalized sample and its reconstruction
        z            latent
        \epsilon     noise from N(0, I)
        s            standard deviation of the noise
        r            rate of the running averages
        B, Z, D      batch, latent dimensions, pixels or coordinates of a sample

The loss does not ask the latents to fill their space evenly, so (6) often falls where the decoder was never trained;
the variational autoencoder solves this.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.fit import FitMixin
from engram.core.global_batch import batch_sum
from engram.core.tap import tap
from engram.nn.activation import ActivationName
from engram.nn.encoders import LatentConfig, activate, build_encoder_decoder, initialize

RUNNING_RATE = 0.02
"""rate of the running mean and covariance of the latents (r)"""


class Autoencoder(FitMixin, nn.Module):
    """Autoencoder that also tracks the distribution of its latents, to sample from it."""

    @dataclass(frozen=True, kw_only=True)
    class Config(LatentConfig):
        activation: ActivationName = "relu"
        """activation function of the hidden units"""
        tied: bool = False
        """tie weights: decode with the encoder's matrices, transposed (dense layers only)"""
        noise: Annotated[float, Ge(0)] = 0.0
        """denoising autoencoder: standard deviation of noise on the input, where black is -1 and white 1; 0 disables"""

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.tied and self.channels:
                raise EngramError("Only dense layers can be tied: leave out --tied or --channels.")

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.encoder, decoder = build_encoder_decoder(config, config.latent_dim, config.latent_dim, config.activation)
        self.decoder = None if config.tied else decoder
        self.bias = nn.ParameterList(
            torch.zeros(layer.in_features)
            for layer in (self.encoder.layers if config.tied else [])  # type: ignore
        )
        self.latent_mean: Tensor
        self.latent_cov: Tensor
        self.register_buffer("latent_mean", torch.zeros(config.latent_dim))
        self.register_buffer("latent_cov", torch.eye(config.latent_dim))
        initialize(self)

    def encode(self, x: Tensor) -> Tensor:
        """Latents of samples, B × Z."""
        self.config.check(x)
        return tap("latent", self.encoder(self.config.normalize(x)))  # (1)

    def decode(self, z_BZ: Tensor) -> Tensor:
        """Samples of latents."""
        return tap("reconstruction", self.config.denormalize(self._decode(z_BZ)))

    def _decode(self, z_BZ: Tensor) -> Tensor:
        if self.decoder is not None:
            return self.decoder(z_BZ)  # (2)
        h_BD, layers = z_BZ, list(self.encoder.layers)  # type: ignore[arg-type]
        for i, (layer, bias) in reversed(list(enumerate(zip(layers, self.bias, strict=True)))):
            h_BD = F.linear(h_BD, layer.weight.T, bias)  # (2)
            h_BD = activate(self.config.activation, h_BD) if i else h_BD
        return h_BD.view(-1, *self.config.shape)

    def forward(self, x: Tensor) -> Tensor:
        return self.decode(self.encode(x))

    def loss(self, x: Tensor, noise: Tensor) -> Tensor:
        """Reconstruction loss of a batch, with the noise given; updates the latents' moments in training mode."""
        u = self.config.normalize(x)
        z_BZ = self.encoder(u + self.config.noise * noise)  # (1)
        if self.training:
            self._update_moments(z_BZ.detach())
        return F.mse_loss(self._decode(z_BZ), u)  # (3)

    def _update_moments(self, z_BZ: Tensor) -> None:
        centered_BZ, count = z_BZ - self.latent_mean, batch_sum(z_BZ.new_tensor(len(z_BZ)))
        self.latent_mean.lerp_(batch_sum(z_BZ.sum(0)) / count, RUNNING_RATE)  # (4)
        self.latent_cov.lerp_(batch_sum(centered_BZ.T @ centered_BZ) / count, RUNNING_RATE)  # (5)

    def sample_latents(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw latents from the Gaussian with the running mean and covariance."""
        values, vectors = torch.linalg.eigh(self.latent_cov.double())
        root_ZZ = (vectors * values.clamp(min=0).sqrt()).float()
        e_BZ = torch.randn(count, self.config.latent_dim, generator=generator)
        return self.latent_mean + e_BZ @ root_ZZ.T

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        return self.decode(self.sample_latents(count, generator))  # (6)
