"""NEF ensembles, beside Nengo's tuning and the normal equations."""

import nengo
import numpy as np
import pytest
import torch

from engram.core.errors import EngramError
from engram.neurons.nef.ensemble import Ensemble, solve_l2


def ensemble(**changes) -> Ensemble:
    return Ensemble(Ensemble.Config(**changes))


def test_neurons_begin_where_they_should_and_reach_their_rate():
    model = ensemble(neurons=50)
    rate_N, threshold_N = torch.linspace(100, 400, 50).double(), torch.linspace(-0.95, 0.9, 50).double()
    gain_N, bias_N = model.gain_bias(rate_N, threshold_N)
    theirs = nengo.LIF(tau_rc=0.02, tau_ref=0.002).gain_bias(rate_N.numpy(), threshold_N.numpy())
    np.testing.assert_allclose(gain_N, theirs[0], rtol=1e-12)
    np.testing.assert_allclose(bias_N, theirs[1], rtol=1e-12, atol=1e-12)
    model.gain_N.copy_(gain_N)
    model.bias_N.copy_(bias_N)
    at = model.rates(model.encoder_ND)[range(50), range(50)]  # each at its own preferred value
    torch.testing.assert_close(at, rate_N)
    below = model.rates(model.encoder_ND * (threshold_N - 1e-6)[:, None])[range(50), range(50)]
    assert (below == 0).all()
    above = model.rates(model.encoder_ND * (threshold_N + 1e-3)[:, None])[range(50), range(50)]
    assert (above > 0).all()


@pytest.mark.parametrize("sigma", [1e-3, 0.5, 30.0])  # by QR, and by Cholesky's factors
def test_decoders_solve_the_regularized_normal_equations(sigma):
    g = torch.Generator().manual_seed(0)
    A, F = torch.randn(300, 40, generator=g).double(), torch.randn(300, 3, generator=g).double()
    D = solve_l2(A, F, sigma)
    torch.testing.assert_close((A.T @ A + 300 * sigma**2 * torch.eye(40)) @ D, A.T @ F)


def test_without_noise_it_is_least_squares_even_where_activities_are_alike():
    g = torch.Generator().manual_seed(0)
    A = torch.randn(100, 5, generator=g).double()
    A = torch.cat([A, A[:, :2]], 1)  # two neurons that are the same
    F = torch.randn(100, 2, generator=g).double()
    D = solve_l2(A, F, 0.0)
    assert torch.isfinite(D).all()
    torch.testing.assert_close(A @ D, A[:, :5] @ torch.linalg.lstsq(A[:, :5], F).solution)


def test_a_value_is_read_off_the_rates():
    model = ensemble(neurons=200)
    x = model.eval_points(101)
    assert (model(x) - x).square().mean().sqrt() < 0.01
    square = model.rates(x) @ model.solve_decoders(lambda x: x**2)
    assert (square - x**2).square().mean().sqrt() < 0.02


def test_a_vector_is_read_off_the_rates():
    model = ensemble(neurons=600, dimensions=3, radius=2.0, seed=1)
    x = model.eval_points(400, torch.Generator().manual_seed(5))
    assert x.norm(dim=1).max() <= 2.0
    assert (model(x) - x).square().mean().sqrt() < 0.1
    product = model.rates(x) @ model.solve_decoders(lambda x: x[:, :1] * x[:, 1:2])
    assert (product - x[:, :1] * x[:, 1:2]).square().mean().sqrt() < 0.2


def test_error_falls_with_the_number_of_neurons():
    """Static distortion falls with 1 / N: decoders without noise, rates without noise."""
    counts, errors = (25, 50, 100, 200, 400), []
    for count in counts:
        trials = []
        for seed in range(6):
            model = ensemble(neurons=count, seed=seed)
            x = model.eval_points(2001)
            trials.append((model.rates(x) @ model.solve_decoders(noise=1e-4) - x).square().mean().sqrt().item())
        errors.append(np.mean(trials))
    slope = np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert slope < -0.9


def test_error_under_noise_falls_with_the_root_of_the_number_of_neurons():
    counts, errors = (25, 100, 400), []
    for count in counts:
        model = ensemble(neurons=count)
        x, g = model.eval_points(2001), torch.Generator().manual_seed(0)
        rates = model.rates(x)
        noisy = rates + 0.1 * rates.max() * torch.randn(rates.shape, generator=g, dtype=torch.float64)
        errors.append((noisy @ model.solve_decoders(noise=0.1) - x).square().mean().sqrt().item())
    slope = np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.12)


def test_spikes_have_the_rates():
    model = ensemble(neurons=30)
    x_TD = torch.full((4000, 1), 0.6)
    spikes = model.simulate_spikes(x_TD)
    counted = np.bincount(spikes.neuron, minlength=30) / 4.0
    np.testing.assert_allclose(counted, model.rates(x_TD[:1])[0], atol=0.5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"neurons": 0}, "neurons"),
        ({"max_rates": (200.0, 100.0)}, "max_rates"),
        ({"max_rates": (200.0, 600.0)}, "1000 / tau_ref_ms"),
        ({"intercepts": (-1.0, 1.0)}, "intercepts"),
        ({"tau_ref_ms": -1.0}, "tau_ref_ms"),
    ],
)
def test_what_cannot_be_is_refused(changes, words):
    with pytest.raises(EngramError, match=words):
        ensemble(**changes)


def test_a_function_of_the_wrong_shape_is_refused():
    with pytest.raises(EngramError, match="S×K"):
        ensemble().solve_decoders(lambda x: x[:, 0])
