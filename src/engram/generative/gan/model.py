r"""Generative adversarial network (GAN; Goodfellow et al. 2014; DCGAN: Radford 2016).

    x' = G(z), z \sim N(0, I)       generator: latent to sample                              (1)
    d = D(x)                        discriminator: logit of the sample being real            (2)

    Symbols:
        x, x'     real and generated sample
        z         latent
        B, Z      batch, latent dimensions

Its losses are those of `gan/learner.py`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from engram.core.fit import FitMixin
from engram.core.tap import tap
from engram.nn.encoders import MLP, NEGATIVE_SLOPE, ConvDecoder, ConvEncoder, LatentConfig


class GAN(FitMixin, nn.Module):
    """Generator and discriminator."""

    @dataclass(frozen=True, kw_only=True)
    class Config(LatentConfig):
        latent_dim: int = 64
        hidden: tuple[int, ...] = (256, 256)
        norm: bool = True
        """batch normalization in a convolutional generator (DCGAN)"""
        discriminator_norm: bool = True
        """batch normalization in a convolutional discriminator, except its first layer; never with --loss wgan-gp"""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.generator: nn.Module
        self.discriminator: nn.Module
        if config.convolutional:
            self.generator = ConvDecoder(config, config.latent_dim, "relu", config.norm)
            self.discriminator = ConvEncoder(config, 1, "leaky", config.discriminator_norm)
            self.discriminator.norms[0] = nn.Identity()
        else:
            self.generator = MLP([config.latent_dim, *config.hidden, config.numel], "leaky", config.shape)
            self.discriminator = MLP([config.numel, *config.hidden[::-1], 1], "leaky")
        self.initialize()
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def initialize(self) -> None:
        """Initialize convolutional networks with small weights (DCGAN), dense ones by Kaiming's rule."""
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)):
                if self.config.convolutional:
                    nn.init.normal_(module.weight, std=0.02)
                else:
                    nn.init.kaiming_normal_(module.weight, NEGATIVE_SLOPE)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def generate(self, z_BZ: Tensor, generator: nn.Module | None = None) -> Tensor:
        """Normalized samples of latents, by the model's own generator or another one."""
        u = (generator or self.generator)(z_BZ)  # (1)
        return torch.tanh(u) if self.config.is_image else u

    def discriminate(self, x: Tensor) -> Tensor:
        """Logit of each sample being real, B."""
        return tap("logit", self.discriminator(self.config.normalize(x))[:, 0])  # (2)

    def forward(self, x: Tensor) -> Tensor:
        self.config.check(x)
        return self.discriminate(x)

    def decode(self, z_BZ: Tensor) -> Tensor:
        """Samples of latents."""
        return tap("generated", self.config.denormalize(self.generate(z_BZ)))

    def sample_latents(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw latents from N(0, I)."""
        return torch.randn(count, self.config.latent_dim, generator=generator)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        return self.decode(self.sample_latents(count, generator))
