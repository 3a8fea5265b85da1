"""LoRA beside quantized weights: the gradients are those of the dequantized model, and merging changes nothing."""

import copy

import pytest
import torch
from torch import nn

from engram.core.files import serialize, tensors_of
from engram.generation.quantization import QuantizedEmbedding, QuantizedLinear
from engram.generation.quantized_lora import QuantizedLoRA, apply_quantized_lora, dequantize, restore_quantized_lora
from engram.nn.lora import apply_lora, lora_rank
from engram.transformers.gpt.model import GPT

V = 37
X = torch.randint(V, (3, 9), generator=torch.Generator().manual_seed(0))
KINDS = {
    "tied": {"tie_embeddings": True},
    "apart": {},
    "gated": {"activation": "swiglu", "norm": "rms", "qk_norm": "none", "kv_heads": 1},
    "biased": {"bias": ("qkv", "out", "ff"), "norm": "layer"},
}


def made(kind):
    torch.manual_seed(0)
    config = GPT.Config(vocabulary=V, context=12, width=24, layers=2, heads=2, **KINDS[kind])
    model = GPT(config)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model


def adapted(kind, bits):
    """A quantized model with LoRA as if it had learned, and the dequantized model with the same LoRA."""
    model = made(kind)
    apply_quantized_lora(model, 3, bits)
    for name, parameter in model.named_parameters():
        if "lora" in name:
            nn.init.normal_(parameter, std=0.2)
    plain = made(kind)
    with torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, QuantizedLinear):
                name = name.removesuffix(".base").replace("embedding.head", "head")
                plain.get_submodule(name).weight.copy_(module.weight)
        if not KINDS[kind].get("tie_embeddings"):
            plain.embedding.weight.copy_(model.embedding.weight)
    apply_lora(plain, 3)
    own = dict(plain.named_parameters())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora" in name:
                own[name].copy_(parameter)
    return model, plain


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_the_dequantized_model(kind, bits):
    model, plain = adapted(kind, bits)
    found, expected = ({}, {})
    for one, gradients in ((model, found), (plain, expected)):
        nn.functional.cross_entropy(one(X).flatten(0, 1), X.roll(-1, 1).flatten()).backward()
        gradients |= {name: p.grad for name, p in one.named_parameters() if p.grad is not None}
    assert found.keys() == expected.keys()
    assert all("lora" in name for name in found)
    assert len(found) == 2 * 2 * (7 if kind == "gated" else 6)
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], atol=1e-6, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_merging_gives_the_dequantized_model_with_its_update(kind, bits):
    model, plain = adapted(kind, bits)
    expected = plain(X)
    dequantize(model)
    assert not any(isinstance(one, (QuantizedLinear, QuantizedLoRA, QuantizedEmbedding)) for one in model.modules())
    assert model.state_dict().keys() == made(kind).state_dict().keys()
    assert (model.embedding.weight is model.head.weight) == bool(KINDS[kind].get("tie_embeddings"))
    torch.testing.assert_close(model(X), expected, atol=1e-5, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_is_restored_from_its_weights_alone(kind, bits, tmp_path):
    model, _ = adapted(kind, bits)
    weights = tensors_of(serialize(model.state_dict()), tmp_path)
    again = made(kind)
    assert restore_quantized_lora(again, weights, lora_rank(weights))
    again.load_state_dict(weights)
    assert torch.equal(again(X), model(X))
    learning = {name for name, p in again.named_parameters() if p.requires_grad}
    assert learning == {name for name, p in model.named_parameters() if p.requires_grad}
    size = sum(value.numel() * value.element_size() for name, value in weights.items() if ".packed" in name)
    assert size < sum(p.numel() for p in made(kind).blocks.parameters()) * 4
    plain = copy.deepcopy(made(kind))
    assert not restore_quantized_lora(plain, plain.state_dict(), 0)
    assert all(p.requires_grad for p in plain.parameters())
