"""Spiking layers, beside their clear form and beside snnTorch."""

from typing import get_args

import pytest
import snntorch
import torch
from snntorch import surrogate as theirs

from engram.core.errors import EngramError
from engram.nn.spiking import Leaky, Surrogate, leaky, reference_leaky


def current(*shape: int) -> torch.Tensor:
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(0)) * 0.6 + 0.3).requires_grad_()


def gradient(outputs, I):  # noqa: E741
    """Of some mixture of spikes and membranes."""
    spikes, membranes = outputs
    mix = torch.randn(spikes.shape, generator=torch.Generator().manual_seed(1))
    return torch.autograd.grad((spikes * mix).sum() + (membranes * mix.flip(0)).mean(), I)[0]


@pytest.mark.parametrize("truncate", [0, 4])
@pytest.mark.parametrize("name", get_args(Surrogate))
def test_the_kernel_computes_what_the_steps_compute(name, truncate):
    leak = Leaky(surrogate=name, surrogate_slope=3.0, truncate=truncate, beta=0.8, theta=0.7)
    I = current(17, 3, 900)  # noqa: E741
    fast, clear = leaky(I, leak), reference_leaky(I, leak)
    assert torch.equal(fast[0], clear[0])
    assert 0.1 < fast[0].mean() < 0.9
    torch.testing.assert_close(fast[1], clear[1])
    torch.testing.assert_close(gradient(fast, I), gradient(clear, I), atol=1e-5, rtol=1e-4)


def test_an_input_that_stays():
    leak, I = Leaky(), current(4, 700)  # noqa: E741
    held, repeated = leaky(I, leak, 12), leaky(I.expand(12, 4, 700), leak)
    assert torch.equal(held[0], repeated[0])
    torch.testing.assert_close(gradient(held, I), gradient(repeated, I), atol=1e-5, rtol=1e-4)


def test_one_step_of_an_input_that_stays():
    leak, I = Leaky(), current(2, 5)  # noqa: E741
    torch.testing.assert_close(gradient(leaky(I, leak, 1), I), gradient(reference_leaky(I[None], leak), I))


@pytest.mark.parametrize(
    ("name", "slope", "peer"),
    [
        ("arctan", 2.0, theirs.atan(alpha=2.0)),
        ("fast_sigmoid", 25.0, theirs.fast_sigmoid(slope=25)),
        ("sigmoid", 5.0, theirs.sigmoid(slope=5)),  # theirs overflows where it is steep
        ("straight", 1.0, theirs.straight_through_estimator()),
    ],
)
def test_spikes_and_gradients_are_those_of_snntorch(name, slope, peer):
    I = current(20, 3, 50)  # noqa: E741
    neuron = snntorch.Leaky(beta=0.9, spike_grad=peer)
    membrane, spikes, membranes = neuron.init_leaky(), [], []
    for I_BN in I:
        spike, membrane = neuron(I_BN, membrane)
        spikes.append(spike)
        membranes.append(membrane)
    other = torch.stack(spikes), torch.stack(membranes)
    mine = leaky(I, Leaky(beta=0.9, surrogate=name, surrogate_slope=slope))
    assert torch.equal(mine[0], other[0])
    torch.testing.assert_close(mine[1], other[1])
    torch.testing.assert_close(gradient(mine, I), gradient(other, I), atol=1e-5, rtol=1e-4)


def test_double_precision_goes_step_by_step():
    leak = Leaky(surrogate="triangle", surrogate_slope=0.2)
    I = current(6, 2, 3).detach().double().requires_grad_()  # noqa: E741
    assert leaky(I, leak)[1].dtype == torch.float64
    assert torch.autograd.gradcheck(lambda I: leaky(I, Leaky(theta=1e9, surrogate="straight"))[1], I)  # noqa: E741


@pytest.mark.parametrize(
    "changes", [{"beta": 1.5}, {"theta": 0.0}, {"surrogate_slope": -1.0}, {"truncate": -1}, {"surrogate": "arctan2"}]
)
def test_what_cannot_be_is_refused(changes):
    with pytest.raises(EngramError, match=next(iter(changes))):
        Leaky(**changes)
    with pytest.raises(EngramError, match="number of steps"):
        leaky(current(2, 3), Leaky())
