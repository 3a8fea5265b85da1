"""The laws of the sets that are generated."""

import re
from datetime import date, datetime

import numpy as np
import pytest
import torch

from engram import data
from engram.data import points, registry, sequences, shapes

GENERATED = sorted(name for name, entry in registry.ENTRIES.items() if entry.generate)
SEEDED = [name for name in GENERATED if "seed" in registry.get_entry(name).options()]


def same(one, other):
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else list(one) == list(other)


@pytest.mark.parametrize("name", GENERATED)
def test_is_what_the_catalog_promises(name):
    assert data.load(name).info == data.get_info(name)


@pytest.mark.parametrize("name", GENERATED)
def test_is_made_again_alike(name):
    one, other = data.load(name), data.load(name)
    for part, split in one.splits.items():
        for column in split:
            assert same(split[column], other[part][column])


@pytest.mark.parametrize("name", SEEDED)
def test_another_seed_makes_another_set(name):
    one, other = data.load(name, seed=1).train, data.load(name, seed=2).train
    assert not all(same(one[column], other[column]) for column in one)


@pytest.mark.parametrize("name", SEEDED)
def test_as_many_as_are_asked_for(name):
    assert len(data.load(name, count=30).train) == 30


@pytest.mark.parametrize("shape", points.SHAPES)
def test_points_lie_where_they_can_be_seen(shape):
    train = data.load("points", shape=shape).train
    assert train["point"].abs().max() < 2.5
    assert train["label"].unique().tolist() == list(range(points.SHAPES[shape][0]))


def test_moons_without_noise_are_half_circles():
    train = data.load("points", shape="moons", noise=0.0).train
    center = torch.tensor([[-0.5, -0.25], [0.5, 0.25]])[train["label"]]
    offset = train["point"] - center
    torch.testing.assert_close(offset.norm(dim=1), torch.ones(len(train)))
    assert (offset[:, 1] * (1 - 2 * train["label"]) >= -1e-6).all()


def test_rings_without_noise_are_circles():
    train = data.load("points", shape="rings", noise=0.0).train
    torch.testing.assert_close(train["point"].norm(dim=1), 0.6 * (train["label"] + 1.0))


def test_the_checkerboard_is_black_only():
    point = data.load("points", shape="checkerboard", noise=0.0).train["point"]
    assert (point.floor().sum(1) % 2 == 0).all()


def test_noise_has_the_given_spread():
    clean, noisy = (data.load("points", shape="rings", noise=noise, count=20_000).train for noise in (0.0, 0.1))
    radius = noisy["point"].norm(dim=1) - 0.6 * (noisy["label"] + 1)
    assert radius.std() == pytest.approx(0.1, abs=0.005)
    assert len(clean) == 20_000


@pytest.mark.parametrize(("name", "direction"), [("copy", 1), ("reverse", -1)])
def test_recall_asks_for_the_symbols_that_were_shown(name, direction):
    train = data.load(name, length=5, symbols=4).train
    shown = train["source"][:, :5]
    assert torch.equal(train["target"], shown if direction == 1 else shown.flip(1))
    assert (train["source"][:, -5:] == 5).all()
    assert shown.unique().tolist() == [1, 2, 3, 4]


def test_copy_waits_in_between():
    train = data.load("copy", length=5, wait=7, symbols=4).train
    assert (train["source"][:, 5:12] == 0).all()


def test_selective_copy_asks_for_what_is_not_blank_in_order():
    train = data.load("selective-copy", length=5, among=30, symbols=4).train
    before = train["source"][:, :30]
    assert torch.equal(before[before > 0].reshape(-1, 5), train["target"])


def test_adding_marks_one_number_in_each_half():
    train = data.load("adding", length=21).train
    number, mark = train["source"].unbind(-1)
    assert (mark[:, :10].sum(1) == 1).all()
    assert (mark[:, 10:].sum(1) == 1).all()
    torch.testing.assert_close((number * mark).sum(1), train["target"])


READ = (
    "%d %B %Y", "%B %d, %Y", "%d %b %Y", "%b %d %Y", "%A, %d %B %Y", "%A %B %d, %Y", "the %d of %B %Y", "%B %d, %Y",
    "%d %b %Y", "%d.%m.%Y", "%m/%d/%Y", "%Y, %B %d", "%d-%b-%Y", "%Y%m%d",
)  # fmt: skip


