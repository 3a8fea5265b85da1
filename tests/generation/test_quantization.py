"""Matrices in eight bits: near the original, a scale for each output, and a copy."""

import pytest
import torch
from torch import nn

from engram.generation.quantization import Int8Linear, quantize, quantize_rows
from engram.generation.sampling import GREEDY
from engram.transformers.gpt.model import GPT


def layer(inputs=64, outputs=48, bias=True):
    torch.manual_seed(0)
    return nn.Linear(inputs, outputs, bias)


def error(found, expected):
    return float((found - expected).norm() / expected.norm())


@torch.no_grad()
@pytest.mark.parametrize("bias", [True, False])
def test_one_layer_is_near_the_original(bias):
    plain, x = layer(bias=bias), torch.randn(20, 64, generator=torch.Generator().manual_seed(0))
    assert error(Int8Linear(plain)(x), plain(x)) < 0.02


@torch.no_grad()
def test_any_number_of_dimensions():
    plain, x = layer(), torch.randn(2, 3, 64, generator=torch.Generator().manual_seed(0))
    assert error(Int8Linear(plain)(x), plain(x)) < 0.02


def test_each_output_has_its_own_scale():
    weight = layer().weight.detach() * torch.logspace(-3, 3, 48)[:, None]
    torch.testing.assert_close(quantize_rows(weight)[1], weight.abs().amax(1) / 127)


def test_weights_are_off_by_half_a_scale_at_most():
    weight = layer().weight.detach() * torch.logspace(-3, 3, 48)[:, None]
    Q_OI, s_O = quantize_rows(weight)
    off = (Q_OI * s_O[:, None] - weight).abs() / s_O[:, None]
    assert off.max() < 0.501


def test_the_largest_weight_uses_the_whole_range():
    assert (quantize_rows(layer().weight.detach())[0].abs().amax(1) == 127).all()


@torch.no_grad()
@pytest.mark.parametrize("bias", [True, False])
def test_the_kernel_for_few_rows_gives_what_the_matrix_gives(bias):
    made, x = Int8Linear(layer(bias=bias)), torch.randn(40, 64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(torch.cat([made(part) for part in x.split(3)]), made(x), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_small_outputs_beside_large_ones_stay_exact():
    plain, x = layer(bias=False), torch.randn(20, 64, generator=torch.Generator().manual_seed(0))
    plain.weight.mul_(torch.logspace(-3, 3, 48)[:, None])
    found, expected = Int8Linear(plain)(x), plain(x)
    assert max(error(found[:, i], expected[:, i]) for i in range(48)) < 0.04


@torch.no_grad()
def test_a_row_of_zeros_gives_its_bias():
    plain = layer()
    plain.weight[3] = 0
    found = Int8Linear(plain)(torch.ones(1, 64))
    torch.testing.assert_close(found[0, 3], plain.bias[3])


# ---------------------------------------------------------------------- a whole model


def gpt():
    torch.manual_seed(0)
    model = GPT(GPT.Config(width=64, layers=2, heads=4, vocabulary=30))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.15)
    return model


X = torch.randint(30, (2, 20), generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def test_a_quantized_model_is_near_the_original():
    """Independent errors of 1 % in each of its layers."""
    model = gpt().eval()
    layers = sum(isinstance(part, nn.Linear) for part in model.modules())
    assert error(quantize(model)(X), model(X)) < 0.01 * layers**0.5


@torch.no_grad()
def test_the_original_is_left_alone():
    model = gpt().train()
    before, out = {key: value.clone() for key, value in model.state_dict().items()}, model(X)
    quantize(model)
    assert model.training
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert torch.equal(model(X), out)


def test_every_linear_layer_is_quantized():
    assert not any(isinstance(part, nn.Linear) for part in quantize(gpt()).modules())


@torch.no_grad()
def test_a_tied_embedding_stays_as_it_is():
    model = GPT(GPT.Config(width=8, layers=1, heads=2, vocabulary=30, tie_embeddings=True))
    assert torch.equal(quantize(model).embedding.weight, model.embedding.weight)


def test_a_quantized_model_writes():
    assert len(quantize(gpt()).generate([[1, 2, 3]], 70, GREEDY)[0]) == 70
