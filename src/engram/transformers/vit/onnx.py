"""ONNX signature of ViT: image (B × C × H × W, from 0 to 1) → logits (B × K)."""

from engram.hub.onnx import LOGITS, Signature, image_input, onnx_signature
from engram.transformers.vit.model import ViT


@onnx_signature(ViT)
def signature(model: ViT) -> Signature:
    return Signature({"image": image_input(model.config.shape)}, LOGITS, classes=model.config.classes)