@pytest.mark.parametrize(("form", "pattern"), list(zip(sequences.FORMS, READ, strict=True)))
def test_every_written_form_of_a_date_means_that_date(form, pattern):
    for day in (date(1999, 1, 2), date(2024, 2, 29), date(2011, 11, 11), date(1950, 12, 31), date(2003, 3, 23)):
        plain = re.sub(r"(?<=\d)(st|nd|rd|th)\b", "", sequences.format_date(day, form))
        assert datetime.strptime(plain, pattern).date() == day


def test_no_day_of_the_test_was_learnt():
    dates = data.load("dates")
    assert not set(dates.train["target"]) & set(dates.test["target"])
    assert not set(dates.train["target"]) & set(dates.valid["target"])


def test_patterns_are_plus_and_minus_one_and_all_different():
    patterns = data.load("patterns")
    grids = patterns.train["pattern"]
    assert grids.unique().tolist() == [-1, 1]
    assert len({tuple(grid.flatten().tolist()) for grid in grids}) == len(patterns.classes) == 36


def test_held_out_combinations_are_never_learnt_but_their_parts_are():
    images = data.load("shapes", count=2000)
    for part in ("train", "valid", "test"):
        split = images[part]
        for end in ("", "2"):
            there = split[f"color{end}"] >= 0
            assert not shapes.held_out(split[f"color{end}"][there], split[f"shape{end}"][there]).any()
    unseen = images["unseen"]
    assert shapes.held_out(unseen["color"], unseen["shape"]).all()
    assert set(unseen["color"].tolist()) <= set(images.train["color"].tolist())
    assert set(unseen["shape"].tolist()) <= set(images.train["shape"].tolist())


def test_captions_say_what_the_columns_say():
    train = data.load("shapes", count=200).train
    colors, kinds, relations = list(shapes.COLORS), list(shapes.SHAPES), list(shapes.RELATIONS)
    for i, caption in enumerate(train["caption"]):
        assert caption.startswith(f"a {list(shapes.SIZES)[train['size'][i]]} {colors[train['color'][i]]} ")
        if train["relation"][i] == shapes.NONE:
            assert caption.endswith(f" {kinds[train['shape'][i]]}")
        else:
            assert f" {relations[train['relation'][i]]} a " in caption
            assert caption.endswith(f" {colors[train['color2'][i]]} {kinds[train['shape2'][i]]}")


def test_shapes_lie_as_their_caption_says():
    train = data.load("shapes", count=400).train
    image = train["image"].float()
    places = torch.arange(32) + 0.5
    for i in range(len(train)):
        name = train["relation"][i]
        if name == shapes.NONE or train["color"][i] == train["color2"][i]:
            continue
        first = closeness(image[i], list(shapes.COLORS.values())[train["color"][i]])
        second = closeness(image[i], list(shapes.COLORS.values())[train["color2"][i]])
        axis = 0 if list(shapes.RELATIONS)[name] in ("left of", "right of") else 1
        centers = [(mask.float().sum(axis) * places).sum() / mask.sum() for mask in (first, second)]
        before = list(shapes.RELATIONS)[name] in ("left of", "above")
        assert (centers[0] < centers[1]) == before


def closeness(image, color):
    return (image - torch.tensor(color)[:, None, None]).abs().amax(0) < 2


def test_a_circle_covers_the_area_of_a_circle():
    train = data.load("shapes", count=300, size=64, objects=1).train
    chosen = (train["shape"] == list(shapes.SHAPES).index("circle")) & (train["size"] == 1)
    ink = train["image"][chosen].float().amax(1) / train["image"][chosen].float().amax((1, 2, 3))[:, None, None]
    area = np.pi * (list(shapes.SIZES.values())[1] * 64) ** 2
    torch.testing.assert_close(ink.sum((1, 2)), torch.full((len(ink),), area), rtol=0.02, atol=0)


def test_shapes_come_in_any_size():
    assert data.load("shapes", count=10, size=20).train["image"].shape == (10, 3, 20, 20)
