"""ONNX signature of the text classifier: ids, valid (B × T, false for padding) → logits (B × K)."""

import torch

from engram.hub.onnx import LOGITS, Input, Signature, ids_input, onnx_signature
from engram.transformers.text_classifier.model import TextClassifier


@onnx_signature(TextClassifier)
def signature(model: TextClassifier) -> Signature:
    ids = ids_input(model.config.vocabulary, model.config.context)
    valid = Input(torch.ones_like(ids.example).bool(), ids.dynamic, "bool, batch × length: false for padding")
    return Signature({"ids": ids, "valid": valid}, LOGITS, classes=model.config.classes)
