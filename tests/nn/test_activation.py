import pytest
import torch

from engram.nn.activation import ACTIVATIONS, argmax, softmax


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_derivative_equals_autograd(name):
    z = torch.tensor([-40.0, -3.0, -0.5, 0.3, 2.0, 40.0], dtype=torch.float64, requires_grad=True)
    activation = ACTIVATIONS[name]
    y = activation.f(z)
    if name != "threshold":  # autograd has no derivative of a step, and ours is 0
        y.sum().backward()
        torch.testing.assert_close(activation.derivative(z.detach()), z.grad, rtol=1e-12, atol=1e-16)
    else:
        assert not activation.derivative(z.detach()).any()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_stable_far_out(name):
    z = torch.tensor([-1e4, 1e4])
    assert ACTIVATIONS[name].f(z).isfinite().all()
    assert ACTIVATIONS[name].derivative(z).isfinite().all()


def test_values():
    z = torch.tensor([-1.0, 0.0, 2.0])
    f = {name: activation.f(z).tolist() for name, activation in ACTIVATIONS.items()}
    assert f["threshold"] == [0, 1, 1]
    assert f["relu"] == [0, 0, 2]
    assert f["softplus"] == pytest.approx([0.313262, 0.693147, 2.126928], rel=1e-5)
    assert softmax(torch.tensor([[1e4, 1e4]])).tolist() == [[0.5, 0.5]]
    assert argmax(torch.tensor([[1.0, -3.0, 2.0], [-2.0, -1.0, -5.0]])).tolist() == [[0, 0, 2], [0, -1, 0]]
