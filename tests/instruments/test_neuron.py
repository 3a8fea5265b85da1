"""Instrument of single neurons against the models themselves."""

import base64
import math

import numpy as np
import pytest
import torch

from engram.core.errors import EngramError
from engram.neurons.hodgkin_huxley.excitability import rheobase
from engram.neurons.hodgkin_huxley.model import HodgkinHuxley
from engram.neurons.lif.model import firing_rate_hz


def unpacked(given):
    return np.frombuffer(base64.b64decode(given["f32"]), "<f4").reshape(given["shape"])


def test_voltage_gates_and_currents_are_the_library_s(call_endpoint):
    _, answer = call_endpoint("neuron", stimulus={"kind": "step", "onset_ms": 5, "offset_ms": 45}, duration_ms=50)
    t = np.arange(1, 5001) * 0.01
    J = torch.from_numpy(np.where((t - 0.005 >= 5) & (t - 0.005 < 45), 10.0, 0.0))[:, None]
    model = HodgkinHuxley()
    V, m, h, n = model(J)[1::2, :, 0].T
    expected = dict(zip(("V", "m", "h", "n", "I_Na"), (V, m, h, n, model.currents(V, m, h, n)[0]), strict=True))
    assert np.allclose(unpacked(answer["t"]), t[1::2])
    for name, values in expected.items():
        assert np.allclose(unpacked(answer["series"][name]), values, rtol=1e-5, atol=1e-5), name
    assert len(answer["spikes"]) == answer["count"] == 3


def test_a_conductance_matters(call_endpoint):
    _, without = call_endpoint("neuron", hodgkin_huxley={"g_Na": 0.0})
    assert without["count"] == 0
    assert unpacked(without["series"]["I_Na"]).max() == 0


def test_a_leaky_neuron_rises_as_its_solution_says(call_endpoint):
    _, answer = call_endpoint(
        "neuron", cell="lif", stimulus={"kind": "step", "amplitude": 0.9, "onset_ms": 0, "offset_ms": 60}
    )
    t, v = unpacked(answer["t"]), unpacked(answer["series"]["v"])
    rising = t <= 60
    assert np.allclose(v[rising], 0.9 * (1 - np.exp(-t[rising] / 20)), atol=1e-6)
    assert np.allclose(unpacked(answer["series"]["dv_dt"])[rising], (0.9 - v[rising]) / 20, atol=1e-6)


def test_a_leaky_neuron_does_not_move_while_it_waits(call_endpoint):
    _, answer = call_endpoint(
        "neuron", cell="lif", lif={"tau_ref_ms": 10.0}, stimulus={"kind": "noise", "amplitude": 3.0}
    )
    t, slope, first = unpacked(answer["t"]), unpacked(answer["series"]["dv_dt"]), answer["spikes"][0]
    waits = (t > first + 0.1) & (t < first + 9.9)
    assert waits.any()
    assert not slope[waits].any()
    assert slope[(t > first + 10.1) & (t < first + 11)].all()


def test_a_drawn_current_is_joined_by_lines(call_endpoint):
    _, answer = call_endpoint("neuron", stimulus={"kind": "drawn", "points": [0, 10, -5]}, duration_ms=100)
    t = unpacked(answer["t"]) - 0.005  # during a step the current is that of its middle
    assert np.allclose(unpacked(answer["J"]), np.interp(t, [0, 50, 100], [0, 10, -5]), atol=1e-4)


@pytest.mark.parametrize(("kind", "at"), [("pulses", {20.5: 1, 22: 0, 35.5: 1, 50.5: 0}), ("ramp", {10: 0, 100: 0.5})])
def test_courses(call_endpoint, kind, at):
    _, answer = call_endpoint("neuron", stimulus={"kind": kind, "amplitude": 1.0, "period_ms": 15})
    t, J = unpacked(answer["t"]), unpacked(answer["J"])
    for moment, height in at.items():
        assert J[np.argmin(np.abs(t - moment))] == pytest.approx(height, abs=1e-3)


def test_a_sine_turns_in_its_period(call_endpoint):
    _, answer = call_endpoint("neuron", stimulus={"kind": "sine", "amplitude": 4.0, "period_ms": 50})
    t, J = unpacked(answer["t"]), unpacked(answer["J"])
    assert np.allclose(J, 4 * np.sin(2 * math.pi * (t - 0.005) / 50), atol=1e-4)


