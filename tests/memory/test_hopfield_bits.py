"""Hebb's network of bits against the one of numbers, and against sums written out."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.memory.hopfield.bits import BitHopfield, pack_bits
from engram.memory.hopfield.model import Hopfield, sign


def patterns(M, N, seed=0):
    return sign(torch.randn(M, N, generator=generator(seed)))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(M=st.integers(0, 40), N=st.integers(1, 100), seed=st.integers(0, 99), synchronous=st.booleans())
def test_every_state_goes_where_the_matrix_sends_it(M, N, seed, synchronous):
    """With an odd number of patterns and an even one of units no input is zero, so rounding decides nothing."""
    X = patterns(2 * M + 1, 2 * N, seed)
    begin = patterns(7, 2 * N, seed + 1)
    dense = Hopfield(Hopfield.Config(units=2 * N)).store(X).recall(begin, generator(2), synchronous=synchronous)
    bits = BitHopfield(X).recall(begin, generator(2), synchronous=synchronous)
    rest = dense.cycle == 1  # a state that goes to and fro is left at either end
    assert torch.equal(bits.x[rest], dense.x[rest])
    assert torch.equal(bits.cycle, dense.cycle)
    assert torch.equal(bits.sweeps, dense.sweeps)
    short = min(bits.energy.shape[1], dense.energy.shape[1])
    torch.testing.assert_close(bits.energy[rest, :short], dense.energy[rest, :short], rtol=1e-5, atol=1e-4)


def test_a_unit_that_hears_nothing_is_up():
    for pattern in (1.0, -1.0):
        found = BitHopfield(torch.tensor([[pattern]])).recall(torch.tensor([[-1.0]]))
        assert found.x.tolist() == [[1.0]]


def test_two_that_change_places_for_ever_are_a_cycle():
    X = torch.tensor([[1.0, 1, 1, 1, 1, 1], [1, 1, 1, 1, -1, -1]])
    begin = torch.tensor([[1.0, 1, 1, 1, -1, 1]])
    assert (begin @ (X.T @ X / 2 - torch.eye(6)))[0].tolist() == [3, 3, 3, 3, 1, -1]
    assert BitHopfield(X).recall(begin, synchronous=True).cycle.tolist() == [2]
    assert BitHopfield(X).recall(begin, generator(0)).cycle.tolist() == [1]


def test_the_matrix_is_never_there():
    """200 000 units: W would be 160 GB."""
    X = patterns(5, 200_000)
    cue = torch.where(torch.rand(X.shape, generator=generator(1)) < 0.3, -X, X)
    assert torch.equal(BitHopfield(X).recall(cue, synchronous=True).x, X)


def test_bits_are_packed_from_the_low_end():
    assert pack_bits(torch.tensor([[1.0, -1, 1], [-1, -1, 1]])).tolist() == [[5], [4]]


def test_what_does_not_fit_is_refused():
    with pytest.raises(EngramError, match="rows of 6 units"):
        BitHopfield(patterns(2, 6)).recall(patterns(2, 5))
    with pytest.raises(EngramError, match="rows of units"):
        BitHopfield(torch.ones(3))
