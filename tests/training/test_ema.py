"""Averaged weights against the sum that they stand for."""

import torch
from torch import nn

from engram.training.ema import EMALearner
from engram.training.optimizer import OptimizerConfig


def learner(steps=20):
    torch.manual_seed(0)
    return EMALearner(
        nn.Linear(3, 2),
        lambda model, batch: (model(batch["x"]).square().mean(), {}),
        OptimizerConfig(optimizer="sgd", lr=0.1, weight_decay=0.0, schedule="constant", warmup=0.0),
        steps,
        0.95,
    )


def test_model_is_the_average_of_what_learns():
    averaged, expected = learner(), nn.Linear(3, 2)
    expected.load_state_dict(averaged.model.state_dict())
    weight = expected.weight.detach().clone()
    for t in range(1, 30):
        averaged.step({"x": torch.randn(8, 3)})
        m = min(0.95, (1 + t) / (10 + t))
        weight = m * weight + (1 - m) * averaged.gradient.model.weight.detach()
    torch.testing.assert_close(averaged.model.weight, weight)
    assert not torch.equal(averaged.model.weight, averaged.gradient.model.weight)


def test_goes_on_exactly_where_it_stopped():
    torch.manual_seed(1)
    batches = [{"x": torch.randn(8, 3)} for _ in range(10)]
    straight, first, second = learner(), learner(), learner()
    for batch in batches:
        straight.step(batch)
    for batch in batches[:4]:
        first.step(batch)
    second.model.load_state_dict(first.model.state_dict())
    second.load_state_dict(first.state_dict())
    for batch in batches[4:]:
        second.step(batch)
    assert torch.equal(straight.model.weight, second.model.weight)
    assert torch.equal(straight.gradient.model.weight, second.gradient.model.weight)


def test_buffers_are_those_of_the_one_that_learns():
    torch.manual_seed(0)
    averaged = EMALearner(
        nn.BatchNorm1d(3), lambda model, batch: (model(batch["x"]).square().mean(), {}), OptimizerConfig(), 10, 0.9
    )
    averaged.step({"x": torch.randn(8, 3) + 2})
    assert torch.equal(averaged.model.running_mean, averaged.gradient.model.running_mean)
    assert averaged.model.running_mean.abs().sum() > 0
