r"""QLoRA: LoRA beside quantized weights of a frozen model, of 8 or 4 bits (Dettmers et al. 2023).

y = x \hat W + b + x A B / \sqrt{R}           \hat W: dequantized weights (generation/quantization.py)     (1)
\partial E / \partial x = \partial E / \partial y\, (\hat W + A B / \sqrt{R})^T                            (2)
W \leftarrow \hat W + A B / \sqrt{R}          merge after training                                         (3)

Symbols:
    x, y        inputs and outputs
    \hat W, b   frozen weights and biases
    A, B        low-rank factors, in 32 bits
    R           rank
    E           loss
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from engram.generation.quantization import (
    ZERO_8,
    Bits,
    QuantizedEmbedding,
    QuantizedLinear,
    QuantizedWeight,
    quantize_weight,
)
from engram.generation.quantized_product import GROUP, STRIP
from engram.nn.linear import Linear
from engram.nn.lora import TARGET_MODULES, LowRankUpdate, merge_lora

ZERO_4 = 8
"""number that stands for a weight of 0 in 4 bits without minima"""


class QuantizedLoRA(LowRankUpdate):
    """Linear layer with frozen quantized weights and a trained low-rank update."""

    def __init__(self, base: QuantizedLinear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.init_update(base.in_features, base.out_features, rank)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.base(x)
        return y + self.update(x)  # (1), (2)

    def frozen(self) -> nn.Module:
        return self.base  # (3)


def apply_quantized_lora(model: Any, rank: int, bits: Bits) -> None:
    """Freeze and quantize a model, and adapt its projections; quantized layers keep their bits."""
    model.requires_grad_(False)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                tied = module is model and name == "head" and child.weight is model.embedding.weight
                child = QuantizedLinear(quantize_weight(child.weight, bits), child.bias)
                setattr(module, name, child)
                if tied:
                    model.embedding = QuantizedEmbedding(child)
            if name in TARGET_MODULES and isinstance(child, QuantizedLinear):
                setattr(module, name, QuantizedLoRA(child, rank))


def restore_quantized_lora(model: Any, weights: Mapping[str, Tensor], rank: int) -> bool:
    """Give a model the quantized layers that a state dict is of; return whether it is of any."""
    places = [name.removesuffix(".packed") for name in weights if name.endswith(".packed")]
    for place in sorted(places, key=lambda place: place == "embedding.head"):  # the output layer comes before it
        target = place.removesuffix(".base").removesuffix(".head") if "." in place else place
        parent, _, name = target.rpartition(".")
        layer = model.get_submodule(target)
        if isinstance(layer, nn.Embedding):
            tied = getattr(model.config, "tie_embeddings", False) and isinstance(model.head, QuantizedLinear)
            head = model.head if tied else init_quantized(layer.weight.shape, weights, place)
            setattr(model.get_submodule(parent), name, QuantizedEmbedding(head))
        else:
            made = init_quantized(layer.weight.shape, weights, place, layer.bias)
            setattr(model.get_submodule(parent), name, QuantizedLoRA(made, rank) if place != target else made)
    model.requires_grad_(not places)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not places or ".lora_" in name)
    return bool(places)


def init_quantized(
    shape: torch.Size, weights: Mapping[str, Tensor], place: str, bias: Tensor | None = None
) -> QuantizedLinear:
    """Return a quantized layer of the form that a state dict has at some place, with weights of zero."""
    bits: Bits = 8 if weights[f"{place}.packed"].shape[-1] == STRIP * GROUP else 4
    has_minimum = weights[f"{place}.scale"].shape[2] == 2
    zero_OG = torch.zeros(shape[0], -(-shape[1] // GROUP))
    zero = 0 if has_minimum else ZERO_8 if bits == 8 else ZERO_4
    q_OI = torch.zeros(shape, dtype=torch.uint8)
    return QuantizedLinear(QuantizedWeight(bits, q_OI, zero_OG, zero_OG if has_minimum else None, zero), bias)


def dequantize(model: Any) -> None:
    """Merge LoRA, and replace quantized layers by those of 32 bits; a model without either is left alone."""
    merge_lora(model)
    changed = False
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, QuantizedLinear) and not isinstance(module, QuantizedEmbedding):
                setattr(module, name, to_linear(child))
                changed = True
    for name, child in list(model.named_children()):
        if isinstance(child, QuantizedEmbedding):
            tied = getattr(model.config, "tie_embeddings", False)
            weight = model.head.weight if tied else nn.Parameter(child.weight)
            embedding = nn.Embedding(weight.shape[0], weight.shape[1], device="meta")
            embedding.weight = weight
            setattr(model, name, embedding)
    if changed:
        model.requires_grad_(True)


def to_linear(layer: QuantizedLinear) -> Linear:
    """Return a linear layer with dequantized weights."""
    linear = Linear(layer.in_features, layer.out_features, layer.bias is not None, device="meta")
    linear.weight = nn.Parameter(layer.weight.clone())
    if layer.bias is not None:
        linear.bias = nn.Parameter(layer.bias)
    return linear
