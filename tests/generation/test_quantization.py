"""Weights of 8 and 4 bits: the formats of llama.cpp to the bit, products of quantized numbers, and whole models."""

import gguf
import numpy as np
import pytest
import torch
from torch import nn

from engram.core.errors import EngramError
from engram.core.tap import watch
from engram.generation.quantization import (
    QuantizedEmbedding,
    QuantizedLinear,
    QuantizedWeight,
    quantize,
    quantize_weight,
)
from engram.generation.sampling import GREEDY
from engram.transformers.gpt.model import GPT

FORMATS = {8: gguf.GGMLQuantizationType.Q8_0, 4: gguf.GGMLQuantizationType.Q4_1}
RELATIVE_ERROR = {8: 0.01, 4: 0.11}
"""error of one product, relative to its norm: half a step of 1/127 or 1/15 of the range, spread evenly"""


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def quantized_layer(bits, inputs=70, outputs=37, bias=True):
    """A layer whose sizes fill neither groups of 32 inputs nor strips of 16 outputs, and its weights in 32 bits."""
    weight = random(outputs, inputs)
    return QuantizedLinear(quantize_weight(weight, bits), random(outputs, seed=1) if bias else None), weight


def error(found, expected):
    return float((found - expected).norm() / expected.norm())


def dequantized(weight: QuantizedWeight, inputs: int):
    """The matrix by equations (1) and (2)."""
    scale = weight.scale_OG.double().repeat_interleave(32, 1)[:, :inputs]
    if weight.minimum_OG is None:
        return scale * (weight.q_OI.double() - weight.zero)
    return scale * weight.q_OI.double() + weight.minimum_OG.double().repeat_interleave(32, 1)[:, :inputs]


@pytest.mark.parametrize("bits", [8, 4])
def test_weights_are_those_that_llama_cpp_stores(bits):
    """But for the few that are about as near to one step as to the next: there, scales are rounded first here."""
    weight = random(24, 96)
    stored = gguf.quants.quantize(weight.numpy(), FORMATS[bits])
    expected = torch.from_numpy(gguf.quants.dequantize(stored, FORMATS[bits]))
    found = quantize_weight(weight, bits)
    step = found.scale_OG.float().repeat_interleave(32, 1)
    off = ((dequantized(found, 96) - expected) / step).abs()
    assert (off > 0.01).float().mean() < 0.02
    assert off.max() < 1.01


@pytest.mark.parametrize("bits", [8, 4])
def test_no_weight_is_off_by_more_than_half_a_step(bits):
    weight = random(32, 64) * torch.logspace(-3, 2, 32)[:, None]
    made = quantize_weight(weight, bits)
    step = made.scale_OG.double().repeat_interleave(32, 1)
    assert ((dequantized(made, 64) - weight).abs() / step).max() < 0.56  # the scale has 16 bits


