"""ONNX signature of the autoencoder.

Image (B × C × H × W, from 0 to 1) or point (B × D) → reconstruction, latent.
"""

from torch import Tensor, nn

from engram.generative.autoencoder.model import Autoencoder
from engram.generative.onnx import describe_samples
from engram.hub.onnx import Signature, onnx_signature, sample_input


@onnx_signature(Autoencoder)
def signature(model: Autoencoder) -> Signature:
    config = model.config
    outputs = {"reconstruction": describe_samples(config), "latent": f"latents, batch × {config.latent_dim}"}
    return Signature(sample_input(config.shape), outputs, Reconstruction)


class Reconstruction(nn.Module):
    """Autoencoder as a module that returns reconstruction and latent."""

    def __init__(self, model: Autoencoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z_BZ = self.model.encode(x)
        return self.model.decode(z_BZ), z_BZ
