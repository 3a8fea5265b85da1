"""ONNX signature of Transformer: source (B × S), target (B × T) → logits (B × T × V)."""

from engram.hub.onnx import Signature, ids_input, onnx_signature
from engram.transformers.translate.model import Transformer


@onnx_signature(Transformer)
def signature(model: Transformer) -> Signature:
    sizes = model.config.vocabulary, model.config.context
    source, target = ids_input(*sizes, length="source_length"), ids_input(*sizes)
    padded = f"{source.description}; {model.config.pad_id} is padding"
    inputs = {
        "source": source._replace(example=source.example.clamp(min=1), description=padded),
        "target": target._replace(example=target.example[:, :-1]),  # the two lengths are two dimensions
    }
    return Signature(inputs, {"logits": "logits of the token after each of target, batch × length × vocabulary"})
