"""The stimuli: their course in time, the statistics of their noise, and reproducibility."""

import math

import pytest
import torch

from engram.core.errors import EngramError
from engram.neurons.stimulus import Stimulus, sample_function

COURSES = {
    "constant": [2.0, 2.0, 2.0, 2.0, 2.0, 2.0],
    "step": [0.0, 2.0, 2.0, 2.0, 0.0, 0.0],
    "ramp": [0.0, 0.0, 0.5, 1.5, 2.0, 2.0],
    "pulses": [0.0, 2.0, 0.0, 2.0, 0.0, 0.0],
    "noise": [0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
}


@pytest.mark.parametrize("kind", COURSES)
def test_course_in_time(kind):
    stimulus = Stimulus(stimulus=kind, amplitude=2.0, onset_ms=10, offset_ms=30, period_ms=14, width_ms=4)
    assert stimulus.current([9.9, 10.0, 15.0, 25.0, 30.0, 100.0]).tolist() == COURSES[kind]


@pytest.mark.parametrize("kind", ["constant", "step", "ramp", "pulses"])
def test_samples_without_noise_are_the_course_at_the_middle_of_each_step(kind):
    stimulus = Stimulus(stimulus=kind, onset_ms=1, offset_ms=8, period_ms=3)
    current_TN = stimulus.sample(100, 0.1, 3, torch.Generator())
    middle_ms = (torch.arange(100, dtype=torch.float64) + 0.5) * 0.1
    assert current_TN.dtype == torch.float64
    assert torch.equal(current_TN, stimulus.current(middle_ms)[:, None].expand(100, 3))


def test_pulses_deliver_their_charge_for_any_step():
    stimulus = Stimulus(stimulus="pulses", amplitude=5.0, onset_ms=0, offset_ms=100, period_ms=20, width_ms=1)
    for step_ms in (0.01, 0.025, 0.1):
        charge = stimulus.sample(round(100 / step_ms), step_ms, 1, torch.Generator()).sum() * step_ms
        assert charge.item() == pytest.approx(25)


@pytest.mark.parametrize("step_ms", [0.01, 1.0, 20.0])
def test_noise_has_its_variance_and_correlation_at_any_step(step_ms):
    stimulus = Stimulus(stimulus="constant", amplitude=10.0, noise=3.0, tau_ms=4.0)
    lag = max(1, round(4.0 / step_ms))
    x_TN = stimulus.sample(lag + 1, step_ms, 20_000, torch.Generator().manual_seed(0)) - 10.0
    correlation = (x_TN[0] * x_TN[-1]).mean() / 9
    assert x_TN.mean(1).abs().max() < 0.1
    assert x_TN.std(1).numpy() == pytest.approx(3.0, abs=0.1)
    assert correlation.item() == pytest.approx(math.exp(-lag * step_ms / 4.0), abs=0.02)


def test_noise_alone_takes_the_amplitude_as_its_deviation():
    x_TN = Stimulus(stimulus="noise", amplitude=4.0, noise=3.0).sample(2, 0.01, 100_000, torch.Generator())
    assert x_TN.std(1).numpy() == pytest.approx(5.0, abs=0.05)


def test_neurons_get_independent_noise():
    x_TN = Stimulus(stimulus="noise", tau_ms=0.1).sample(100_000, 1.0, 2, torch.Generator().manual_seed(0))
    assert torch.corrcoef(x_TN.T)[0, 1].abs() < 0.02


def test_a_seed_reproduces_the_current():
    first, second = (Stimulus(noise=1.0).sample(500, 0.01, 4, torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("amplitude", math.inf),
        ("noise", -1.0),
        ("tau_ms", 0.0),
        ("period_ms", 0.0),
        ("width_ms", 30.0),
        ("offset_ms", 5.0),
    ],
)
def test_a_wrong_field_is_named(field, value):
    with pytest.raises(EngramError, match=f"^{field} "):
        Stimulus(**{field: value})


def test_an_unknown_stimulus_is_named_with_the_nearest_one():
    with pytest.raises(EngramError, match='Did you mean "ramp"'):
        Stimulus(stimulus="rampe")


@pytest.mark.parametrize("neurons", [1, 3])
def test_a_longer_sample_begins_like_a_shorter_one(neurons):
    stimulus = Stimulus(noise=1.0)
    short, long = (stimulus.sample(steps, 0.01, neurons, torch.Generator().manual_seed(1)) for steps in (41, 80))
    assert torch.equal(long[:41], short)


def test_any_function_of_time_is_a_current():
    current_TN = sample_function(lambda t_ms: torch.sin(t_ms), steps=4, step_ms=0.5, neurons=3)
    expected = [math.sin(t) for t in (0.25, 0.75, 1.25, 1.75)]
    assert current_TN.tolist() == [pytest.approx([value] * 3) for value in expected]
    apart_TN = sample_function(lambda t_ms: torch.stack([t_ms, -t_ms], 1), steps=2, step_ms=1.0, neurons=2)
    assert apart_TN.tolist() == [[0.5, -0.5], [1.5, -1.5]]


def test_a_function_of_the_wrong_shape_is_explained():
    with pytest.raises(EngramError, match=r"4 steps for 3 neurons is not of shape \(4, 2\)"):
        sample_function(lambda t_ms: torch.stack([t_ms, t_ms], 1), steps=4, step_ms=0.5, neurons=3)
