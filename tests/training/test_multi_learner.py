"""Who else is there makes no difference to a learner."""

import torch
from torch import nn

from engram.training.learner import GradientLearner
from engram.training.multi_learner import MultiLearner
from engram.training.optimizer import OptimizerConfig

PLAIN = OptimizerConfig(optimizer="sgd", lr=0.1, schedule="constant", warmup=0.0)


def learner(dropout):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(dropout), nn.Linear(8, 1))
    return GradientLearner(net, lambda net, batch: (net(batch["x"]).square().mean(), {}), PLAIN, 10)


def batches():
    return [{"x": torch.randn(6, 4, generator=torch.Generator().manual_seed(i))} for i in range(6)]


def run(learners, given):
    torch.manual_seed(5)
    both = MultiLearner(learners)
    for batch in given:
        metrics = both.step(batch)
    return both, metrics


def test_each_learns_as_if_it_were_alone():
    both, metrics = run({"a": learner(0.5), "b": learner(0.3)}, batches())
    alone, _ = run({"b": learner(0.3)}, batches())
    for one, other in zip(both.model["b"].parameters(), alone.model["b"].parameters(), strict=True):
        assert torch.equal(one, other)
    assert set(metrics) == {"a_loss", "b_loss"}


def test_a_batch_may_hold_something_for_one_alone():
    given = [{"x": torch.ones(2, 4), "b.x": torch.zeros(2, 4)}]
    _, metrics = run({"a": learner(0.0), "b": learner(0.0)}, given)
    assert metrics["a_loss"] != metrics["b_loss"]


def test_goes_on_exactly():
    straight, _ = run({"a": learner(0.5), "b": learner(0.3)}, batches())
    first, _ = run({"a": learner(0.5), "b": learner(0.3)}, batches()[:3])
    second = MultiLearner({"a": learner(0.5), "b": learner(0.3)})
    second.model.load_state_dict(first.model.state_dict())
    second.load_state_dict(first.state_dict())
    for batch in batches()[3:]:
        second.step(batch)
    for one, other in zip(straight.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(one, other)
