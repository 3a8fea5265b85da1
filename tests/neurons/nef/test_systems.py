"""NEF systems, beside what they should compute."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from engram.core.errors import EngramError
from engram.neurons.nef.integrator.model import Integrator
from engram.neurons.nef.lorenz.model import Lorenz
from engram.neurons.nef.oscillator.model import Oscillator
from engram.neurons.nef.population.model import PopulationCode
from engram.neurons.nef.system import NEFConfig, NEFSimulation
from engram.neurons.nef.transformation.model import Transformation


def simulate(model, seconds: float) -> NEFSimulation:
    learner = NEFSimulation(model)
    t_s = torch.arange(1, round(seconds * 1000) + 1, dtype=torch.float64) / 1000
    learner.step({"input": model.example_input(t_s)})
    return learner


@pytest.mark.parametrize("spiking", [True, False])
def test_a_value_is_represented(spiking):
    assert simulate(PopulationCode(NEFConfig(neurons=300, spiking=spiking)), 4).rmse() < 0.05


@pytest.mark.parametrize("function", Transformation.FUNCTIONS)
def test_functions_of_two_values(function):
    assert simulate(Transformation(Transformation.Config(neurons=500, function=function)), 4).rmse() < 0.08


def test_an_integrator_integrates_and_remembers():
    learner = simulate(Integrator(NEFConfig(neurons=1000)), 8)
    assert learner.rmse() < 0.05
    remembered = learner.output_TK[800:1200, 0]  # between two pushes
    assert remembered.mean().item() == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("frequency_hz", [0.7, 1.5])
def test_an_oscillator_has_its_frequency(frequency_hz):
    learner = simulate(Oscillator(Oscillator.Config(neurons=1000, frequency_hz=frequency_hz)), 8)
    seen = learner.output_TK[1000:].numpy()
    turned = np.unwrap(np.arctan2(seen[:, 1], seen[:, 0]))
    found_hz = (turned[-1] - turned[0]) / (2 * math.pi) / (len(seen) / 1000)
    assert found_hz == pytest.approx(frequency_hz, rel=0.03)
    assert np.hypot(*seen.T).min() > 0.6


def test_the_lorenz_attractor_has_two_wings_and_the_right_size():
    learner = simulate(Lorenz(Lorenz.Config(neurons=1000)), 20)
    seen = learner.output_TK[2000:]
    x, z = seen[:, 0], seen[:, 2] + 28
    assert (x > 5).any()
    assert (x < -5).any()
    assert 20 < z.mean() < 27  # 23.5 on the attractor
    assert z.max() < 60  # 48, and the noise of the spikes
    assert 5 < x.std() < 11  # 7.9


def test_target_outputs_are_those_of_a_solver():
    for model, D in ((Oscillator(Oscillator.Config(neurons=10)), 2), (Lorenz(Lorenz.Config(neurons=10)), 3)):
        u_TD = torch.zeros(500, D, dtype=torch.float64)
        u_TD[:, 0] = 3.0

        def slope(t, x, model=model):
            if isinstance(model, Lorenz):
                return model.derivatives(torch.tensor(x)[None])[0].numpy() + [3.0, 0, 0]
            return 2 * math.pi * np.array([-x[1], x[0]]) + [3.0, 0]

        solved = solve_ivp(slope, (0, 0.5), np.zeros(D), rtol=1e-10, atol=1e-10).y[:, -1]
        np.testing.assert_allclose(model.target_output(u_TD)[-1], solved, atol=1e-5)


def test_a_window_at_a_time_is_the_same():
    model = Integrator(NEFConfig(neurons=100))
    t_s = torch.arange(1, 1001, dtype=torch.float64) / 1000
    whole, parts = simulate(model, 1.0), NEFSimulation(model)
    for part in model.example_input(t_s).split(300):
        saved = parts.state_dict()
        parts = NEFSimulation(model)
        parts.load_state_dict(saved)
        parts.step({"input": part})
    assert torch.equal(parts.output_TK, whole.output_TK)


def test_what_cannot_be_is_refused():
    with pytest.raises(EngramError, match="tau_synapse_ms"):
        NEFConfig(tau_synapse_ms=0.0)
