"""Systems of populations, beside what they should compute."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from engram.core.errors import EngramError
from engram.neurons.systems import (
    ControlledIntegrator,
    Held,
    Holding,
    Integrator,
    Lorenz,
    Oscillator,
    Passing,
    Transformation,
)


def shown(model, seconds: float) -> Passing:
    learner = Passing(model)
    t_s = torch.arange(1, round(seconds * 1000) + 1, dtype=torch.float64) / 1000
    learner.step({"current": model.drive(t_s)})
    return learner


@pytest.mark.parametrize("spiking", [True, False])
def test_a_value_is_held(spiking):
    assert shown(Holding(Held(neurons=300, spiking=spiking)), 4).error() < 0.05


@pytest.mark.parametrize("function", Transformation.FUNCTIONS)
def test_functions_of_two_values(function):
    assert shown(Transformation(Transformation.Config(neurons=500, function=function)), 4).error() < 0.08


def test_an_integrator_integrates_and_remembers():
    learner = shown(Integrator(Held(neurons=1000)), 8)
    assert learner.error() < 0.05
    remembered = learner.seen_TK[800:1200, 0]  # between two pushes
    assert remembered.mean().item() == pytest.approx(0.5, abs=0.05)


def test_a_controlled_integrator_forgets_when_it_is_told_to():
    learner = shown(ControlledIntegrator(Held(neurons=1500)), 5)
    assert learner.seen_TK[2500:2900].mean() > 0.5
    assert learner.seen_TK[4500:].abs().mean() < 0.1
    assert learner.error() < 0.1


@pytest.mark.parametrize("frequency_hz", [0.7, 1.5])
def test_an_oscillator_has_its_frequency(frequency_hz):
    learner = shown(Oscillator(Oscillator.Config(neurons=1000, frequency_hz=frequency_hz)), 8)
    seen = learner.seen_TK[1000:].numpy()
    turned = np.unwrap(np.arctan2(seen[:, 1], seen[:, 0]))
    found_hz = (turned[-1] - turned[0]) / (2 * math.pi) / (len(seen) / 1000)
    assert found_hz == pytest.approx(frequency_hz, rel=0.03)
    assert np.hypot(*seen.T).min() > 0.6


def test_the_lorenz_attractor_has_two_wings_and_the_right_size():
    learner = shown(Lorenz(Lorenz.Config(neurons=1000)), 20)
    seen = learner.seen_TK[2000:]
    x, z = seen[:, 0], seen[:, 2] + 28
    assert (x > 5).any()
    assert (x < -5).any()
    assert 20 < z.mean() < 27  # 23.5 on the attractor
    assert z.max() < 60  # 48, and the noise of the spikes
    assert 5 < x.std() < 11  # 7.9


def test_ideals_are_those_of_a_solver():
    for model, D in ((Oscillator(Oscillator.Config(neurons=10)), 2), (Lorenz(Lorenz.Config(neurons=10)), 3)):
        u_TD = torch.zeros(500, D, dtype=torch.float64)
        u_TD[:, 0] = 3.0

        def slope(t, x, model=model):
            if isinstance(model, Lorenz):
                return model.slope(torch.tensor(x)[None])[0].numpy() + [3.0, 0, 0]
            return 2 * math.pi * np.array([-x[1], x[0]]) + [3.0, 0]

        solved = solve_ivp(slope, (0, 0.5), np.zeros(D), rtol=1e-10, atol=1e-10).y[:, -1]
        np.testing.assert_allclose(model.ideal(u_TD)[-1], solved, atol=1e-5)


def test_a_stretch_at_a_time_is_the_same():
    model = Integrator(Held(neurons=100))
    t_s = torch.arange(1, 1001, dtype=torch.float64) / 1000
    whole, parts = shown(model, 1.0), Passing(model)
    for part in model.drive(t_s).split(300):
        saved = parts.state_dict()
        parts = Passing(model)
        parts.load_state_dict(saved)
        parts.step({"current": part})
    assert torch.equal(parts.seen_TK, whole.seen_TK)


def test_what_cannot_be_is_refused():
    with pytest.raises(EngramError, match="tau_ms"):
        Held(tau_ms=0.0)
