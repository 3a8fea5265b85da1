"""ONNX signature of MLP, CNN and ResNet.

Image (B × C × H × W, from 0 to 1) or point (B × F) → logits (B × K).
"""

from engram.foundations.cnn.model import CNN
from engram.foundations.mlp.model import MLP
from engram.foundations.resnet.model import ResNet
from engram.hub.onnx import LOGITS, Signature, image_input, onnx_signature, sample_input


@onnx_signature(CNN)
@onnx_signature(ResNet)
def signature(model: CNN | ResNet) -> Signature:
    return Signature({"image": image_input(model.config.shape)}, LOGITS, classes=model.config.classes)


@onnx_signature(MLP)
def mlp_signature(model: MLP) -> Signature:
    """Return the signature of an MLP; one of regression has no classes."""
    inputs = sample_input(model.config.shape)
    if model.config.output == "number":
        return Signature(inputs, {"prediction": "predicted number in units of the target, batch"})
    return Signature(inputs, LOGITS, classes=model.config.classes)