@pytest.mark.parametrize("bits", [8, 4])
@torch.no_grad()
def test_the_kernel_dequantizes_as_the_equations_do(bits):
    layer, weight = quantized_layer(bits)
    expected = dequantized(quantize_weight(weight, bits), 70).float()
    torch.testing.assert_close(layer.dequantize(), expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(layer.rows(torch.tensor([[3, 36], [0, 17]])), expected[[3, 36, 0, 17]].view(2, 2, 70))


@pytest.mark.parametrize("rows", [1, 2, 4, 11])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("bits", [8, 4])
@torch.no_grad()
def test_the_product_is_that_of_the_quantized_numbers(bits, bias, rows):
    """Computed in 64 bits from the numbers themselves, by equations (3) and (4)."""
    layer, weight = quantized_layer(bits, bias=bias)
    x = random(rows, 70, seed=2)
    group = nn.functional.pad(x, (0, 26)).view(rows, 3, 32)
    t = group.abs().amax(2, keepdim=True) / 127
    seen = ((group / t).round() * t).view(rows, 96)[:, :70].double()
    expected = seen @ dequantized(quantize_weight(weight, bits), 70).T
    expected = expected + layer.bias if bias else expected
    torch.testing.assert_close(layer(x).double(), expected, atol=2e-4, rtol=1e-5)
    assert error(layer(x), x @ weight.T + (layer.bias if bias else 0)) < 1.3 * RELATIVE_ERROR[bits]


@torch.no_grad()
def test_a_matrix_of_llama_cpp_with_a_zero_in_the_middle():
    """Q4_0: numbers from 0 to 15 of which 8 stands for 0."""
    q, scale = torch.randint(16, (16, 64), dtype=torch.uint8), random(16, 2).half()
    layer, x = QuantizedLinear(QuantizedWeight(4, q, scale, zero=8)), random(3, 64)
    block = np.concatenate([np.concatenate([
        scale[:, g : g + 1].numpy().view(np.uint8), (q[:, 32 * g : 32 * g + 16] | q[:, 32 * g + 16 : 32 * g + 32] << 4)
    ], 1) for g in range(2)], 1)  # fmt: skip
    expected = torch.from_numpy(gguf.quants.dequantize(block, gguf.GGMLQuantizationType.Q4_0))
    torch.testing.assert_close(layer.dequantize(), expected)
    assert error(layer(x), x @ expected.T) < 0.01


@torch.no_grad()
@pytest.mark.parametrize("bits", [8, 4])
def test_any_number_of_dimensions_and_rows_of_zeros(bits):
    layer, _ = quantized_layer(bits)
    x = random(2, 3, 70)
    torch.testing.assert_close(layer(x), layer(x.view(6, 70)).view(2, 3, 37))
    torch.testing.assert_close(layer(torch.zeros(5, 70)), layer.bias.expand(5, 37))


@pytest.mark.parametrize("bits", [8, 4])
def test_gradients_are_those_of_the_dequantized_matrix(bits):
    layer, _ = quantized_layer(bits)
    x, other = random(4, 70).requires_grad_(), random(4, 70).requires_grad_()
    layer(x).square().sum().backward()
    nn.functional.linear(other, layer.dequantize(), layer.bias).square().sum().backward()
    torch.testing.assert_close(x.grad, other.grad)


def test_weights_that_scales_cannot_hold_are_refused():
    with pytest.raises(EngramError, match="scales of 16 bits"):
        quantize_weight(torch.full((2, 32), 1e9), 8)
    with pytest.raises(EngramError, match="scales of 16 bits"):
        quantize_weight(torch.full((2, 32), float("nan")), 4)


# ---------------------------------------------------------------------- a whole model


def gpt(**changes):
    torch.manual_seed(0)
    model = GPT(GPT.Config(**{"width": 64, "layers": 2, "heads": 4, "vocabulary": 30, **changes})).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.15)
    return model


X = torch.randint(30, (2, 20), generator=torch.Generator().manual_seed(0))


@torch.no_grad()
@pytest.mark.parametrize("bits", [8, 4])
def test_a_quantized_model_is_near_the_original(bits):
    """The errors of its layers are independent."""
    model = gpt()
    layers = sum(isinstance(part, nn.Linear) for part in model.modules())
    assert error(quantize(model, bits)(X), model(X)) < RELATIVE_ERROR[bits] * layers**0.5


@torch.no_grad()
def test_the_original_is_left_alone():
    model = gpt().train()
    before, out = {key: value.clone() for key, value in model.state_dict().items()}, model(X)
    quantize(model)
    assert model.training
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert torch.equal(model(X), out)


def test_every_linear_layer_is_quantized_and_a_tied_embedding_with_its_output():
    made = quantize(gpt())
    assert not any(isinstance(part, nn.Linear) for part in made.modules())
    assert isinstance(made.embedding, nn.Embedding)
    tied = quantize(gpt(tie_embeddings=True))
    assert isinstance(tied.embedding, QuantizedEmbedding)
    assert torch.equal(tied.embedding(torch.arange(30)), tied.head.dequantize())


@pytest.mark.parametrize("bits", [8, 4])
def test_a_quantized_model_writes_past_its_context_and_shows_its_activations(bits):
    model = quantize(gpt(context=16), bits)
    plain = model.generate([[1, 2, 3]], 30, GREEDY)
    with watch(model, "*attention.weights") as seen:
        assert model.generate([[1, 2, 3]], 30, GREEDY) == plain
    assert len(seen.all("blocks.0.attention.weights")) == 30
