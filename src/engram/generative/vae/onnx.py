"""ONNX signatures of the VAE, in two files.

encoder    image (B × C × H × W, from 0 to 1) or point (B × D)    → mean, log_variance (B × Z)
decoder    latent (B × Z)                                         → reconstruction, as the input
"""

from torch import Tensor, nn

from engram.generative.onnx import decoder_signature
from engram.generative.vae.model import VAE
from engram.hub.onnx import Signature, onnx_signature, sample_input


@onnx_signature(VAE, "encoder")
def encoder(model: VAE) -> Signature:
    latent = f"of the latents, batch × {model.config.latent_dim}"
    outputs = {"mean": f"mean {latent}", "log_variance": f"logarithm of the variance {latent}"}
    return Signature(sample_input(model.config.shape), outputs, Posterior)


@onnx_signature(VAE, "decoder")
def decoder(model: VAE) -> Signature:
    return decoder_signature(model.config, "reconstruction")


class Posterior(nn.Module):
    """Encoder of a VAE as a module that returns mean and log variance."""

    def __init__(self, model: VAE) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.model.posterior(x)
