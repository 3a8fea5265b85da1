"""The check finds what is wrong, and nothing where all is right."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.training.gradient_check import gradient_check


class Wrong(torch.autograd.Function):
    """A square whose derivative is off by a tenth."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, s):
        (x,) = ctx.saved_tensors
        return s * 2.2 * x


class Net(nn.Module):
    def __init__(self, square):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(5, 4), nn.Linear(4, 1)
        self.square = square

    def forward(self, x):
        return self.second(F.dropout(self.square(self.first(x)), 0.3, self.training))


def loss(net, batch):
    return net(batch["x"]).square().mean(), {}


def batch():
    return {"x": torch.randn(7, 5)}


def test_right_gradients_pass_also_with_dropout():
    found = gradient_check(Net(torch.square).train(), loss, batch())
    assert {one.name for one in found} == {"first.weight", "first.bias", "second.weight", "second.bias"}
    assert all(one.right for one in found)
    assert max(one.wrong for one in found) < 1e-5


def test_the_worst_offender_comes_first_and_is_named():
    found = gradient_check(Net(Wrong.apply), loss, batch())
    assert not found[0].right
    assert found[0].name.startswith("first")
    assert found[0].wrong == pytest.approx(0.2 / 2.2, rel=0.01)
    assert {one.name: one.right for one in found}["second.weight"]


def test_the_model_itself_is_left_alone():
    net = Net(torch.square)
    before = [weight.clone() for weight in net.parameters()]
    gradient_check(net, loss, batch())
    for a, b in zip(before, net.parameters(), strict=True):
        assert torch.equal(a, b)
        assert b.dtype == torch.float32


def test_kernels_that_lie_otherwise_in_memory_are_checked_too():
    net = nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)
    found = gradient_check(
        net, lambda net, batch: (net(batch["x"]).square().mean(), {}), {"x": torch.randn(2, 2, 5, 5)}
    )
    assert all(one.right for one in found)


def test_nothing_to_check_is_said():
    with pytest.raises(EngramError, match="no weights that learn"):
        gradient_check(nn.Identity(), loss, batch())


@pytest.mark.download
@pytest.mark.parametrize("name", ["mlp", "cnn", "resnet", "gpt", "bert", "vit", "lstm", "mingru", "vae", "diffusion"])
def test_every_kind_of_recipe_passes_from_the_command_line(name, engram):
    answer = engram("check", name, "--preset", "tiny")
    assert answer.code == 0, answer.err + answer.out
    assert "right" in answer.out


@pytest.mark.download
def test_what_learns_otherwise_is_told(engram):
    for name in ("rbm", "trades"):
        answer = engram("check", name, "--preset", "tiny")
        assert answer.code == 2
        assert "does not learn by the gradient" in answer.err
