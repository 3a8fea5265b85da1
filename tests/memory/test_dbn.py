"""A deep belief network: machines that learn one after the other, and what goes up and down between them."""

import pytest
import torch

from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.memory.dbn.learner import GreedyLayerwise
from engram.memory.dbn.model import DBN
from engram.memory.rbm.learner import ContrastiveDivergenceConfig


def network(hidden=(6, 5, 4)):
    torch.manual_seed(0)
    return DBN(DBN.Config(visible=8, hidden=hidden))


def test_up_and_down_are_the_machines_own():
    model, v = network(), torch.rand(3, 8).round()
    first, second, third = model.layers
    torch.testing.assert_close(model.up(v, 2), second.prob_hidden(first.prob_hidden(v)))
    top = third.prob_hidden(second.prob_hidden(first.prob_hidden(v)))
    torch.testing.assert_close(model(v), first.prob_visible(second.prob_visible(third.prob_visible(top))))
    assert torch.equal(model.up(v, 0), v)


def test_machines_learn_one_after_the_other():
    model = network((6, 5))
    learner = GreedyLayerwise(model, ContrastiveDivergenceConfig(), 4, 6, generator(0))
    before = [machine.W.clone() for machine in model.layers]
    for _ in range(3):
        assert learner.step({"visible": torch.rand(4, 8).round()})["layer"] == 1
    assert not torch.equal(model.layers[0].W, before[0])
    assert torch.equal(model.layers[1].W, before[1])
    after = model.layers[0].W.clone()
    for _ in range(3):
        assert learner.step({"visible": torch.rand(4, 8).round()})["layer"] == 2
    assert torch.equal(model.layers[0].W, after)
    assert not torch.equal(model.layers[1].W, before[1])


def test_goes_on_exactly_where_it_stopped():
    torch.manual_seed(5)
    batches = [{"visible": torch.rand(4, 8).round()} for _ in range(8)]

    def learner():
        return GreedyLayerwise(network((6, 5)), ContrastiveDivergenceConfig(), 4, 8, generator(0))

    straight, first, second = learner(), learner(), learner()
    for batch in batches:
        straight.step(batch)
    for batch in batches[:5]:
        first.step(batch)
    second.model.load_state_dict(first.model.state_dict())
    second.load_state_dict(first.state_dict())
    for batch in batches[5:]:
        second.step(batch)
    for a, b in zip(straight.model.state_dict().values(), second.model.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_samples_are_probabilities_of_images():
    samples = network().sample(5, 20, generator(0))
    assert samples.shape == (5, 8)
    assert 0 <= samples.min() <= samples.max() <= 1


def test_machines_without_units_are_refused():
    with pytest.raises(EngramError, match="hidden"):
        DBN.Config(hidden=())
