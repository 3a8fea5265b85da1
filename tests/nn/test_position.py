"""Positions against their formulas, in Python's own floats."""

import math

import pytest
import torch

from engram.core.errors import EngramError
from engram.nn.position import RelativePosition, RelativePositionBias, RotaryEmbedding, sinusoidal

WIDTHS = [2, 6, 7, 1, 64]


def w(i, width):
    return 10_000.0 ** (-2 * i / width)


@pytest.mark.parametrize("width", WIDTHS)
def test_interleaved(width):
    expected = [
        [math.sin(p * w(j // 2, width)) if j % 2 == 0 else math.cos(p * w(j // 2, width)) for j in range(width)]
        for p in range(50)
    ]
    torch.testing.assert_close(sinusoidal(50, width, "interleaved"), torch.tensor(expected), atol=1e-6, rtol=0)


@pytest.mark.parametrize("width", WIDTHS)
def test_halves(width):
    sines = (width + 1) // 2
    expected = [
        [math.sin(p * w(j, width)) if j < sines else math.cos(p * w(j - sines, width)) for j in range(width)]
        for p in range(50)
    ]
    torch.testing.assert_close(sinusoidal(50, width, "halves"), torch.tensor(expected), atol=1e-6, rtol=0)


def test_far_places_are_as_exact_as_near_ones():
    place = 5000
    found = sinusoidal(place + 1, 8)[place]
    expected = [f(place * w(i, 8)) for i in range(4) for f in (math.sin, math.cos)]
    torch.testing.assert_close(found, torch.tensor(expected), atol=1e-6, rtol=0)


# ---------------------------------------------------------------------- rotary


def vectors(seed=0, shape=(1, 1, 3, 8)):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_rotary_turns_pairs_as_written():
    rotary, x, p = RotaryEmbedding(8, 40), vectors(), 17
    turned = rotary(x, start=p)
    for i in range(4):
        a, b, angle = x[..., 2 * i], x[..., 2 * i + 1], p * w(i, 8)
        first = a * math.cos(angle) - b * math.sin(angle)
        second = a * math.sin(angle) + b * math.cos(angle)
        expected = torch.stack([first, second], -1)
        torch.testing.assert_close(turned[..., 2 * i : 2 * i + 2], expected, atol=1e-6, rtol=0)


def test_rotary_products_depend_on_the_distance_alone():
    rotary, q, k = RotaryEmbedding(8, 60), vectors(1), vectors(2)
    products = [(rotary(q, start=p) * rotary(k, start=p - 5)).sum(-1) for p in (5, 6, 20, 59)]
    for product in products[1:]:
        torch.testing.assert_close(product, products[0], atol=1e-5, rtol=0)


def test_rotary_products_do_depend_on_the_distance():
    rotary, q, k = RotaryEmbedding(8, 60), vectors(1), vectors(2)
    near, far = ((rotary(q, start=20) * rotary(k, start=start)).sum(-1) for start in (19, 10))
    assert (near - far).abs().min() > 1e-2


def test_rotary_keeps_lengths():
    x = vectors(shape=(2, 30, 3, 8))
    torch.testing.assert_close(RotaryEmbedding(8, 30)(x).norm(dim=-1), x.norm(dim=-1))


def test_rotary_leaves_the_first_place_alone():
    x = vectors()
    assert torch.equal(RotaryEmbedding(8, 3)(x), x)


def test_rotary_places_equal_a_start():
    rotary, x = RotaryEmbedding(8, 30), vectors(shape=(2, 5, 3, 8))
    position_ids_BT = torch.arange(7, 12).expand(2, 5)
    assert torch.equal(rotary(x, position_ids_BT=position_ids_BT), rotary(x, start=7))


def test_rotary_places_may_differ_between_rows():
    rotary, x = RotaryEmbedding(8, 30), vectors(shape=(2, 4, 3, 8))
    position_ids_BT = torch.tensor([[0, 1, 2, 3], [9, 9, 4, 0]])
    found = rotary(x, position_ids_BT=position_ids_BT)
    for b in range(2):
        for t in range(4):
            one = rotary(x[b : b + 1, t : t + 1], start=int(position_ids_BT[b, t]))
            assert torch.equal(found[b : b + 1, t : t + 1], one)


# ---------------------------------------------------------------------- relative


def bucket(distance, buckets, max_distance):
    """Equations (11) and (12)."""
    exact = buckets // 2
    if distance < exact:
        return distance
    growth = math.log(distance / exact) / math.log(max_distance / exact)
    return min(exact + math.floor(growth * (buckets - exact)), buckets - 1)


@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 9), (13, 7), (4, 3), (5, 1000)])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_relative_position_bias_written_out(buckets, max_distance, bidirectional):
    relative = RelativePosition(num_buckets=buckets, max_distance=max_distance)
    module, S = RelativePositionBias(3, relative, bidirectional=bidirectional), 150
    W, half = module.embedding.weight.T, buckets // 2
    bias_HTS = module(S, S)
    for t in (0, 1, 77, S - 1):
        for s in range(S if bidirectional else t + 1):
            if bidirectional:
                b = bucket(abs(t - s), half, max_distance) + (half if s > t else 0)
            else:
                b = bucket(t - s, buckets, max_distance)
            assert torch.equal(bias_HTS[:, t, s], W[:, b])


def test_relative_position_bias_of_the_last_queries():
    module = RelativePositionBias(2, RelativePosition(), bidirectional=False)
    assert torch.equal(module(3, 40), module(40, 40)[:, -3:])


def test_relative_positions_without_buckets_of_growing_size_are_refused():
    with pytest.raises(EngramError, match="max_distance must be above half of num_buckets, 16, not 16"):
        RelativePosition(max_distance=16)
