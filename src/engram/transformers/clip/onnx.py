"""ONNX signature of CLIP: image (B × C × H × W), text (K × T) → logits (B × K)."""

import torch

from engram.hub.onnx import Signature, ids_input, image_input, onnx_signature
from engram.transformers.clip.model import CLIP


@onnx_signature(CLIP)
def signature(model: CLIP) -> Signature:
    text = ids_input(model.config.vocabulary, model.config.context, batch="texts")
    example = torch.cat([text.example, text.example[:1]])  # images and texts are two dimensions
    if model.config.text_pooling == "last":
        text = text._replace(description=f"{text.description}; {model.config.pad_id} fills a text up to the context")
    inputs = {"image": image_input(model.config.shape), "text": text._replace(example=example)}
    return Signature(inputs, {"logits": "similarity of each image to each text, batch × texts"})
