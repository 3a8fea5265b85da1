import pytest
import torch

from engram.core.seeding import generator
from engram.nn.bernoulli import SMALL, sample_bernoulli

COUNT = 200_000


@pytest.mark.parametrize("size", [SMALL - 1, SMALL, SMALL + 1, COUNT])
def test_draws_zeros_and_ones_of_the_same_shape(size):
    x = sample_bernoulli(torch.rand(size, generator=generator(9)), generator(0))
    assert x.shape == (size,)
    assert set(x.unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("p", [0.0, 1e-3, 0.25, 0.5, 0.9, 1.0])
def test_as_often_as_probable(p):
    x = sample_bernoulli(torch.full((COUNT,), p), generator(1)).double()
    assert abs(x.mean() - p) <= 5 * (p * (1 - p) / COUNT) ** 0.5


def test_neighbors_and_calls_are_independent():
    random = generator(2)
    first, second = (sample_bernoulli(torch.full((COUNT,), 0.5), random).double() - 0.5 for _ in range(2))
    bound = 5 * 0.25 / COUNT**0.5
    assert abs((first * second).mean()) < bound
    for lag in (1, 2, 3, 100, 784):
        assert abs((first[lag:] * first[:-lag]).mean()) < bound


def test_same_generator_same_draw():
    p = torch.rand(100, 200, generator=generator(9))
    assert torch.equal(sample_bernoulli(p, generator(3)), sample_bernoulli(p, generator(3)))
    assert not torch.equal(sample_bernoulli(p, generator(3)), sample_bernoulli(p, generator(4)))


def test_takes_what_is_not_contiguous_and_other_types():
    p = torch.tensor([[0.0, 1.0]]).expand(5000, 2).T
    assert torch.equal(sample_bernoulli(p, generator(0)), p)
    assert sample_bernoulli(torch.full((COUNT,), 0.5, dtype=torch.float64), generator(0)).dtype == torch.float64
