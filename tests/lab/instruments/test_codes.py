"""Latent plane: planes through codes, and what the library says their places stand for."""

import base64
import io
import math

import numpy as np
import pytest
import torch
from PIL import Image

from engram.core.errors import EngramError
from engram.core.seeding import aside, generator
from engram.figures.generation import walk
from engram.figures.pictures import grid
from engram.recipes.generative import between
from engram.training.run import Run
from tests.conftest import tiny


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder of runs: one of each kind of model, one whose codes are a plane, one of points on a line."""
    made = tmp_path_factory.mktemp("runs")
    for name in ("vae", "autoencoder", "gan"):
        tiny(name, made / name)
    tiny("vae", made / "plane", code=2)
    tiny("autoencoder", made / "line", data="points", code=1, hidden=(8,))
    return made


def pixels(address: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2])))).astype(int)


def numbers(sent: dict) -> np.ndarray:
    return np.frombuffer(base64.b64decode(sent["f32"]), "<f4").reshape(sent["shape"])


def told(parts: list[dict]) -> dict:
    return next(part for part in parts if "kind" in part)


def map_of(parts: list[dict]) -> np.ndarray:
    return np.concatenate([pixels(part["image"]) for part in parts if "rows" in part])


def test_the_map_of_what_differs_most_is_that_of_the_report(asked, root):
    parts, _ = asked("codes", root, run="vae", plane="principal", reach=2.0, side=5)
    run = Run.open(root / "vae")
    with aside(run.learner.model, 0):
        expected = walk(run.learner.model.decode, run.recipe.some_codes(run.learner.model, run.data, 1000), 5)
    assert np.abs(map_of(parts) - grid(expected, 5).numpy()).max() <= 1


@pytest.mark.parametrize(
    ("run", "kind"), [("vae", "principal"), ("plane", "coordinates"), ("gan", "random"), ("line", "coordinates")]
)
def test_each_model_has_a_plane_that_suits_it(asked, root, run, kind):
    assert told(asked("codes", root, run=run, side=3)[0])["kind"] == kind


@pytest.mark.parametrize("plane", ["coordinates", "principal", "random"])
def test_a_dot_lies_where_its_code_is_nearest_to_the_plane(asked, root, plane):
    found = told(asked("codes", root, run="autoencoder", plane=plane, across=2, up=0, side=2)[0])
    o, a, b = (numbers(found[name]) for name in "oab")
    z = numbers(asked("codes.item", root, run="autoencoder", item=7)[1]["z"])
    place, *_ = np.linalg.lstsq(np.stack([a, b], 1), z - o, rcond=None)
    assert np.allclose(numbers(found["dots"])[7], place, atol=1e-3)
    assert abs(a @ b) < 1e-4 * np.linalg.norm(a) * np.linalg.norm(b)


def test_a_plane_of_all_numbers_holds_all_variance(asked, root):
    assert told(asked("codes", root, run="plane", side=2)[0])["share"] == pytest.approx(1, abs=1e-4)
    assert told(asked("codes", root, run="vae", side=2)[0])["share"] < 1


def test_random_directions_are_half_as_long_as_codes_usually_are(asked, root):
    first, again, other = (told(asked("codes", root, run="gan", seed=seed, side=2)[0]) for seed in (1, 1, 2))
    size = first["code"]
    assert np.linalg.norm(numbers(first["a"])) == pytest.approx(math.sqrt(size) / 2, rel=0.05)
    assert first["a"] == again["a"]
    assert first["a"] != other["a"]


def test_a_code_stands_for_what_the_library_decodes(asked, root):
    z = [0.5, -1.0, 0.25, 2.0]
    for name in ("vae", "autoencoder", "gan"):
        _, answer = asked("codes.decode", root, run=name, z=z)
        run = Run.open(root / name)
        with aside(run.learner.model, 0):
            expected = grid(run.learner.model.decode(torch.tensor([z])), 1, gap=0).numpy()
        assert np.abs(pixels(answer["image"]) - expected).max() <= 1
        assert ("real" in answer) == (name == "gan")


def test_whole_numbers_are_a_code_too(asked, root):
    """JSON of a page writes 1.0 as 1."""
    assert asked("codes.decode", root, run="vae", z=[0, 1, 0, 2]) == asked(
        "codes.decode", root, run="vae", z=[0.0, 1.0, 0.0, 2.0]
    )


def test_the_map_shows_at_each_place_what_its_code_stands_for(asked, root):
    parts, _ = asked("codes", root, run="vae", plane="coordinates", across=1, up=3, reach=1.5, side=3)
    found = told(parts)
    o, a, b = (numbers(found[name]) for name in "oab")
    upper_right = asked("codes.decode", root, run="vae", z=(o + 1.5 * a + 1.5 * b).tolist())[1]
    assert np.abs(map_of(parts)[:8, 18:26] - pixels(upper_right["image"])).max() <= 1


def test_an_item_comes_with_its_class_and_what_its_code_gives_back(asked, root):
    _, found = asked("codes.item", root, run="vae", item=3)
    run = Run.open(root / "vae")
    x = run.recipe.seen(run.data, "test", 4)[3:]
    assert found["class"] == run.data.classes[int(run.data.test["label"][3])]
    assert np.abs(pixels(found["itself"]["image"]) - grid(x, 1, gap=0).numpy()).max() <= 1
    with aside(run.learner.model, 0):
        assert found["error"] == pytest.approx((run.learner.model(x) - x).square().mean().item(), rel=1e-4)


@pytest.mark.parametrize("along", ["line", "arc"])
def test_a_way_leads_from_one_code_to_the_other(asked, root, along):
    start, end = (numbers(asked("codes.item", root, run="vae", item=i)[1]["z"]) for i in (2, 9))
    (codes, pictures), _ = asked("codes.between", root, run="vae", first=2, last=9, along=along, count=7)
    found = numbers(codes["z"])
    straight = np.linspace(start, end, 7)
    expected = between(torch.tensor(start)[None], torch.tensor(end)[None], 7) if along == "arc" else straight
    assert np.allclose(found, expected, atol=1e-5)
    assert np.allclose(found[[0, -1]], [start, end], atol=1e-4)
    assert pixels(pictures["image"]).shape == (8, 7 * 8, 4)


def test_where_there_is_no_encoder_ways_lead_between_drawn_codes(asked, root):
    (codes, _), _ = asked("codes.between", root, run="gan", first=4, last=5, count=3)
    drawn = Run.open(root / "gan").learner.model.codes(1, generator(4, "code"))
    assert np.allclose(numbers(codes["z"])[0], drawn[0], atol=1e-5)


def test_codes_of_points_lead_to_points(asked, root):
    parts, _ = asked("codes", root, run="line", side=4)
    rows = [numbers(part["points"]) for part in parts if "rows" in part]
    assert np.concatenate(rows).shape == (16, 2)


@pytest.mark.parametrize(
    ("ask", "wish", "part"),
    [
        ("codes", {"side": 26}, "side"), ("codes", {"reach": math.nan}, "reach"), ("codes", {"seed": -1}, "seed"),
        ("codes", {"plane": "coordinates", "up": 4}, "below 4"), ("codes", {"plane": "coordinates", "up": 0}, "differ"),
        ("codes", {"plane": "tilted"}, "tilted"), ("codes.decode", {"z": [1.0]}, "4 numbers"),
        ("codes.decode", {"z": [math.inf] * 4}, "finite"), ("codes.decode", {"z": [0.0] * 5000}, "4096"),
        ("codes.item", {"item": 10**6}, "test split"), ("codes.item", {"item": -1}, "item"),
        ("codes.between", {"count": 42}, "count"), ("codes.between", {"last": 10**6}, "test split"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_a_sentence(asked, root, ask, wish, part):
    with pytest.raises(EngramError, match=part):
        asked(ask, root, **{"run": "vae", **wish})


def test_drawn_codes_have_no_principal_plane(asked, root):
    with pytest.raises(EngramError, match="random plane"):
        asked("codes", root, run="gan", plane="principal")


def test_a_run_of_another_kind_is_refused(asked, finished):
    path = finished("diffusion")
    with pytest.raises(EngramError, match="Diffusion"):
        asked("codes", path.parent, run=path.name)
