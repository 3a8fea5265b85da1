"""Networks of Vars learn: an MLP, a CNN, an RNN and a Transformer, by the loop of the notes."""

import numpy as np
import pytest
import torch

from engram.foundations.autodiff import Var, cross_entropy, squared_error
from engram.foundations.autodiff.nets import CNN, MLP, RNN, SGD, Adam, Transformer


def trained(net, update, loss, steps):
    first = None
    for _ in range(steps):
        E = loss()
        net.zero_grad()
        E.backward()
        update.step()
        first = E.val if first is None else first
    return first, loss().val


def test_mlp_learns_exclusive_or():
    net = MLP((2, 16, 2), np.random.default_rng(0))
    x, t = np.array([[0.0, 0], [0, 1], [1, 0], [1, 1]]), np.array([0, 1, 1, 0])
    _, last = trained(net, SGD(net.parameters(), 0.3, 0.9), lambda: cross_entropy(net(x), t), 200)
    assert last < 0.02


def test_cnn_learns_where_the_bar_is():
    random = np.random.default_rng(0)
    x, t = 0.1 * random.random((40, 1, 8, 8)), np.arange(40) % 2
    x[t == 0, :, 3] += 1
    x[t == 1, :, :, 3] += 1
    net = CNN((1, 8, 8), (4, 8), 2, random)
    _, last = trained(net, Adam(net.parameters(), 1e-2), lambda: cross_entropy(net(x), t), 40)
    assert last < 0.05


def test_rnn_remembers_the_first_input():
    random = np.random.default_rng(0)
    x = random.standard_normal((30, 6, 1))
    net = RNN(1, 16, 1, random)
    first, last = trained(net, Adam(net.parameters(), 1e-2), lambda: squared_error(net(x)[:, 5], x[:, 0]), 200)
    assert last < 0.1 * first


def test_transformer_learns_to_repeat():
    random = np.random.default_rng(0)
    half = random.integers(0, 5, (32, 4))
    token = np.concatenate([half, half], 1)
    net = Transformer(5, 8, 32, 4, random)

    def loss():
        logits = net(token[:, :-1])[:, 3:]
        return cross_entropy(logits.reshape(-1, 5), token[:, 4:].reshape(-1))

    first, last = trained(net, Adam(net.parameters(), 1e-2), loss, 120)
    assert last < 0.3 * first


def test_a_place_does_not_see_those_after_it():
    net = Transformer(5, 8, 16, 2, np.random.default_rng(0))
    token = np.random.default_rng(1).integers(0, 5, (2, 8))
    other = token.copy()
    other[:, 5:] = (other[:, 5:] + 1) % 5
    np.testing.assert_allclose(net(token).val[:, :5], net(other).val[:, :5])
    assert not np.allclose(net(token).val[:, 5:], net(other).val[:, 5:])


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_updates_are_torchs(name):
    start, target = np.array([1.0, -1.0, 1.5]), np.array([0.5, 0.5, 0.5])
    ours, theirs = Var(start.copy()), torch.tensor(start, requires_grad=True)
    if name == "sgd":
        update, optimizer = SGD(iter([ours]), 0.01, 0.9), torch.optim.SGD([theirs], 0.01, momentum=0.9)
    else:
        update, optimizer = Adam(iter([ours]), 0.1), torch.optim.Adam([theirs], 0.1)
    for _ in range(10):
        ours.grad = None
        (((ours - target) ** 4).sum()).backward()
        update.step()
        optimizer.zero_grad()
        ((theirs - torch.tensor(target)) ** 4).sum().backward()
        optimizer.step()
    np.testing.assert_allclose(ours.val, theirs.detach().numpy(), rtol=1e-9)
