"""ONNX signature of GPT: ids (B × T) → logits (B × T × V)."""

from engram.hub.onnx import Signature, ids_input, onnx_signature
from engram.transformers.gpt.model import GPT


@onnx_signature(GPT)
def signature(model: GPT) -> Signature:
    inputs = {"ids": ids_input(model.config.vocabulary, model.config.context)}
    return Signature(inputs, {"logits": "logits of the token after each position, batch × length × vocabulary"})
