"""The population of the lab: what the library decodes, and systems that run the same however their time is cut."""

import base64

import numpy as np
import pytest
import torch

from engram.core.errors import EngramError
from engram.figures.population import decoding_errors
from engram.neurons.population import Population
from engram.neurons.systems import Held, Integrator, Oscillator

SMALL = {"neurons": 60, "draw": 3}


def unpacked(given):
    return np.frombuffer(base64.b64decode(given["f32"]), "<f4").reshape(given["shape"])


def seen(parts):
    return np.concatenate([unpacked(part["seen"]) for part in parts])


def test_tuning_and_decoding_are_the_library_s(asked):
    parts, _ = asked("population", population={"neurons": 30, "seed": 5}, noise=0.0)
    model = Population(Population.Config(neurons=30, seed=5))
    x = torch.linspace(-1, 1, 201, dtype=torch.float64)[:, None]
    assert np.allclose(unpacked(parts[0]["tuning"]), model.rates(x).T, rtol=1e-5)
    expected = model.rates(x) @ model.decoders(noise=1e-4)
    assert np.allclose(parts[1]["rates"]["decoded"], expected[:, 0])
    assert parts[1]["rates"]["rmse"] == pytest.approx((expected - x).square().mean().sqrt().item())


def test_spikes_say_the_value_better_when_they_are_counted_for_longer(asked):
    short, long = (asked("population", window_ms=window)[0][-1]["spikes"]["rmse"] for window in (5, 100))
    assert long < short / 3
    assert long < 0.05


def test_noise_makes_it_worse_and_is_that_of_the_seed(asked):
    quiet, loud, again = (asked("population", noise=noise)[0][1]["rates"] for noise in (0.0, 0.3, 0.3))
    assert quiet["rmse"] < loud["rmse"]
    assert loud == again


def test_errors_fall_with_the_number_of_neurons(asked):
    parts, powers = asked("population.errors", population={"seed": 2})
    assert [part["neurons"] for part in parts] == [10, 20, 50, 100, 200, 500]
    assert (parts[2]["clean"], parts[2]["noisy"]) == decoding_errors(Population.Config(neurons=50, seed=2))
    assert parts[-1]["noisy"] < parts[0]["noisy"] / 3
    assert -0.7 < powers["noisy_power"] < -0.3


@pytest.mark.parametrize("system", ["integrator", "oscillator"])
def test_time_may_be_cut_anywhere(asked, system):
    width = {"integrator": 1, "oscillator": 2}[system]
    pushed = [1.5] * 120 * width + [0.0] * 180 * width
    whole, end = asked("population.run", system=system, model=SMALL, input=pushed)
    first, middle = asked("population.run", system=system, model=SMALL, input=pushed[: 70 * width])
    rest, last = asked("population.run", system=system, model=SMALL, state=middle["state"], input=pushed[70 * width :])
    assert (seen(whole) == np.concatenate([seen(first), seen(rest)])).all()
    assert end["state"] == last["state"]
    assert first[-1]["t"][-1] + 1 == rest[0]["t"][0]


def test_it_is_the_library_s_integrator(asked):
    parts, _ = asked("population.run", model=SMALL, input=[1.0] * 200)
    model = Integrator(Held(neurons=60, draw=3))
    assert np.allclose(seen(parts), model(torch.ones(200, 1)), atol=1e-6)


def test_a_pushed_integrator_holds(asked):
    parts, _ = asked("population.run", model={"neurons": 300}, input=[1.0] * 500 + [0.0] * 1000)
    assert sum(part["added"][0] for part in parts) == pytest.approx(0.5)
    assert seen(parts)[600:700].mean() == pytest.approx(0.5, abs=0.05)
    assert seen(parts)[-100:].mean() == pytest.approx(0.5, abs=0.1)


def test_an_oscillator_turns_as_fast_as_asked_and_may_be_turned_faster_while_it_runs(asked):
    kicked = [10.0, 0.0] * 100 + [0.0, 0.0] * 400
    _, end = asked("population.run", system="oscillator", model={"neurons": 300, "frequency_hz": 1.0}, input=kicked)
    for hz in (1.0, 2.0):
        parts, _ = asked(
            "population.run", system="oscillator", model={"neurons": 300, "frequency_hz": hz}, state=end["state"],
            input=[0.0] * 2000,
        )  # fmt: skip
        turned = np.unwrap(np.angle(seen(parts)[200:] @ [1, 1j]))
        assert (turned[-1] - turned[0]) / (2 * np.pi) / 0.8 == pytest.approx(hz, rel=0.15)


def test_spikes_are_those_of_the_first_neurons_in_the_time_of_their_part(asked):
    parts, _ = asked("population.run", model=SMALL, input=[0.0] * 100)
    model = Integrator(Held(neurons=60, draw=3))
    _, recording = model.step(model.rest(model.chance()), {model.u: torch.zeros(100, 1)})
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
def test_what_is_out_of_bounds_is_refused_in_a_sentence(asked, arguments, part):
    with pytest.raises(EngramError) as refused:
        asked("population.run", **arguments)
    assert part in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"population": {"neurons": 501}}, "neurons"),
        ({"population": {"dimensions": 2}}, "dimensions"),
        ({"population": {"slowest_hz": 300.0, "fastest_hz": 200.0}}, "fastest_hz"),
        ({"noise": -0.1}, "noise"),
        ({"window_ms": 10**6}, "window_ms"),
    ],
)
def test_populations_have_bounds(asked, arguments, part):
    with pytest.raises(EngramError) as refused:
        asked("population", **arguments)
    assert part in str(refused.value)


def test_an_oscillator_s_state_is_no_integrator_s(asked):
    _, end = asked("population.run", system="oscillator", model=SMALL, input=[0.0, 0.0])
    with pytest.raises(EngramError, match="another system"):
        asked("population.run", system="integrator", model=SMALL, state=end["state"])


def test_rate_neurons_run_too(asked):
    parts, _ = asked("population.run", model={**SMALL, "spiking": False}, system="oscillator", input=[10.0, 0.0] * 100)
    ideal = Oscillator(Oscillator.Config(neurons=60)).ideal(torch.tensor([[10.0, 0.0]]).expand(100, 2))
    assert not any(part["spike_ms"] for part in parts)
    assert np.linalg.norm(seen(parts)[-1]) == pytest.approx(ideal[-1].norm().item(), rel=0.25)
