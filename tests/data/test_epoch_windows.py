"""Epochs: every window once, shard by shard, from a position that is one number."""

import pytest
import torch

from engram.core.errors import EngramError
from engram.data.epoch_windows import EpochWindows
from engram.data.tokens import Tokens


def source(length=1000, batch=3, context=7, seed=0, shard=70):
    return EpochWindows(
        Tokens(torch.arange(length, dtype=torch.int32), torch.tensor([length])), batch, context, seed, shard
    )


def firsts(windows, batches):
    return [first for _ in range(batches) for first in next(windows)["x"][:, 0].tolist()]


def test_an_epoch_has_every_window_once_and_the_next_has_other_places():
    windows = source(batch=1)
    offset, count = windows.order(0).offset, windows.order(0).ends[-1]
    assert sorted(firsts(windows, count)) == [offset + 7 * k for k in range(count)]
    assert count == (1000 - 1 - offset) // 7
    second = firsts(windows, windows.order(1).ends[-1])
    assert sorted(second) == [windows.order(1).offset + 7 * k for k in range(windows.order(1).ends[-1])]
    assert second != sorted(second)


def test_what_follows_each_token_is_the_next():
    batch = next(source())
    assert torch.equal(batch["y"], batch["x"] + 1)
    assert batch["x"].shape == (3, 7)


def test_windows_of_a_shard_come_together():
    """Ten windows from one shard, then ten from another: 70 tokens apart at most."""
    windows = source(batch=10)
    shards = [{(first - windows.order(0).offset) // 70 for first in firsts(windows, 1)} for _ in range(5)]
    assert sum(len(seen) for seen in shards) <= 5 + 1  # a shorter last shard shifts what follows it
    assert len(set.union(*shards)) >= 5


@pytest.mark.parametrize("after", [0, 1, 46, 47, 48, 200])
def test_it_goes_on_exactly_from_its_position(after):
    one, other = source(), source()
    for _ in range(after):
        next(one)
    other.load_state_dict(one.state_dict())
    assert all(torch.equal(next(one)["x"], next(other)["x"]) for _ in range(60))


def test_another_seed_is_another_order():
    assert firsts(source(seed=1), 20) != firsts(source(seed=2), 20)


def test_a_text_that_is_too_short_is_refused():
    with pytest.raises(EngramError, match="lower --context"):
        source(length=13)


def test_a_place_that_no_epoch_has_is_refused():
    windows = source()
    last = windows.order(0).ends[-1]
    windows.load_state_dict({"epoch": 0, "position": last})
    with pytest.raises(ValueError, match="has no position"):
        windows.load_state_dict({"epoch": 0, "position": last + 1})
