"""Endpoints of diffusion sampling: trajectories are those of the library, from the same noise for the same seed."""

import base64
import io
import math

import numpy as np
import pytest
import torch
from PIL import Image

from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.hub.load import load
from engram.plots.images import grid
from tests.conftest import tiny


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder of runs: unconditional images, conditional images, points."""
    made = tmp_path_factory.mktemp("runs")
    tiny("diffusion", made / "plain")
    tiny("diffusion", made / "classes", conditional=True)
    tiny("diffusion", made / "points", data="points", hidden=8)
    return made


def pixels(address: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))))


def numbers(sent: dict) -> np.ndarray:
    return np.frombuffer(base64.b64decode(sent["f32"]), "<f4").reshape(sent["shape"])


def test_the_trajectory_is_that_of_the_library(call_endpoint, root):
    parts, _ = call_endpoint("diffusion", root, run="plain", seed=5, count=6, sampler="ddim", steps=4)
    model = load(root / "plain")
    with torch.no_grad():
        x_T = model.noise(6, generator(5, "noise"))
        steps = list(model.trajectory(x_T, generator(5, "way"), sampler="ddim", steps=4))
    assert [part["t"] for part in parts] == [step.t for step in steps]
    for part, step in zip(parts, steps, strict=True):
        for name, u in (("x", step.x), ("x_0", step.x_0)):
            expected = grid(model.config.denormalize(u), 4).numpy()
            assert np.abs(pixels(part[name]).astype(int) - expected).max() <= 1


def test_signal_and_noise_share_a_variance_of_one(call_endpoint, root):
    parts, _ = call_endpoint("diffusion", root, run="plain", steps=5)
    assert all(part["signal"] ** 2 + part["noise"] ** 2 == pytest.approx(1) for part in parts)
    assert parts[-1]["noise"] == 0


@pytest.mark.parametrize("sampler", ["ddpm", "ddim", "langevin"])
def test_every_sampler_begins_at_the_same_noise(call_endpoint, root, sampler):
    first, *_, last = call_endpoint("diffusion", root, run="points", count=20, sampler=sampler, steps=5)[0]
    again, *_, other = call_endpoint("diffusion", root, run="points", count=20, sampler="dpm-solver-2", steps=9)[0]
    assert first["x"] == again["x"]
    assert last["x"] != other["x"]


def test_a_seed_brings_everything_back(call_endpoint, root):
    how = {"run": "classes", "sampler": "ddpm", "steps": 3, "condition": "each", "guidance": 2.0}
    assert call_endpoint("diffusion", root, seed=3, **how) == call_endpoint("diffusion", root, seed=3, **how)
    assert call_endpoint("diffusion", root, seed=4, **how) != call_endpoint("diffusion", root, seed=3, **how)


def test_guidance_changes_the_end_and_not_the_noise(call_endpoint, root):
    ways = [
        call_endpoint("diffusion", root, run="classes", steps=3, condition="one", label=7, guidance=w)[0]
        for w in (0.0, 4.0)
    ]
    assert ways[0][0]["x"] == ways[1][0]["x"]
    assert ways[0][-1]["x"] != ways[1][-1]["x"]


def test_arrows_point_along_the_score(call_endpoint, root):
    *_, part, _ = call_endpoint("diffusion", root, run="points", count=5, steps=4)[0]
    found = numbers(part["score"])
    low, high = call_endpoint("diffusion.about", root, run="points")[1]["range"]
    side = math.isqrt(len(found))
    line = torch.linspace(low, high, side)
    corner = torch.tensor([[line[0], line[0]], [line[1], line[0]], [line[0], line[1]]])  # row by row from below
    with torch.no_grad():
        score = load(root / "points").score(corner, part["t"])
    size = score.norm(dim=1, keepdim=True)
    assert np.allclose(found[[0, 1, side]] / np.linalg.norm(found[0]), score / (size * size[0]).sqrt(), atol=1e-4)


def test_what_the_page_is_told_of_a_model(call_endpoint, root):
    _, plain = call_endpoint("diffusion.about", root, run="plain")
    _, taught = call_endpoint("diffusion.about", root, run="classes")
    _, points = call_endpoint("diffusion.about", root, run="points")
    assert (plain["classes"], len(taught["classes"])) == ([], 10)
    assert plain["is_image"]
    assert not points["is_image"]
    assert points["real"]["shape"][1] == 2


@pytest.mark.parametrize(
    ("wish", "part"),
    [
        ({"steps": 0}, "steps"), ({"steps": 101}, "steps"), ({"count": 5000}, "count"), ({"count": 17}, "count"),
        ({"guidance": math.nan}, "guidance"), ({"guidance": -1.0}, "guidance"), ({"seed": -1}, "seed"),
        ({"sampler": "magic"}, "sampler"), ({"condition": "one"}, "classes"), ({"condition": "each"}, "classes"),
        ({"label": -1}, "label"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_a_sentence(call_endpoint, root, wish, part):
    with pytest.raises(EngramError, match=part):
        call_endpoint("diffusion", root, **{"run": "plain", **wish})


def test_a_class_that_there_is_not_is_refused(call_endpoint, root):
    with pytest.raises(EngramError, match="0 to 9"):
        call_endpoint("diffusion", root, run="classes", condition="one", label=10)


def test_a_run_of_another_kind_is_refused(call_endpoint, finished):
    path = finished("vae")
    with pytest.raises(EngramError, match="VAE"):
        call_endpoint("diffusion", path.parent, run=path.name)
