"""The population of the lab: what the library decodes, and systems that run the same however their time is cut."""

import base64

import numpy as np
import pytest
import torch

from engram.core.errors import EngramError
from engram.neurons.nef.ensemble import Ensemble
from engram.neurons.nef.integrator.model import Integrator
from engram.neurons.nef.oscillator.model import Oscillator
from engram.neurons.nef.plots import decoding_errors
from engram.neurons.nef.system import NEFConfig

SMALL = {"neurons": 60, "ensemble_seed": 3}


def unpacked(given):
    return np.frombuffer(base64.b64decode(given["f32"]), "<f4").reshape(given["shape"])


def output(parts):
    return np.concatenate([unpacked(part["output"]) for part in parts])


def test_tuning_and_decoding_are_the_library_s(call_endpoint):
    parts, _ = call_endpoint("population", ensemble={"neurons": 30, "seed": 5}, noise=0.0)
    model = Ensemble(Ensemble.Config(neurons=30, seed=5))
    x = torch.linspace(-1, 1, 201, dtype=torch.float64)[:, None]
    assert np.allclose(unpacked(parts[0]["tuning"]), model.rates(x).T, rtol=1e-5)
    expected = model.rates(x) @ model.solve_decoders(noise=1e-4)
    assert np.allclose(parts[1]["rates"]["decoded"], expected[:, 0])
    assert parts[1]["rates"]["rmse"] == pytest.approx((expected - x).square().mean().sqrt().item())


def test_spikes_say_the_value_better_when_they_are_counted_for_longer(call_endpoint):
    short, long = (call_endpoint("population", window_ms=window)[0][-1]["spikes"]["rmse"] for window in (5, 100))
    assert long < short / 3
    assert long < 0.05


def test_noise_makes_it_worse_and_is_that_of_the_seed(call_endpoint):
    quiet, loud, again = (call_endpoint("population", noise=noise)[0][1]["rates"] for noise in (0.0, 0.3, 0.3))
    assert quiet["rmse"] < loud["rmse"]
    assert loud == again


def test_errors_fall_with_the_number_of_neurons(call_endpoint):
    parts, exponents = call_endpoint("population.errors", ensemble={"seed": 2})
    assert [part["neurons"] for part in parts] == [10, 20, 50, 100, 200, 500]
    assert (parts[2]["clean"], parts[2]["noisy"]) == decoding_errors(Ensemble.Config(neurons=50, seed=2))
    assert parts[-1]["noisy"] < parts[0]["noisy"] / 3
    assert -0.7 < exponents["noisy_exponent"] < -0.3


@pytest.mark.parametrize("system", ["integrator", "oscillator"])
def test_time_may_be_cut_anywhere(call_endpoint, system):
    width = {"integrator": 1, "oscillator": 2}[system]
    pushed = [1.5] * 120 * width + [0.0] * 180 * width
    whole, end = call_endpoint("population.run", system=system, model=SMALL, input=pushed)
    first, middle = call_endpoint("population.run", system=system, model=SMALL, input=pushed[: 70 * width])
    rest, last = call_endpoint(
        "population.run", system=system, model=SMALL, state=middle["state"], input=pushed[70 * width :]
    )
    assert (output(whole) == np.concatenate([output(first), output(rest)])).all()
    assert end["state"] == last["state"]
    assert first[-1]["t"][-1] + 1 == rest[0]["t"][0]


def test_it_is_the_library_s_integrator(call_endpoint):
    parts, _ = call_endpoint("population.run", model=SMALL, input=[1.0] * 200)
    model = Integrator(NEFConfig(neurons=60, ensemble_seed=3))
    assert np.allclose(output(parts), model(torch.ones(200, 1)), atol=1e-6)


def test_a_pushed_integrator_holds(call_endpoint):
    parts, _ = call_endpoint("population.run", model={"neurons": 300}, input=[1.0] * 500 + [0.0] * 1000)
    assert sum(part["target_change"][0] for part in parts) == pytest.approx(0.5)
    assert output(parts)[600:700].mean() == pytest.approx(0.5, abs=0.05)
    assert output(parts)[-100:].mean() == pytest.approx(0.5, abs=0.1)


