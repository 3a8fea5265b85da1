"""Out of the noise: the lab walks the library's own way, from the same noise whatever else is chosen."""

import base64
import io
import math

import numpy as np
import pytest
import torch
from PIL import Image

from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.figures.pictures import grid
from engram.recipes import load
from tests.conftest import tiny


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder of runs: pictures without classes, pictures with classes, points."""
    made = tmp_path_factory.mktemp("runs")
    tiny("diffusion", made / "plain")
    tiny("diffusion", made / "classes", conditional=True)
    tiny("diffusion", made / "points", data="points", hidden=8)
    return made


def pixels(address: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))))


def numbers(sent: dict) -> np.ndarray:
    return np.frombuffer(base64.b64decode(sent["f32"]), "<f4").reshape(sent["shape"])


def test_the_way_is_that_of_the_library(asked, root):
    parts, _ = asked("diffusion", root, run="plain", seed=5, count=6, sampler="ddim", steps=4)
    model = load(root / "plain")
    with torch.no_grad():
        moments = list(model.way(model.noise(6, generator(5, "noise")), generator(5, "way"), sampler="ddim", steps=4))
    assert [part["t"] for part in parts] == [moment.t for moment in moments]
    for part, moment in zip(parts, moments, strict=True):
        for name, u in (("x", moment.x), ("x_0", moment.x_0)):
            expected = grid(model.config.outside(u), 4).numpy()
            assert np.abs(pixels(part[name]).astype(int) - expected).max() <= 1


def test_signal_and_noise_share_a_variance_of_one(asked, root):
    parts, _ = asked("diffusion", root, run="plain", steps=5)
    assert all(part["signal"] ** 2 + part["noise"] ** 2 == pytest.approx(1) for part in parts)
    assert parts[-1]["noise"] == 0


@pytest.mark.parametrize("sampler", ["ancestral", "ddim", "langevin"])
def test_every_sampler_begins_at_the_same_noise(asked, root, sampler):
    first, *_, last = asked("diffusion", root, run="points", count=20, sampler=sampler, steps=5)[0]
    again, *_, other = asked("diffusion", root, run="points", count=20, sampler="second-order", steps=9)[0]
    assert first["x"] == again["x"]
    assert last["x"] != other["x"]


def test_a_seed_brings_everything_back(asked, root):
    how = {"run": "classes", "sampler": "ancestral", "steps": 3, "asking": "each", "guidance": 2.0}
    assert asked("diffusion", root, seed=3, **how) == asked("diffusion", root, seed=3, **how)
    assert asked("diffusion", root, seed=4, **how) != asked("diffusion", root, seed=3, **how)


def test_guidance_changes_the_end_and_not_the_noise(asked, root):
    ways = [asked("diffusion", root, run="classes", steps=3, asking="one", label=7, guidance=w)[0] for w in (0.0, 4.0)]
    assert ways[0][0]["x"] == ways[1][0]["x"]
    assert ways[0][-1]["x"] != ways[1][-1]["x"]


def test_arrows_point_along_the_score(asked, root):
    *_, part, _ = asked("diffusion", root, run="points", count=5, steps=4)[0]
    found = numbers(part["score"])
    low, high = asked("diffusion.about", root, run="points")[1]["frame"]
    side = math.isqrt(len(found))
    line = torch.linspace(low, high, side)
    corner = torch.tensor([[line[0], line[0]], [line[1], line[0]], [line[0], line[1]]])  # row by row from below
    with torch.no_grad():
        score = load(root / "points").score(corner, part["t"])
    size = score.norm(dim=1, keepdim=True)
    assert np.allclose(found[[0, 1, side]] / np.linalg.norm(found[0]), score / (size * size[0]).sqrt(), atol=1e-4)


def test_what_the_page_is_told_of_a_model(asked, root):
    _, plain = asked("diffusion.about", root, run="plain")
    _, taught = asked("diffusion.about", root, run="classes")
    _, points = asked("diffusion.about", root, run="points")
    assert (plain["classes"], len(taught["classes"])) == ([], 10)
    assert plain["pictures"]
    assert not points["pictures"]
    assert points["real"]["shape"][1] == 2


@pytest.mark.parametrize(
    ("wish", "part"),
    [
        ({"steps": 0}, "steps"), ({"steps": 101}, "steps"), ({"count": 5000}, "count"), ({"count": 17}, "count"),
        ({"guidance": math.nan}, "guidance"), ({"guidance": -1.0}, "guidance"), ({"seed": -1}, "seed"),
        ({"sampler": "magic"}, "sampler"), ({"asking": "one"}, "classes"), ({"asking": "each"}, "classes"),
        ({"label": -1}, "label"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_a_sentence(asked, root, wish, part):
    with pytest.raises(EngramError, match=part):
        asked("diffusion", root, **{"run": "plain", **wish})


def test_a_class_that_there_is_not_is_refused(asked, root):
    with pytest.raises(EngramError, match="0 to 9"):
        asked("diffusion", root, run="classes", asking="one", label=10)


def test_a_run_of_another_kind_is_refused(asked, finished):
    path = finished("vae")
    with pytest.raises(EngramError, match="VAE"):
        asked("diffusion", path.parent, run=path.name)