def test_noise_is_that_of_its_seed(call_endpoint):
    first, again, other = (
        call_endpoint("neuron", stimulus={"kind": "noise", "noise": 5.0, "seed": seed})[1]["J"]["f32"]
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_leaky_rates_are_the_formula_s(call_endpoint):
    parts, _ = call_endpoint(
        "neuron.fi_curve", cell="lif", min_current=0.5, max_current=4.0, points=8, lif={"tau_m_ms": 15, "tau_ref_ms": 3}
    )
    current = sum((part["current"] for part in parts if "current" in part), [])
    measured = sum((part["rate_hz"] for part in parts if "current" in part), [])
    assert len(current) == 8
    assert np.allclose(measured, firing_rate_hz(current, 15, 3), atol=1e-6)
    assert parts[0]["analytic"]["rate_hz"][-1] == pytest.approx(1000 / (3 - 15 * math.log(1 - 1 / 4)))


def test_rates_come_in_parts_and_end_with_the_rheobase(call_endpoint):
    parts, _ = call_endpoint("neuron.fi_curve", min_current=0.0, max_current=20.0, points=9)
    rate = dict(
        pair for part in parts if "current" in part for pair in zip(part["current"], part["rate_hz"], strict=True)
    )
    found = parts[-1]["rheobase"]["repetitive"]
    assert found == pytest.approx(rheobase(HodgkinHuxley.Config(), repetitive=True), abs=0.05)
    assert all((hz > 0) == (found <= J) for J, hz in rate.items())


def test_no_rheobase_is_said_as_nothing(call_endpoint):
    parts, _ = call_endpoint("neuron.fi_curve", points=2, hodgkin_huxley={"g_Na": 0.0})
    assert parts[-1] == {"rheobase": {"repetitive": None}}


def test_what_stands_still_meets_where_the_neuron_rests(call_endpoint):
    _, answer = call_endpoint("neuron.nullclines", current=0.0)
    apart = [
        a - b if b is not None else math.inf for a, b in zip(answer["n_nullcline"], answer["V_nullcline"], strict=True)
    ]
    rest_mV, *_ = HodgkinHuxley().init_state()[:, 0].tolist()
    before = max(i for i, V in enumerate(answer["V"]) if rest_mV > V)
    assert apart[before] * apart[before + 1] < 0


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"duration_ms": 5000}, "duration_ms"),
        ({"hodgkin_huxley": {"neurons": 10**6}}, "neurons"),
        ({"hodgkin_huxley": {"step_ms": 1e-6}}, "step_ms"),
        ({"hodgkin_huxley": {"g_L": 0.0}}, "g_L"),
        ({"lif": {"tau_m_ms": math.nan}}, "tau_m_ms"),
        ({"stimulus": {"amplitude": 1e6}}, "amplitude"),
        ({"stimulus": {"points": [0.0] * 1001}}, "points"),
        ({"stimulus": {"points": []}}, "points"),
        ({"stimulus": {"kind": "drawn", "points": [math.inf]}}, "points"),
        ({"stimulus": {"kind": "step", "onset_ms": 50, "offset_ms": 20}}, "offset_ms"),
        ({"stimulus": {"kind": "triangle"}}, "triangle"),
        ({"cell": "izhikevich"}, "izhikevich"),
    ],
)
def test_what_is_out_of_bounds_is_refused_in_a_sentence(call_endpoint, arguments, part):
    with pytest.raises(EngramError) as refused:
        call_endpoint("neuron", **arguments)
    assert part in str(refused.value)


def test_curves_have_bounds(call_endpoint):
    with pytest.raises(EngramError, match="points"):
        call_endpoint("neuron.fi_curve", points=10**6)
    with pytest.raises(EngramError, match="max_current"):
        call_endpoint("neuron.fi_curve", min_current=5.0, max_current=1.0)


def test_the_strongest_that_may_be_asked_stays_finite(call_endpoint):
    worst = {"g_Na": 1000.0, "g_K": 0.0, "g_L": 0.05, "V_Na": 150.0, "temperature_C": 40.0}
    for amplitude in (-100.0, 100.0):
        _, answer = call_endpoint(
            "neuron", hodgkin_huxley=worst, stimulus={"kind": "noise", "amplitude": amplitude, "noise": 50.0}
        )
        assert np.isfinite(unpacked(answer["series"]["V"])).all()
