"""Synapses: the state beside the convolution, scipy's quadrature and its solver."""

import numpy as np
import pytest
import torch
from scipy.integrate import quad, solve_ivp

from engram.core.errors import EngramError
from engram.neurons.spikes import Spikes
from engram.neurons.synapse.model import Synapse, convolve, impulse_response

ORDERS = [0, 1, 2, 5]


def synapse(**changes) -> Synapse:
    return Synapse(Synapse.Config(**changes))


def trains(count: int, duration_ms: float, rate_khz: float = 0.1) -> Spikes:
    draw = np.random.default_rng(3)
    neuron = np.sort(draw.integers(0, count, int(rate_khz * duration_ms * count)))
    time_ms = draw.uniform(0, duration_ms, len(neuron))
    order = np.lexsort([time_ms, neuron])
    return Spikes(time_ms[order], neuron[order])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("tau_ms", [0.5, 5.0, 100.0])
def test_the_response_integrates_to_one(order, tau_ms):
    area = quad(lambda t: impulse_response(torch.tensor(t, dtype=torch.float64), tau_ms, order).item(), 0, 60 * tau_ms,
                points=[(order + 1) * tau_ms], epsabs=1e-10)[0]  # fmt: skip
    assert area == pytest.approx(1, abs=1e-8)
    assert impulse_response(torch.tensor([-1.0, -1e-9], dtype=torch.float64), tau_ms, order).tolist() == [0, 0]


@pytest.mark.download
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("step_ms", [0.1, 1.7])
def test_the_state_equals_the_convolution(order, step_ms):
    steps = round(200 / step_ms)
    spikes = trains(4, steps * step_ms)
    filtered = synapse(synapses=4, order=order, step_ms=step_ms)(spikes, steps)
    t_ms = np.arange(1, steps + 1) * step_ms
    np.testing.assert_allclose(filtered.numpy(), convolve(spikes, t_ms, 4, 5.0, order), atol=1e-12)


@pytest.mark.parametrize("order", ORDERS)
def test_every_stage_follows_the_one_before(order):
    model = synapse(order=order, step_ms=0.25)
    start = torch.rand(order + 1, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def slope(t, x):
        return (np.concatenate([[0.7], x[:-1]]) - x) / 5.0

    solved = solve_ivp(slope, (0, 10), start[:, 0].numpy(), rtol=1e-11, atol=1e-12).y[:, -1]
    state, s_TN = model.filter_input(start, torch.full((40, 1), 0.7))
    np.testing.assert_allclose(state[:, 0].numpy(), solved, atol=1e-8)
    assert s_TN[-1, 0] == state[-1, 0]


def test_time_may_be_cut_anywhere():
    model, spikes = synapse(synapses=3, order=2), trains(3, 60.0)
    whole, s_TN = model.step(model.state, spikes, 600)
    state, parts = model.state, []
    for begin, end in ((0, 1), (1, 250), (250, 600)):
        now = (spikes.time_ms > begin * 0.1) & (spikes.time_ms <= end * 0.1)
        part = Spikes(spikes.time_ms[now] - begin * 0.1, spikes.neuron[now])
        state, s = model.step(state, part, end - begin)
        parts.append(s)
    torch.testing.assert_close(torch.cat(parts), s_TN, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(state, whole, atol=1e-12, rtol=1e-12)


def test_a_steady_train_settles_at_its_rate():
    spikes = Spikes(np.arange(1, 2001) * 1.0, np.zeros(2000, np.int64))
    s_TN = synapse(order=1, tau_ms=20.0)(spikes, 20_000)
    assert s_TN[-5000:].mean().item() == pytest.approx(1.0, rel=1e-3)  # one spike in a ms


def test_what_cannot_be_is_refused():
    for changes, field in (({"tau_ms": 0.0}, "tau_ms"), ({"order": -1}, "order"), ({"order": 99}, "order")):
        with pytest.raises(EngramError, match=field):
            synapse(**changes)
    model = synapse()
    with pytest.raises(EngramError, match="within"):
        model(Spikes(np.array([5.0]), np.array([0])), 10)
    with pytest.raises(EngramError, match="synapses"):
        model(Spikes(np.array([0.5]), np.array([1])), 10)
