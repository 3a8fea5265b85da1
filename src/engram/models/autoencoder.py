"""Autoencoder (note 003 §19).   B batch, Z size of the code, D numbers of a picture or point

    z  = f(x + s e),  e ~ N(0, I)            encoder: a code; with s > 0 from a noisy x, so that it must denoise     (1)
    x' = g(z)                                decoder; tied: the encoder's matrices transposed                        (2)
    E  = |x' - x|^2 / D                      loss, averaged over the batch                                           (3)
    m <- m + r (mean z - m),  S <- S + r (cov z - S)       how codes are spread, learnt on the way                   (4)
    x' = g(z),  z ~ N(m, S)                  new things from codes as they usually are                               (5)

Nothing in (3) asks codes to be filled evenly, so (5) often lands where g has never been: what the VAE is for.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core import together
from engram.core.errors import EngramError
from engram.core.tap import tap
from engram.layers.activation import ActivationName
from engram.layers.coders import Coding, coders, initialise, sigma

FOLLOW = 0.02
"""how quickly the spread of codes follows the batches (r)"""


class Autoencoder(nn.Module):
    """A thing, its code, and the thing again."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Coding):
        activation: ActivationName = "relu"
        """function of every hidden unit"""
        tied: bool = False
        """decode with the encoder's own matrices, transposed (dense layers only)"""
        noise: float = 0.0
        """standard deviation of the noise that is to be taken away (s), where black is -1 and white is 1"""

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.tied and self.channels:
                raise EngramError("Only dense layers can be tied: leave out --tied or --channels.")
            if not self.noise >= 0:
                raise EngramError(f"noise must not be negative, and is {self.noise}.")

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.encoder, decoder = coders(config, config.code, config.code, config.activation)
        self.decoder = None if config.tied else decoder
        self.bias = nn.ParameterList(
            torch.zeros(layer.in_features)
            for layer in (self.encoder.layers if config.tied else [])  # type: ignore
        )
        self.code_mean: Tensor
        self.code_cov: Tensor
        self.register_buffer("code_mean", torch.zeros(config.code))
        self.register_buffer("code_cov", torch.eye(config.code))
        initialise(self)

    def encode(self, x: Tensor) -> Tensor:
        """The codes of things."""
        return tap("code", self.encoder(self.config.inside(x)))  # (1)

    def decode(self, z_BZ: Tensor) -> Tensor:
        """What codes stand for."""
        return tap("reconstruction", self.config.outside(self._decode(z_BZ)))

    def _decode(self, z_BZ: Tensor) -> Tensor:
        if self.decoder is not None:
            return self.decoder(z_BZ)  # (2)
        h_BD, layers = z_BZ, list(self.encoder.layers)  # type: ignore[arg-type]
        for i, (layer, bias) in reversed(list(enumerate(zip(layers, self.bias, strict=True)))):
            h_BD = F.linear(h_BD, layer.weight.T, bias)  # (2)
            h_BD = sigma(self.config.activation, h_BD) if i else h_BD
        return h_BD.view(-1, *self.config.shape)

    def forward(self, x: Tensor) -> Tensor:
        return self.decode(self.encode(x))

    def loss(self, x: Tensor, noise: Tensor) -> Tensor:
        """(3) for a batch, with e given."""
        u = self.config.inside(x)
        z_BZ = self.encoder(u + self.config.noise * noise)  # (1)
        if self.training:
            self._watch(z_BZ.detach())
        return F.mse_loss(self._decode(z_BZ), u)  # (3)

    def _watch(self, z_BZ: Tensor) -> None:
        away_BZ, count = z_BZ - self.code_mean, together.summed(z_BZ.new_tensor(len(z_BZ)))
        self.code_mean.lerp_(together.summed(z_BZ.sum(0)) / count, FOLLOW)
        self.code_cov.lerp_(together.summed(away_BZ.T @ away_BZ) / count, FOLLOW)  # (4)

    def codes(self, count: int, generator: torch.Generator) -> Tensor:
        """Codes as they usually are."""
        values, vectors = torch.linalg.eigh(self.code_cov.double())
        root_ZZ = (vectors * values.clamp(min=0).sqrt()).float()
        e_BZ = torch.randn(count, self.config.code, generator=generator)
        return self.code_mean + e_BZ @ root_ZZ.T

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        return self.decode(self.codes(count, generator))  # (5)
