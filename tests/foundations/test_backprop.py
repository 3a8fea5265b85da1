"""Gradients by hand and by graph against torch, layer by layer, and a run that learns."""

import json

import pytest
import torch

from engram.core.seeding import generator
from engram.foundations.backprop.learner import METHODS, BackpropLearner
from engram.foundations.backprop.model import FUNCTIONS
from engram.foundations.mlp.model import MLP


def network(activation="tanh", hidden=(7, 5)):
    torch.manual_seed(0)
    return MLP(MLP.Config(shape=(1, 4, 4), classes=3, hidden=hidden, activation=activation)).double()


def batch(size=11):
    random = generator(1)
    image = torch.rand(size, 1, 4, 4, generator=random, dtype=torch.float64)
    return image, torch.randint(3, (size,), generator=random)


@pytest.mark.parametrize("activation", FUNCTIONS)
@pytest.mark.parametrize("hidden", [(), (7,), (7, 5, 6)])
@pytest.mark.parametrize("method", ["hand", "graph"])
def test_every_layers_gradient_is_torchs(activation, hidden, method):
    model, given = network(activation, hidden), batch()
    found, expected = METHODS[method](model, *given), METHODS["torch"](model, *given)
    torch.testing.assert_close(found.loss, expected.loss, rtol=1e-10, atol=0)
    torch.testing.assert_close(found.logits, expected.logits)
    for own, theirs in ((found.W, expected.W), (found.b, expected.b)):
        for a, b in zip(own, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_the_update_is_sgd_with_momentum():
    ours, theirs = network(), network()
    learner = BackpropLearner(ours, "hand", lr=0.1, momentum=0.9, steps=10**9)
    optimizer = torch.optim.SGD(theirs.parameters(), 0.1, momentum=0.9)
    image, label = batch()
    for _ in range(5):
        learner.step({"image": image, "label": label})
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(theirs(image), label).backward()
        optimizer.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-8)


def test_hand_and_graph_end_at_the_same_weights():
    image, label = batch()
    ends = []
    for method in ("hand", "graph"):
        model = network()
        learner = BackpropLearner(model, method, lr=0.5, momentum=0.5, steps=50)
        for _ in range(50):
            metrics = learner.step({"image": image, "label": label})
        assert metrics["loss"] < 0.3
        ends.append(model)
    for a, b in zip(ends[0].parameters(), ends[1].parameters(), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.slow
def test_the_perceptron_of_the_notes_learns_digits(engram, tmp_path):
    """784–128–10 in Vars reaches 97 % of MNIST's test digits."""
    answer = engram(
        "run", "autodiff", "--steps", "1200", "--eval-every", "1200", "--out", tmp_path / "run", "--quiet", "--json"
    )
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["test_accuracy"] >= 0.97
