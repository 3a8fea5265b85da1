"""ONNX signature of BERT: ids, valid (B × T) → logits, or vectors (B × T × E) without a head.

Valid is false for padding.
"""

import torch
from torch import Tensor, nn

from engram.hub.onnx import Input, Signature, ids_input, onnx_signature
from engram.transformers.bert.model import BERT


@onnx_signature(BERT)
def signature(model: BERT) -> Signature:
    ids = ids_input(model.config.vocabulary, model.config.context)
    valid = Input(torch.ones_like(ids.example).bool(), ids.dynamic, "bool, batch × length: false for padding")
    inputs = {"ids": ids, "valid": valid}
    if model.config.masked:
        return Signature(inputs, {"logits": "logits of the token at each position, batch × length × vocabulary"})
    return Signature(inputs, {"vectors": "vector of each token, batch × length × width"}, Vectors)


class Vectors(nn.Module):
    """BERT without a head, as a module whose forward pass is `encode`."""

    def __init__(self, model: BERT) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, valid: Tensor) -> Tensor:
        return self.model.encode(ids, valid)
