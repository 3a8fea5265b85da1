"""The Hodgkin–Huxley neuron against an adaptive high-order solver, published rates, and the laws of its own step."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from engram.core.errors import EngramError
from engram.neurons import kernels
from engram.neurons.hodgkin_huxley.model import (
    THRESHOLD_MV,
    HodgkinHuxley,
    gate_rates,
    linoid,
    spike_times_ms,
    steady_state_gates,
)
from engram.neurons.stimulus import Stimulus

DURATION_MS = 250.0


def derivative(t, x, start_ms, end_ms, J_start, J_end):
    """The right-hand side as the textbook writes it, independent of the library; J is linear from start to end."""
    V, m, h, n = x
    J = J_start + (J_end - J_start) * (t - start_ms) / (end_ms - start_ms)
    I_ion = 120 * m**3 * h * (V - 50) + 36 * n**4 * (V + 77) + 0.3 * (V + 54.387)
    alpha_m, beta_m = 0.1 * (V + 40) / (1 - math.exp(-(V + 40) / 10)), 4 * math.exp(-(V + 65) / 18)
    alpha_h, beta_h = 0.07 * math.exp(-(V + 65) / 20), 1 / (1 + math.exp(-(V + 35) / 10))
    alpha_n, beta_n = 0.01 * (V + 55) / (1 - math.exp(-(V + 55) / 10)), 0.125 * math.exp(-(V + 65) / 80)
    gates = (alpha_m, beta_m, m), (alpha_h, beta_h, h), (alpha_n, beta_n, n)
    return [J - I_ion, *(alpha * (1 - a) - beta * a for alpha, beta, a in gates)]


def solve(pieces):
    """Spike times by DOP853 from rest, one call per piece (start, end, J at start, J at end): no kink inside any."""

    def rising(t, x, *piece):
        return x[0] - THRESHOLD_MV

    rising.direction = 1
    spikes, x = [], HodgkinHuxley().state[:, 0].numpy()
    for piece in pieces:
        span_ms = piece[:2]
        solution = solve_ivp(derivative, span_ms, x, "DOP853", rtol=1e-9, atol=1e-9, events=rising, args=piece)
        spikes.append(solution.t_events[0])
        x = solution.y[:, -1]
    return np.concatenate(spikes)


def simulate(stimulus, step_ms=0.01):
    """Spike times by the library."""
    model = HodgkinHuxley(HodgkinHuxley.Config(step_ms=step_ms))
    current_TN = stimulus.sample(round(DURATION_MS / step_ms), step_ms, 1, torch.Generator())
    _, recording_T4N = model.step(model.state, current_TN)
    return spike_times_ms(recording_T4N[:, 0, 0], step_ms)


def random_model_and_state(neurons, seed=0):
    """Neurons that all differ in their parameters, in states that need not be on any trajectory."""
    generator = torch.Generator().manual_seed(seed)
    model = HodgkinHuxley(HodgkinHuxley.Config(neurons=neurons))
    for parameter in (model.c, model.g_Na, model.g_K, model.g_L, model.V_Na, model.V_K, model.V_L):
        parameter.mul_(1 + 0.2 * torch.rand(neurons, dtype=torch.float64, generator=generator))
    model.temperature_C.add_(10 * torch.rand(neurons, dtype=torch.float64, generator=generator))
    state = torch.rand(4, neurons, dtype=torch.float64, generator=generator)
    state[0] = 150 * state[0] - 90
    return model, state


COURSES = {
    "constant": (Stimulus(stimulus="constant"), [(0.0, DURATION_MS, 10.0, 10.0)]),
    "step": (
        Stimulus(stimulus="step", amplitude=20.0),
        [(0.0, 20.0, 0.0, 0.0), (20.0, 220.0, 20.0, 20.0), (220.0, DURATION_MS, 0.0, 0.0)],
    ),
    "ramp": (
        Stimulus(stimulus="ramp", amplitude=40.0),
        [(0.0, 20.0, 0.0, 0.0), (20.0, 220.0, 0.0, 40.0), (220.0, DURATION_MS, 40.0, 40.0)],
    ),
}


@pytest.mark.parametrize("course", COURSES)
def test_spike_times_equal_the_adaptive_solvers(course):
    stimulus, pieces = COURSES[course]
    expected = solve(pieces)
    assert len(expected) > 10
    assert simulate(stimulus) == pytest.approx(expected, abs=0.02, rel=0)


def test_spike_times_under_noise_equal_the_adaptive_solvers():
    held_ms, noisy = 0.1, Stimulus(stimulus="constant", amplitude=8.0, noise=4.0)
    J = noisy.sample(round(DURATION_MS / held_ms), held_ms, 1, torch.Generator().manual_seed(0))
    expected = solve((k * held_ms, (k + 1) * held_ms, J_k, J_k) for k, J_k in enumerate(J[:, 0].tolist()))
    model = HodgkinHuxley()
    _, recording_T4N = model.step(model.state, J.repeat_interleave(10, dim=0))
    assert len(expected) > 10
    assert spike_times_ms(recording_T4N[:, 0, 0], 0.01) == pytest.approx(expected, abs=0.02, rel=0)


@pytest.mark.parametrize("course", ["constant", "ramp"])
def test_error_falls_fourfold_when_the_step_is_halved(course):
    stimulus, pieces = COURSES[course]
    expected = solve(pieces)
    errors = [np.abs(simulate(stimulus, step_ms) - expected).max() for step_ms in (0.04, 0.02, 0.01, 0.005)]
    assert [coarse / fine for coarse, fine in pairwise(errors)] == pytest.approx([4, 4, 4], abs=0.1)


def test_runge_kuttas_error_falls_sixteenfold():
    """V after 4 ms that end in the middle of a spike, against steps so short that their error does not count."""
    J = 20.0

    def V(step_ms):
        model = HodgkinHuxley(HodgkinHuxley.Config(step_ms=step_ms, integrator="rk4"))
        steps = round(4 / step_ms)
        return model.step(model.init_state(), torch.full((steps, 1), J, dtype=torch.float64))[0][0, 0].item()

    x = HodgkinHuxley().state[:, 0].numpy()
    oracle = solve_ivp(derivative, (0.0, 4.0), x, "DOP853", rtol=1e-13, atol=1e-13, args=(0.0, 4.0, J, J)).y[0, -1]
    errors = [abs(V(step_ms) - oracle) for step_ms in (0.04, 0.02, 0.01)]
    for longer, shorter in pairwise(errors):
        assert 12 < longer / shorter < 20


@pytest.mark.parametrize("integrator", ["exponential", "rk4"])
def test_both_integrators_fast_and_clear(integrator):
    model, state = random_model_and_state(37)
    model.config = replace(model.config, integrator=integrator)
    J_TN = 20 * torch.rand(50, 37, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    fast, _ = model.step(state, J_TN)
    for J_N in J_TN:
        state = model.reference_step(state, J_N)
    torch.testing.assert_close(fast, state, rtol=1e-11, atol=1e-11)


def test_an_integrator_that_does_not_exist_is_named():
    with pytest.raises(EngramError, match="euler"):
        HodgkinHuxley.Config(integrator="euler")


def test_steady_rates_are_the_published_ones():
    """An ODE solver at rtol 1e-9 and NEURON 9.0.2 without its table, E_L = -54.3 mV; at 100 µA/cm² spikes are small."""
    J = torch.tensor([6.3, 7.0, 10.0, 20.0, 60.0, 100.0], dtype=torch.float64)
    model = HodgkinHuxley(HodgkinHuxley.Config(neurons=6, V_L=-54.3))
    _, recording_T4N = model.step(model.state, J.expand(100_000, 6))
    spikes = [spike_times_ms(V_T, 0.01) for V_T in recording_T4N[:, 0].T]
    rates_hz = [1000 / np.diff(times[times > 500]).mean() for times in spikes]
    assert rates_hz == pytest.approx([52.924, 58.460, 68.390, 86.507, 124.470, 147.282], abs=0.05, rel=0)


def test_chunks_of_time_change_no_bit():
    model, start = random_model_and_state(40)
    current_TN = Stimulus(noise=5.0).sample(1000, 0.01, 40, torch.Generator().manual_seed(1))
    whole_state, whole = model.step(start, current_TN)
    for sizes in ([100] * 10, [1, 2, 3, 994]):
        state, parts = start, []
        for chunk_TN in current_TN.split(sizes):
            state, part = model.step(state, chunk_TN)
            parts.append(part)
        assert torch.equal(state, whole_state)
        assert torch.equal(torch.cat(parts), whole)


def test_neighbors_and_threads_change_no_bit():
    neurons, steps = 1003, 300
    model, start = random_model_and_state(neurons)
    current_TN = Stimulus(noise=5.0).sample(steps, 0.01, neurons, torch.Generator().manual_seed(1))
    assert neurons * steps > kernels.BLOCK, "this many are to be computed in parallel"
    _, together = model.step(start, current_TN)
    for i in (0, 15, 16, neurons - 1):
        alone = HodgkinHuxley()
        alone.load_state_dict({name: buffer[..., i : i + 1] for name, buffer in model.state_dict().items()})
        _, recording_T4N = alone.step(start[:, i : i + 1], current_TN[:, i : i + 1])
        assert torch.equal(recording_T4N, together[:, :, i : i + 1])


def test_step_leaves_its_arguments_alone():
    model = HodgkinHuxley()
    start = model.state.clone()
    state, recording_T4N = model.step(model.state, torch.full((50, 1), 10.0, dtype=torch.float64))
    assert torch.equal(model.state, start)
    assert torch.equal(recording_T4N[-1], state)


def test_fast_form_equals_clear_form():
    model, state = random_model_and_state(1000)
    J_N = torch.linspace(-50, 150, 1000, dtype=torch.float64)
    fast, _ = model.step(state, J_N[None])
    torch.testing.assert_close(fast, model.reference_step(state, J_N), rtol=1e-12, atol=1e-12)


def test_fast_form_stays_with_clear_form_through_a_spike():
    model = HodgkinHuxley()
    state = model.state
    for _ in range(500):
        state = model.reference_step(state, torch.tensor([20.0], dtype=torch.float64))
    fast, _ = model.step(model.state, torch.full((500, 1), 20.0, dtype=torch.float64))
    torch.testing.assert_close(fast, state, rtol=1e-10, atol=1e-10)


def test_rest_is_where_no_current_flows():
    model, _ = random_model_and_state(100)
    V, *gates = model.init_state()
    torch.testing.assert_close(gates, steady_state_gates(V))
    assert sum(model.currents(V, *gates)).abs().max() < 1e-11


def test_rest_rests_for_a_second():
    model = HodgkinHuxley()
    state, recording_T4N = model.step(model.state, torch.zeros(100_000, 1, dtype=torch.float64))
    assert model.state[0].item() == pytest.approx(-65, abs=0.01)
    torch.testing.assert_close(state, model.state, rtol=0, atol=1e-10)
    assert (recording_T4N - model.state).abs().max() < 1e-10


def test_rates_at_their_removable_singularities():
    V = torch.tensor([-40.0, -55.0], dtype=torch.float64)
    (alpha_m, _), _, (alpha_n, _) = gate_rates(V)
    assert alpha_m[0].item() == 1.0
    assert alpha_n[1].item() == 0.1


def test_linoid_keeps_every_digit_around_zero():
    """Against x / expm1(x) + x, the same function without the subtraction, in extended precision."""
    x = np.concatenate([sign * np.logspace(-300, 1, 2000) for sign in (-1, 1)])
    exact = (x.astype(np.longdouble) / np.expm1(x.astype(np.longdouble)) + x).astype(np.float64)
    fast = [kernels._linoid(x_i, math.exp(-x_i)) for x_i in x]
    np.testing.assert_allclose(linoid(torch.from_numpy(x)).numpy(), exact, rtol=2e-15)
    np.testing.assert_allclose(fast, exact, rtol=2e-15)
    assert kernels._linoid(0.0, 1.0) == 1.0


def test_exp_keeps_every_digit():
    x = np.linspace(-708, 708, 20_001)
    np.testing.assert_allclose([kernels._exp(x_i) for x_i in x], np.exp(x), rtol=5e-16)


def test_absurd_currents_give_finite_states():
    model = HodgkinHuxley(HodgkinHuxley.Config(neurons=2))
    _, recording_T4N = model.step(model.state, torch.tensor([[-1e6, 1e6]], dtype=torch.float64).repeat(10_000, 1))
    assert recording_T4N.isfinite().all()


def test_warmth_is_a_faster_clock_with_a_larger_capacitance():
    """(1) and (2) in the time phi t: ten degrees, phi = 3, are the same as three times c and three times the step."""
    warm = HodgkinHuxley(HodgkinHuxley.Config(temperature_C=16.3))
    slow = HodgkinHuxley(HodgkinHuxley.Config(c=3.0, step_ms=0.03))
    current_TN = torch.full((2000, 1), 20.0, dtype=torch.float64)
    assert warm.phi.item() == pytest.approx(3)
    torch.testing.assert_close(
        warm.step(warm.state, current_TN), slow.step(slow.state, current_TN), rtol=1e-9, atol=1e-9
    )


def test_currents_charge_the_membrane():
    """c dV/dt = J - I_Na - I_K - I_L along a recording, the derivative by central differences."""
    model = HodgkinHuxley(HodgkinHuxley.Config(neurons=2, step_ms=0.001))
    _, recording_T4N = model.step(model.state, torch.tensor([[10.0, 20.0]], dtype=torch.float64).repeat(5000, 1))
    V, m, h, n = recording_T4N.unbind(1)
    slope = (V[2:] - V[:-2]) / 0.002
    net = torch.tensor([10.0, 20.0]) - sum(model.currents(V, m, h, n))
    torch.testing.assert_close(slope, net[1:-1], rtol=0, atol=0.02)


def test_state_dict_keeps_values_per_neuron():
    model, state = random_model_and_state(5)
    model.state.copy_(state)
    other = HodgkinHuxley(HodgkinHuxley.Config(neurons=5))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.g_Na, model.g_Na)
    assert torch.equal(other.state, state)


def test_spike_times_on_straight_lines_are_exact():
    assert spike_times_ms([-1.0, 3.0, -2.0, -1.0, 0.0, 5.0], 0.5, threshold_mV=0.0) == pytest.approx([0.625, 2.5])
    assert spike_times_ms([-30.0, -10.0], step_ms=0.5, threshold_mV=-20.0) == pytest.approx([0.75])
    assert spike_times_ms([1.0, 2.0], step_ms=0.5).size == 0


def test_spike_times_by_lines_are_finer_than_the_integration():
    """Every fourth sample gives the same times as all of them, to a hundredth of the 0.01 ms between them."""
    model = HodgkinHuxley(HodgkinHuxley.Config(step_ms=0.0025))
    _, recording_T4N = model.step(model.state, torch.full((40_000, 1), 20.0, dtype=torch.float64))
    V_T = recording_T4N[:, 0, 0]
    assert spike_times_ms(V_T[3::4], 0.01) == pytest.approx(spike_times_ms(V_T, 0.0025), abs=1e-4, rel=0)


@pytest.mark.parametrize(
    ("field", "value"),
    [("neurons", 0), ("c", 0.0), ("g_L", 0.0), ("g_Na", -1.0), ("g_K", -1.0), ("step_ms", -0.01), ("V_K", math.nan)],
)
def test_a_wrong_field_is_named(field, value):
    with pytest.raises(EngramError, match=f"^{field} must be"):
        HodgkinHuxley.Config(**{field: value})


def test_a_current_of_the_wrong_shape_is_explained():
    model = HodgkinHuxley(HodgkinHuxley.Config(neurons=3))
    with pytest.raises(EngramError, match="T×N"):
        model.step(model.state, torch.zeros(10))
