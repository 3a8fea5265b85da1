"""Leaky integrate-and-fire neurons, beside the closed forms and beside their own clear step."""

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from engram.core.errors import EngramError
from engram.neurons.lif.membrane import Membrane
from engram.neurons.lif.model import LIF, firing_rate_hz


def neurons(count: int, **changes) -> LIF:
    return LIF(LIF.Config(neurons=count, **changes))


def held(v_in, steps: int) -> torch.Tensor:
    return torch.as_tensor(v_in, dtype=torch.float64).expand(steps, -1)


def intervals_ms(spikes, count: int) -> np.ndarray:
    return np.array([np.diff(spikes.train(i)).mean() for i in range(count)])


STRONG = np.geomspace(1.001, 50, 60)


@pytest.mark.parametrize("step_ms", [0.01, 0.1, 1.0, 7.0])
def test_mean_interval_is_that_of_the_formula_whatever_the_step(step_ms):
    model = neurons(60, step_ms=step_ms)
    _, _, spikes = model.step(model.state, held(STRONG, round(1000 / step_ms)))
    np.testing.assert_allclose(intervals_ms(spikes, 60), 1000 / firing_rate_hz(STRONG), rtol=1e-9)


@pytest.mark.parametrize("step_ms", [0.02, 0.1, 0.5])
def test_without_exact_times_each_interval_is_longer_by_a_step_at_most(step_ms):
    model = neurons(60, step_ms=step_ms, exact=False)
    _, _, spikes = model.step(model.state, held(STRONG, round(1000 / step_ms)))
    longer_ms = intervals_ms(spikes, 60) - 1000 / firing_rate_hz(STRONG)
    assert (longer_ms > -1e-9).all()
    assert (longer_ms < step_ms).all()
    assert longer_ms.mean() == pytest.approx(step_ms / 2, rel=0.25)
    np.testing.assert_allclose(spikes.time_ms / step_ms, np.round(spikes.time_ms / step_ms), atol=1e-6)


def test_from_spike_to_spike_equals_step_by_step():
    v_in = np.linspace(0, 4, 50)
    model = neurons(50)
    _, _, stepped = model.step(model.state, held(v_in, 5000))
    jumped = model.simulate_constant_input(v_in, 500.0)
    assert np.array_equal(stepped.neuron, jumped.neuron)
    np.testing.assert_allclose(stepped.time_ms, jumped.time_ms, rtol=1e-10)


def test_silence_at_and_below_the_threshold():
    model = neurons(4)
    _, v_TN, spikes = model.step(model.state, held([-3.0, 0.0, 0.99, 1.0], 20_000))
    assert len(spikes.time_ms) == len(model.simulate_constant_input([-3.0, 0.0, 0.99, 1.0], 2000.0).time_ms) == 0
    torch.testing.assert_close(v_TN[-1], torch.tensor([-3.0, 0.0, 0.99, 1.0], dtype=torch.float64))
    assert (firing_rate_hz([-3.0, 0.0, 0.99, 1.0]) == 0).all()


