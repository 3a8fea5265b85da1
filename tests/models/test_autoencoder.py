"""The autoencoder: tied matrices, the linear one against principal components, and how codes are spread."""

import pytest
import torch
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.learner import Descent, Gradient
from engram.core.seeding import generator
from engram.models.autoencoder import Autoencoder


def test_tied_decoder_is_the_encoder_transposed():
    model = Autoencoder(Autoencoder.Config(shape=(6,), centre=0.0, scale=1.0, hidden=(5,), code=3, tied=True))
    z = torch.randn(4, 3)
    first, second = model.encoder.layers
    expected = F.linear(torch.relu(F.linear(z, second.weight.T, model.bias[1])), first.weight.T, model.bias[0])
    torch.testing.assert_close(model.decode(z), expected)
    names = [name for name, _ in model.named_parameters()]
    assert not any(name.startswith("decoder") for name in names)


def test_linear_one_finds_the_principal_components():
    """With no hidden layer the best code spans the directions in which the data differ most (Baldi & Hornik 1989)."""
    torch.manual_seed(0)
    spread = torch.tensor([3.0, 2.0, 0.3, 0.2, 0.1])
    x = torch.randn(400, 5) * spread
    model = Autoencoder(Autoencoder.Config(shape=(5,), centre=0.0, scale=1.0, hidden=(), code=2))
    learner = Gradient(
        model, lambda model, batch: (model.loss(batch["x"], torch.zeros_like(batch["x"])), {}),
        Descent(lr=0.02, weight_decay=0.0), 600,
    )  # fmt: skip
    for _ in range(600):
        learner.step({"x": x})
    left = torch.linalg.svdvals(x - x.mean(0))[2:].square().sum() / x.numel()
    with torch.no_grad():
        assert F.mse_loss(model(x), x) == pytest.approx(left.item(), rel=0.02)


def test_spread_of_codes_is_learnt_on_the_way_and_sampled_from():
    torch.manual_seed(0)
    model = Autoencoder(Autoencoder.Config(shape=(3,), centre=0.0, scale=1.0, hidden=(), code=2))
    x = torch.randn(500, 3) * torch.tensor([2.0, 1.0, 0.5]) + 1
    for _ in range(600):
        model.loss(x, torch.zeros_like(x))
    with torch.no_grad():
        z = model.encode(x)
    torch.testing.assert_close(model.code_mean, z.mean(0), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(model.code_cov, torch.cov(z.T, correction=0), rtol=0.02, atol=0.01)
    drawn = model.codes(20_000, generator(0))
    torch.testing.assert_close(torch.cov(drawn.T), model.code_cov, rtol=0.05, atol=0.05)


def test_evaluating_does_not_move_the_spread():
    model = Autoencoder(Autoencoder.Config(shape=(3,), hidden=(), code=2)).eval()
    before = model.code_mean.clone()
    model.loss(torch.randn(10, 3), torch.zeros(10, 3))
    assert torch.equal(model.code_mean, before)


def test_noise_is_put_on_what_is_seen_and_not_on_what_is_wanted():
    model = Autoencoder(Autoencoder.Config(shape=(4,), centre=0.0, scale=1.0, hidden=(3,), code=2, noise=0.5)).eval()
    x, noise = torch.randn(8, 4), torch.randn(8, 4)
    torch.testing.assert_close(model.loss(x, noise), F.mse_loss(model(x + 0.5 * noise), x))


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 13, 10)])
def test_convolutional_ones_keep_their_shape(shape):
    model = Autoencoder(Autoencoder.Config(shape=shape, channels=(4, 8), code=5))
    assert model(torch.rand(2, *shape)).shape == (2, *shape)


def test_only_dense_layers_can_be_tied():
    with pytest.raises(EngramError, match="tied"):
        Autoencoder.Config(tied=True, channels=(8,))
