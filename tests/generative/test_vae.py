"""The VAE against torch.distributions, and its bounds against a model whose likelihood has a closed form."""

import math

import pytest
import torch
from torch import distributions

from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.generative.vae.model import VAE, kl


def test_divergence_is_that_of_torch():
    mu, logvar = torch.randn(50, 7, dtype=torch.float64), torch.randn(50, 7, dtype=torch.float64)
    theirs = distributions.kl_divergence(
        distributions.Normal(mu, (0.5 * logvar).exp()), distributions.Normal(torch.zeros_like(mu), torch.ones_like(mu))
    )
    torch.testing.assert_close(kl(mu, logvar), theirs.sum(1), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian"])
def test_likelihood_is_that_of_torch(likelihood):
    model = VAE(VAE.Config(shape=(1, 4, 4), hidden=(8,), latent_dim=3, likelihood=likelihood, sigma=0.3)).eval()
    x, z = torch.rand(5, 1, 4, 4).round(), torch.randn(5, 3)
    g = model.decoder(z)
    theirs = (
        distributions.Bernoulli(logits=g) if likelihood == "bernoulli" else distributions.Normal(0.5 + 0.5 * g, 0.3)
    ).log_prob(x)
    torch.testing.assert_close(model.log_likelihood(x, z), theirs.flatten(1).sum(1))


def test_loss_is_the_bound_with_one_draw_of_the_same_noise():
    model = VAE(VAE.Config(shape=(1, 4, 4), hidden=(8,), latent_dim=3)).eval()
    x = torch.rand(6, 1, 4, 4).round()
    noise = torch.randn(6, 3)
    mu, logvar = model.posterior(x)
    posterior = distributions.Normal(mu, (0.5 * logvar).exp())
    z = mu + (0.5 * logvar).exp() * noise
    expected = -model.log_likelihood(x, z) + distributions.kl_divergence(
        posterior, distributions.Normal(torch.zeros(3), torch.ones(3))
    ).sum(1)
    torch.testing.assert_close(model.loss(x, noise)[0], expected.mean())
    total, reconstruction, divergence = model.loss(x, noise, beta=4.0)
    torch.testing.assert_close(total, reconstruction + 4 * divergence)


def linear_gaussian(latent_dim=2, dimensions=5, sigma=0.4):
    """x = z W + b + d e, of which both the likelihood and the posterior are known: a Gaussian each."""
    model = VAE(
        VAE.Config(shape=(dimensions,), center=0.0, scale=1.0, hidden=(), latent_dim=latent_dim, sigma=sigma)
    ).eval()
    W, b = model.decoder.layers[0].weight.data.T, model.decoder.layers[0].bias.data
    b += torch.randn(dimensions)
    covariance = W.T @ W + sigma**2 * torch.eye(dimensions)
    likelihood = distributions.MultivariateNormal(b, covariance)
    precision = torch.eye(latent_dim) + W @ W.T / sigma**2
    spread = torch.linalg.inv(precision)
    model.encoder.layers[0].weight.data[:latent_dim] = (W.T @ spread / sigma**2).T
    model.encoder.layers[0].bias.data[:latent_dim] = -(b @ W.T) @ spread / sigma**2
    model.encoder.layers[0].weight.data[latent_dim:] = 0
    model.encoder.layers[0].bias.data[latent_dim:] = spread.diagonal().log()
    return model, likelihood


def test_bound_comes_to_the_exact_likelihood():
    torch.manual_seed(0)
    model, likelihood = linear_gaussian()
    x = likelihood.sample((200,))
    exact = likelihood.log_prob(x)
    model.encoder.layers[0].bias.data[2:] += 1.0  # less sure than it might be, so that one draw is not enough
    with torch.no_grad():
        bounds = [model.iwae_bound(x, samples, generator(1)).mean() for samples in (1, 10, 2000)]
    assert bounds[0] < bounds[1] - 0.1 < bounds[2] - 0.1
    assert abs(bounds[2] - exact.mean()) < 0.01


def test_with_the_true_posterior_one_draw_is_exact():
    torch.manual_seed(1)
    model, likelihood = linear_gaussian(
        latent_dim=1
    )  # of one dimension the posterior is a Gaussian that the encoder can say
    x = likelihood.sample((20,))
    with torch.no_grad():
        torch.testing.assert_close(model.iwae_bound(x, 1, generator(2)), likelihood.log_prob(x), rtol=1e-4, atol=1e-4)


def test_bound_in_parts_is_the_bound_at_once():
    model = VAE(VAE.Config(shape=(1, 4, 4), hidden=(8,), latent_dim=3)).eval()
    x = torch.rand(6, 1, 4, 4).round()
    with torch.no_grad():
        parts = model.iwae_bound(x, 64, generator(0), chunk=8)
        torch.testing.assert_close(parts, model.iwae_bound(x, 64, generator(0), chunk=64))


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 7, 9)])
def test_convolutional_ones_keep_their_shape(shape):
    model = VAE(VAE.Config(shape=shape, channels=(8, 16), latent_dim=5))
    x = torch.rand(4, *shape)
    assert model(x).shape == x.shape
    assert model.sample(3, generator(0)).shape == (3, *shape)
    assert 0 <= model.sample(3, generator(0)).min() <= model.sample(3, generator(0)).max() <= 1


@pytest.mark.parametrize(("field", "value"), [("latent_dim", 0), ("sigma", 0.0), ("hidden", (0,)), ("channels", (-1,))])
def test_bad_settings_are_named(field, value):
    with pytest.raises(EngramError, match=field):
        VAE.Config(**{field: value})


def test_log_variance_stays_finite():
    model = VAE(VAE.Config(shape=(2,), center=0.0, scale=1e-6, hidden=(), latent_dim=2))
    assert math.isfinite(model.loss(1e3 * torch.ones(4, 2), torch.randn(4, 2))[2].item())
