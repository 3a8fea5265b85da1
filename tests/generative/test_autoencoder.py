"""The autoencoder: tied weights, the linear one against principal components, and the moments of its latents."""

import pytest
import torch
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.generative.autoencoder.model import Autoencoder
from engram.training.learner import GradientLearner
from engram.training.optimizer import OptimizerConfig


def test_tied_decoder_is_the_encoder_transposed():
    model = Autoencoder(Autoencoder.Config(shape=(6,), center=0.0, scale=1.0, hidden=(5,), latent_dim=3, tied=True))
    z = torch.randn(4, 3)
    first, second = model.encoder.layers
    expected = F.linear(torch.relu(F.linear(z, second.weight.T, model.bias[1])), first.weight.T, model.bias[0])
    torch.testing.assert_close(model.decode(z), expected)
    names = [name for name, _ in model.named_parameters()]
    assert not any(name.startswith("decoder") for name in names)


def test_linear_one_finds_the_principal_components():
    """Without hidden layers the best latents span the principal components (Baldi & Hornik 1989)."""
    torch.manual_seed(0)
    spread = torch.tensor([3.0, 2.0, 0.3, 0.2, 0.1])
    x = torch.randn(400, 5) * spread
    model = Autoencoder(Autoencoder.Config(shape=(5,), center=0.0, scale=1.0, hidden=(), latent_dim=2))
    learner = GradientLearner(
        model, lambda model, batch: (model.loss(batch["x"], torch.zeros_like(batch["x"])), {}),
        OptimizerConfig(lr=0.02, weight_decay=0.0), 600,
    )  # fmt: skip
    for _ in range(600):
        learner.step({"x": x})
    left = torch.linalg.svdvals(x - x.mean(0))[2:].square().sum() / x.numel()
    with torch.no_grad():
        assert F.mse_loss(model(x), x) == pytest.approx(left.item(), rel=0.02)


def test_the_moments_of_the_latents_are_tracked_and_sampled_from():
    torch.manual_seed(0)
    model = Autoencoder(Autoencoder.Config(shape=(3,), center=0.0, scale=1.0, hidden=(), latent_dim=2))
    x = torch.randn(500, 3) * torch.tensor([2.0, 1.0, 0.5]) + 1
    for _ in range(600):
        model.loss(x, torch.zeros_like(x))
    with torch.no_grad():
        z = model.encode(x)
    torch.testing.assert_close(model.latent_mean, z.mean(0), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(model.latent_cov, torch.cov(z.T, correction=0), rtol=0.02, atol=0.01)
    drawn = model.sample_latents(20_000, generator(0))
    torch.testing.assert_close(torch.cov(drawn.T), model.latent_cov, rtol=0.05, atol=0.05)


def test_evaluation_leaves_the_moments():
    model = Autoencoder(Autoencoder.Config(shape=(3,), hidden=(), latent_dim=2)).eval()
    before = model.latent_mean.clone()
    model.loss(torch.randn(10, 3), torch.zeros(10, 3))
    assert torch.equal(model.latent_mean, before)


def test_noise_is_added_to_the_input_and_not_to_the_target():
    model = Autoencoder(
        Autoencoder.Config(shape=(4,), center=0.0, scale=1.0, hidden=(3,), latent_dim=2, noise=0.5)
    ).eval()
    x, noise = torch.randn(8, 4), torch.randn(8, 4)
    torch.testing.assert_close(model.loss(x, noise), F.mse_loss(model(x + 0.5 * noise), x))


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 13, 10)])
def test_convolutional_ones_keep_their_shape(shape):
    model = Autoencoder(Autoencoder.Config(shape=shape, channels=(4, 8), latent_dim=5))
    assert model(torch.rand(2, *shape)).shape == (2, *shape)


def test_only_dense_layers_can_be_tied():
    with pytest.raises(EngramError, match="tied"):
        Autoencoder.Config(tied=True, channels=(8,))