def test_an_oscillator_turns_as_fast_as_asked_and_may_be_turned_faster_while_it_runs(call_endpoint):
    kicked = [10.0, 0.0] * 100 + [0.0, 0.0] * 400
    _, end = call_endpoint(
        "population.run", system="oscillator", model={"neurons": 300, "frequency_hz": 1.0}, input=kicked
    )
    for hz in (1.0, 2.0):
        parts, _ = call_endpoint(
            "population.run", system="oscillator", model={"neurons": 300, "frequency_hz": hz}, state=end["state"],
            input=[0.0] * 2000,
        )  # fmt: skip
        turned = np.unwrap(np.angle(output(parts)[200:] @ [1, 1j]))
        assert (turned[-1] - turned[0]) / (2 * np.pi) / 0.8 == pytest.approx(hz, rel=0.15)


def test_spikes_are_those_of_the_first_neurons_in_the_time_of_their_part(call_endpoint):
    parts, _ = call_endpoint("population.run", model=SMALL, input=[0.0] * 100)
    model = Integrator(NEFConfig(neurons=60, ensemble_seed=3))
    _, recording = model.step(model.init_state(model.init_generator()), {model.input_node: torch.zeros(100, 1)})
    assert sum(len(part["spike_ms"]) for part in parts) == (recording.spikes.neuron < 40).sum()
    assert all(50 <= time <= 100 for time in parts[1]["spike_ms"])


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"model": {"neurons": 10**6}}, "neurons"),
        ({"model": {"step_ms": 1e-5}}, "step_ms"),
        ({"input": []}, "input"),
        ({"input": [0.0] * 5001}, "input"),
        ({"input": [0.0] * 3, "system": "oscillator"}, "input"),
        ({"input": [1e9]}, "input"),
        ({"state": "!"}, "state"),
        ({"state": base64.b64encode(b"123").decode()}, "state"),
        ({"state": base64.b64encode(bytes(80)).decode()}, "another number of neurons"),
        ({"state": base64.b64encode(np.full(604, np.nan).tobytes()).decode()}, "finite"),
        ({"system": "lorenz"}, "lorenz"),
    ],
)
def test_what_is_out_of_bounds_is_refused_in_a_sentence(call_endpoint, arguments, part):
    with pytest.raises(EngramError) as refused:
        call_endpoint("population.run", **arguments)
    assert part in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"ensemble": {"neurons": 501}}, "neurons"),
        ({"ensemble": {"dimensions": 2}}, "dimensions"),
        ({"ensemble": {"max_rates": [300.0, 200.0]}}, "max_rates"),
        ({"noise": -0.1}, "noise"),
        ({"window_ms": 10**6}, "window_ms"),
    ],
)
def test_populations_have_bounds(call_endpoint, arguments, part):
    with pytest.raises(EngramError) as refused:
        call_endpoint("population", **arguments)
    assert part in str(refused.value)


def test_an_oscillator_s_state_is_no_integrator_s(call_endpoint):
    _, end = call_endpoint("population.run", system="oscillator", model=SMALL, input=[0.0, 0.0])
    with pytest.raises(EngramError, match="another system"):
        call_endpoint("population.run", system="integrator", model=SMALL, state=end["state"])


def test_rate_neurons_run_too(call_endpoint):
    parts, _ = call_endpoint(
        "population.run", model={**SMALL, "spiking": False}, system="oscillator", input=[10.0, 0.0] * 100
    )
    ideal = Oscillator(Oscillator.Config(neurons=60)).target_output(torch.tensor([[10.0, 0.0]]).expand(100, 2))
    assert not any(part["spike_ms"] for part in parts)
    assert np.linalg.norm(output(parts)[-1]) == pytest.approx(ideal[-1].norm().item(), rel=0.25)
