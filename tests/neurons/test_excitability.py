"""How Hodgkin and Huxley's neuron answers constant currents, against an adaptive solver and published thresholds."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

from engram.core.errors import EngramError
from engram.neurons.hodgkin_huxley.excitability import frequency_hz, nullclines, rheobase
from engram.neurons.hodgkin_huxley.model import THRESHOLD_MV, HodgkinHuxley
from tests.neurons.test_hodgkin_huxley import derivative

CONFIG = HodgkinHuxley.Config()


def solvers_spikes(J, duration_ms):
    def rising(t, x, *_):
        return x[0] - THRESHOLD_MV

    rising.direction = 1
    start = HodgkinHuxley().state[:, 0].numpy()
    args = (0.0, duration_ms, J, J)
    solution = solve_ivp(
        derivative, (0.0, duration_ms), start, "DOP853", rtol=1e-8, atol=1e-8, events=rising, args=args
    )
    return solution.t_events[0]


@pytest.mark.parametrize("integrator", ["exponential", "rk4"])
def test_steady_rates_are_the_adaptive_solvers(integrator):
    currents = [3.0, 7.0, 15.0, 40.0]
    rates = frequency_hz(HodgkinHuxley.Config(integrator=integrator), currents, duration_ms=300.0)
    for J, rate in zip(currents, rates, strict=True):
        spikes = solvers_spikes(J, 300.0)
        steady = spikes[spikes >= 100]
        expected = 1000 / np.diff(steady).mean() if len(steady) > 1 else 0.0
        assert rate == pytest.approx(expected, rel=1e-3), J


def test_one_spike_needs_as_much_as_the_adaptive_solver_says():
    threshold = rheobase(CONFIG)
    assert len(solvers_spikes(threshold + 2e-3, 100.0)) == 1
    assert len(solvers_spikes(threshold - 2e-3, 100.0)) == 0


def test_firing_on_and_on_begins_where_published():
    """6.26 µA/cm²: where, with these equations, the periodic solutions begin (Rinzel & Miller 1980)."""
    assert rheobase(CONFIG, repetitive=True) == pytest.approx(6.26, abs=0.02)


def test_a_neuron_without_sodium_never_fires_on_and_on():
    assert rheobase(HodgkinHuxley.Config(g_Na=0.0), repetitive=True) == math.inf


def test_nullclines_are_where_nothing_changes():
    model, J = HodgkinHuxley(CONFIG), 8.0
    V = torch.linspace(-70.3, 40, 23, dtype=torch.float64)  # without -55 and -40, where the textbook divides by 0
    n_still, V_still = nullclines(model, J, V)
    _, _, h_rest, n_rest = model.init_state()[:, 0].tolist()
    for v, n_inf, n in zip(V.tolist(), n_still.tolist(), V_still.tolist(), strict=True):
        alpha_m, beta_m = 0.1 * (v + 40) / (1 - math.exp(-(v + 40) / 10)), 4 * math.exp(-(v + 65) / 18)
        m = alpha_m / (alpha_m + beta_m)
        change = derivative(0.0, [v, m, h_rest + n_rest - n_inf, n_inf], 0.0, 1.0, J, J)
        assert abs(change[3]) < 1e-12

        def net(n, v=v, m=m):
            return derivative(0.0, [v, m, h_rest + n_rest - n, n], 0.0, 1.0, J, J)[0]

        assert n == pytest.approx(brentq(net, 0, 1, xtol=1e-12), abs=1e-9)


def test_too_short_a_time_is_refused():
    with pytest.raises(EngramError, match="duration_ms must be at least 200"):
        frequency_hz(CONFIG, [10.0], duration_ms=50.0)
