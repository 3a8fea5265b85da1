import pytest
import torch

from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.data.dataset import Split
from engram.data.loaders import BatchLoader


def batches(size=10, batch=3, noise=False):
    def transform(columns, random):
        return {**columns, "noise": torch.rand(2, generator=random)} if noise else columns

    split = Split({"x": torch.arange(size), "word": [f"w{i}" for i in range(size)]})
    return BatchLoader(split, batch, generator(0), transform)


def test_every_item_once_per_epoch_in_a_new_order():
    source = batches(size=9)
    epochs = [torch.cat([next(source)["x"] for _ in range(3)]) for _ in range(4)]
    assert all(sorted(epoch.tolist()) == list(range(9)) for epoch in epochs)
    assert len({tuple(epoch.tolist()) for epoch in epochs}) == 4


def test_columns_stay_together():
    batch = next(batches())
    assert batch["word"] == [f"w{i}" for i in batch["x"].tolist()]


@pytest.mark.parametrize("stop", range(8))
def test_state_continues_exactly(stop):
    source = batches(noise=True)
    expected = [next(source) for _ in range(8)]
    begun = batches(noise=True)
    for _ in range(stop):
        next(begun)
    again = batches(noise=True)
    again.load_state_dict(begun.state_dict())
    for batch in expected[stop:]:
        found = next(again)
        assert torch.equal(found["x"], batch["x"])
        assert torch.equal(found["noise"], batch["noise"])


def test_a_split_smaller_than_a_batch_is_one_batch():
    assert len(next(batches(size=2, batch=5))["x"]) == 2


def test_no_items_are_refused():
    with pytest.raises(EngramError, match="no samples"):
        batches(size=0)