def test_voltage_below_the_threshold_is_that_of_an_ode_solver():
    model = neurons(1, tau_m_ms=13.0)
    time_ms = np.arange(1, 1001) * 0.1
    v_in = 0.8 * np.sin(time_ms // 10)
    _, v_TN, _ = model.step(model.state, torch.from_numpy(v_in)[:, None])
    pieces, v = [], 0.0
    for k in range(0, 1000, 100):  # the solver is not let across a jump
        u = v_in[k : k + 100]
        for part in np.split(u, np.nonzero(np.diff(u))[0] + 1):
            solved = solve_ivp(lambda t, y, u=part[0]: (u - y) / 13.0, (0, 0.1 * len(part)), [v], rtol=1e-11,
                               atol=1e-13, t_eval=0.1 * np.arange(1, len(part) + 1))  # fmt: skip
            pieces.append(solved.y[0])
            v = solved.y[0, -1]
    np.testing.assert_allclose(v_TN[:, 0].numpy(), np.concatenate(pieces), atol=1e-8)


@pytest.mark.parametrize("tau_ref_ms", [0.0, 0.13, 2.0])
def test_fast_form_equals_clear_form(tau_ref_ms):
    model = neurons(9, tau_m_ms=3.0, tau_ref_ms=tau_ref_ms, step_ms=0.5)
    model.tau_m_ms.copy_(torch.linspace(2, 9, 9))
    v_in_TN = 3 * torch.randn(300, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 2
    slow, found = model.state, []
    for t, v_in_N in enumerate(v_in_TN):
        slow, spiked = model.reference_step(slow, v_in_N)
        found += [(t * 0.5 + time, neuron) for time, neuron in spiked]
    fast, _, spikes = model.step(model.state, v_in_TN)
    found.sort(key=lambda spike: (spike[1], spike[0]))
    assert len(found) > 200
    assert [neuron for _, neuron in found] == spikes.neuron.tolist()
    np.testing.assert_allclose([time for time, _ in found], spikes.time_ms, atol=1e-9)
    torch.testing.assert_close(fast, slow, atol=1e-9, rtol=0)


@pytest.mark.parametrize("exact", [True, False])
def test_time_may_be_cut_anywhere(exact):
    model = neurons(20, exact=exact)
    v_in_TN = 2 * torch.rand(1000, 20, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    whole, v_TN, spikes = model.step(model.state, v_in_TN)
    state, v, times, which, start = model.state, [], [], [], 0
    for part in v_in_TN.split([1, 7, 400, 592]):
        state, v_part, found = model.step(state, part)
        v.append(v_part)
        times += (found.time_ms + start * 0.1).tolist()
        which += found.neuron.tolist()
        start += len(part)
    assert torch.equal(torch.cat(v), v_TN)
    assert torch.equal(state, whole)
    order = np.lexsort([times, which])
    np.testing.assert_allclose(np.array(times)[order], spikes.time_ms, atol=1e-9)
    assert np.array(which)[order].tolist() == spikes.neuron.tolist()


def test_neurons_with_constants_of_their_own():
    model = neurons(3)
    model.tau_m_ms.copy_(torch.tensor([5.0, 20.0, 80.0]))
    model.tau_ref_ms.copy_(torch.tensor([0.0, 1.0, 5.0]))
    found = intervals_ms(model.simulate_constant_input(1.5, 2000.0), 3)
    np.testing.assert_allclose(found, 1000 / firing_rate_hz(1.5, [5.0, 20.0, 80.0], [0.0, 1.0, 5.0]), rtol=1e-12)


def test_more_than_one_spike_in_a_step():
    model = neurons(1, tau_m_ms=1.0, tau_ref_ms=0.0, step_ms=10.0)
    state, _, spikes = model.step(model.state, held([20.0], 3))
    interval_ms = -np.log(1 - 1 / 20)
    np.testing.assert_allclose(spikes.time_ms, interval_ms * np.arange(1, 1 + int(30 / interval_ms)), rtol=1e-12)
    assert 0 <= state[0, 0] < 1


def test_a_membrane_and_the_form_without_dimensions():
    membrane = Membrane(c=2.0, g_L=0.1, V_L=-70.0, V_th=-50.0)
    J = 3.0
    assert membrane.tau_m_ms == 20.0
    assert membrane.normalize_current(torch.tensor(J)).item() == pytest.approx(1.5)
    model = neurons(1, tau_m_ms=membrane.tau_m_ms)
    _, v_TN, _ = model.step(model.state, held([membrane.normalize_current(torch.tensor(J)).item()], 100))
    dV = solve_ivp(lambda t, V: (J - 0.1 * (V + 70)) / 2, (0, 10), [-70.0], rtol=1e-10, atol=1e-10).y[0, -1]
    assert membrane.voltage_mV(v_TN[-1, 0]).item() == pytest.approx(dV, abs=1e-6)
    V = torch.tensor([-70.0, -61.0, -50.0])
    torch.testing.assert_close(membrane.voltage_mV(membrane.normalize_voltage(V)), V)
    torch.testing.assert_close(membrane.current(membrane.normalize_current(torch.tensor([J]))), torch.tensor([J]))


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"tau_m_ms": 0.0}, "tau_m_ms"), ({"tau_ref_ms": -1.0}, "tau_ref_ms"), ({"step_ms": float("nan")}, "step_ms")],
)
def test_what_cannot_be_is_refused(changes, field):
    with pytest.raises(EngramError, match=field):
        LIF.Config(**changes)


def test_an_input_that_does_not_fit_is_refused():
    model = neurons(2)
    with pytest.raises(EngramError, match="T×N"):
        model.step(model.state, torch.zeros(10))
    with pytest.raises(EngramError, match="finite"):
        model.step(model.state, torch.full((3, 2), torch.inf))
    with pytest.raises(EngramError, match="V_th"):
        Membrane(V_th=-80.0)
