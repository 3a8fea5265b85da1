"""ONNX signature of the GAN's generator.

Latent (B × Z) → generated image (B × C × H × W, from 0 to 1) or point.
"""

from engram.generative.gan.model import GAN
from engram.generative.onnx import decoder_signature
from engram.hub.onnx import Signature, onnx_signature


@onnx_signature(GAN)
def signature(model: GAN) -> Signature:
    return decoder_signature(model.config, "generated")
