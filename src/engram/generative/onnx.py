"""What the ONNX signatures of models with latents share: the decoder, latent (B × Z) → sample."""

from typing import Any

import torch
from torch import Tensor, nn

from engram.hub.onnx import Input, Signature
from engram.nn.encoders import LatentConfig


class Decoder(nn.Module):
    """Module whose forward pass is the `decode` of a model."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, latent: Tensor) -> Tensor:
        return self.model.decode(latent)  # type: ignore[no-any-return]


def decoder_signature(config: LatentConfig, output: str) -> Signature:
    """Return the signature of a decoder whose latents come from N(0, I)."""
    Z = config.latent_dim
    description = f"latents, float32, batch × {Z}: for new samples from the normal distribution N(0, I)"
    inputs = {"latent": Input(torch.zeros(2, Z), {0: "batch"}, description)}
    return Signature(inputs, {output: describe_samples(config)}, Decoder)


def describe_samples(config: LatentConfig) -> str:
    """Return the description of samples, as an output."""
    size = " × ".join(map(str, config.shape))
    return f"images, batch × {size}: pixels from 0 to 1" if config.is_image else f"points, batch × {size}"
