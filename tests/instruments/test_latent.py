"""Endpoints of latent spaces: planes, projections and decoded latents are those of the library."""

import base64
import io
import math

import numpy as np
import pytest
import torch
from PIL import Image

from engram.core.errors import EngramError
from engram.core.seeding import generator, isolated_eval
from engram.generative.latent import slerp, some_latents
from engram.plots.generative import decode_plane
from engram.plots.images import grid
from engram.training.run import Run
from tests.conftest import tiny


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder of runs: one of each model, one with two latent dimensions, one of points with one."""
    made = tmp_path_factory.mktemp("runs")
    for name in ("vae", "autoencoder", "gan"):
        tiny(name, made / name)
    tiny("vae", made / "plane", latent_dim=2)
    tiny("autoencoder", made / "line", data="points", latent_dim=1, hidden=(8,))
    return made


def pixels(address: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2])))).astype(int)


def numbers(sent: dict) -> np.ndarray:
    return np.frombuffer(base64.b64decode(sent["f32"]), "<f4").reshape(sent["shape"])


def description(parts: list[dict]) -> dict:
    return next(part for part in parts if "kind" in part)


def map_of(parts: list[dict]) -> np.ndarray:
    return np.concatenate([pixels(part["image"]) for part in parts if "rows" in part])


def test_the_map_of_what_differs_most_is_that_of_the_report(call_endpoint, root):
    parts, _ = call_endpoint("latent", root, run="vae", plane="principal", extent=2.0, side=5)
    run = Run.open(root / "vae")
    with isolated_eval(run.learner.model, 0):
        expected = decode_plane(
            run.learner.model.decode, some_latents(run.recipe, run.learner.model, run.data, 1000), 5
        )
    assert np.abs(map_of(parts) - grid(expected, 5).numpy()).max() <= 1


@pytest.mark.parametrize(
    ("run", "kind"), [("vae", "principal"), ("plane", "coordinates"), ("gan", "random"), ("line", "coordinates")]
)
def test_each_model_has_a_plane_that_suits_it(call_endpoint, root, run, kind):
    assert description(call_endpoint("latent", root, run=run, side=3)[0])["kind"] == kind


@pytest.mark.parametrize("plane", ["coordinates", "principal", "random"])
def test_latents_are_projected_onto_the_plane(call_endpoint, root, plane):
    found = description(
        call_endpoint("latent", root, run="autoencoder", plane=plane, x_coordinate=2, y_coordinate=0, side=2)[0]
    )
    o, a, b = (numbers(found[name]) for name in "oab")
    z = numbers(call_endpoint("latent.item", root, run="autoencoder", item=7)[1]["z"])
    place, *_ = np.linalg.lstsq(np.stack([a, b], 1), z - o, rcond=None)
    assert np.allclose(numbers(found["projected"])[7], place, atol=1e-3)
    assert abs(a @ b) < 1e-4 * np.linalg.norm(a) * np.linalg.norm(b)


def test_a_plane_of_all_numbers_holds_all_variance(call_endpoint, root):
    assert description(call_endpoint("latent", root, run="plane", side=2)[0])["explained"] == pytest.approx(1, abs=1e-4)
    assert description(call_endpoint("latent", root, run="vae", side=2)[0])["explained"] < 1


def test_random_directions_are_half_as_long_as_codes_usually_are(call_endpoint, root):
    first, again, other = (
        description(call_endpoint("latent", root, run="gan", seed=seed, side=2)[0]) for seed in (1, 1, 2)
    )
    size = first["latent_dim"]
    assert np.linalg.norm(numbers(first["a"])) == pytest.approx(math.sqrt(size) / 2, rel=0.05)
    assert first["a"] == again["a"]
    assert first["a"] != other["a"]


def test_latents_are_decoded_as_by_the_library(call_endpoint, root):
    z = [0.5, -1.0, 0.25, 2.0]
    for name in ("vae", "autoencoder", "gan"):
        _, answer = call_endpoint("latent.decode", root, run=name, z=z)
        run = Run.open(root / name)
        with isolated_eval(run.learner.model, 0):
            expected = grid(run.learner.model.decode(torch.tensor([z])), 1, gap=0).numpy()
        assert np.abs(pixels(answer["image"]) - expected).max() <= 1
        assert ("real" in answer) == (name == "gan")


def test_whole_numbers_are_a_code_too(call_endpoint, root):
    """JSON of a page writes 1.0 as 1."""
    assert call_endpoint("latent.decode", root, run="vae", z=[0, 1, 0, 2]) == call_endpoint(
        "latent.decode", root, run="vae", z=[0.0, 1.0, 0.0, 2.0]
    )


def test_the_map_shows_at_each_place_what_its_code_stands_for(call_endpoint, root):
    parts, _ = call_endpoint(
        "latent", root, run="vae", plane="coordinates", x_coordinate=1, y_coordinate=3, extent=1.5, side=3
    )
    found = description(parts)
    o, a, b = (numbers(found[name]) for name in "oab")
    upper_right = call_endpoint("latent.decode", root, run="vae", z=(o + 1.5 * a + 1.5 * b).tolist())[1]
    assert np.abs(map_of(parts)[:8, 18:26] - pixels(upper_right["image"])).max() <= 1


def test_an_item_comes_with_its_class_and_what_its_code_gives_back(call_endpoint, root):
    _, found = call_endpoint("latent.item", root, run="vae", item=3)
    run = Run.open(root / "vae")
    x = run.recipe.real_samples(run.data, "test", 4)[3:]
    assert found["class"] == run.data.classes[int(run.data.test["label"][3])]
    assert np.abs(pixels(found["original"]["image"]) - grid(x, 1, gap=0).numpy()).max() <= 1
    with isolated_eval(run.learner.model, 0):
        assert found["error"] == pytest.approx((run.learner.model(x) - x).square().mean().item(), rel=1e-4)


@pytest.mark.parametrize("method", ["linear", "slerp"])
def test_a_way_leads_from_one_code_to_the_other(call_endpoint, root, method):
    start, end = (numbers(call_endpoint("latent.item", root, run="vae", item=i)[1]["z"]) for i in (2, 9))
    (latents, images), _ = call_endpoint("latent.interpolate", root, run="vae", first=2, last=9, method=method, count=7)
    found = numbers(latents["z"])
    straight = np.linspace(start, end, 7)
    expected = slerp(torch.tensor(start)[None], torch.tensor(end)[None], 7) if method == "slerp" else straight
    assert np.allclose(found, expected, atol=1e-5)
    assert np.allclose(found[[0, -1]], [start, end], atol=1e-4)
    assert pixels(images["image"]).shape == (8, 7 * 8, 4)


def test_where_there_is_no_encoder_ways_lead_between_drawn_codes(call_endpoint, root):
    (latents, _), _ = call_endpoint("latent.interpolate", root, run="gan", first=4, last=5, count=3)
    drawn = Run.open(root / "gan").learner.model.sample_latents(1, generator(4, "code"))
    assert np.allclose(numbers(latents["z"])[0], drawn[0], atol=1e-5)


def test_codes_of_points_lead_to_points(call_endpoint, root):
    parts, _ = call_endpoint("latent", root, run="line", side=4)
    rows = [numbers(part["points"]) for part in parts if "rows" in part]
    assert np.concatenate(rows).shape == (16, 2)


@pytest.mark.parametrize(
    ("ask", "wish", "part"),
    [
        ("latent", {"side": 26}, "side"), ("latent", {"extent": math.nan}, "extent"), ("latent", {"seed": -1}, "seed"),
        ("latent", {"plane": "coordinates", "y_coordinate": 4}, "below 4"),
        ("latent", {"plane": "coordinates", "y_coordinate": 0}, "differ"),
        ("latent", {"plane": "tilted"}, "tilted"), ("latent.decode", {"z": [1.0]}, "4 numbers"),
        ("latent.decode", {"z": [math.inf] * 4}, "finite"), ("latent.decode", {"z": [0.0] * 5000}, "4096"),
        ("latent.item", {"item": 10**6}, "test split"), ("latent.item", {"item": -1}, "item"),
        ("latent.interpolate", {"count": 42}, "count"), ("latent.interpolate", {"last": 10**6}, "test split"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_a_sentence(call_endpoint, root, ask, wish, part):
    with pytest.raises(EngramError, match=part):
        call_endpoint(ask, root, **{"run": "vae", **wish})


def test_drawn_codes_have_no_principal_plane(call_endpoint, root):
    with pytest.raises(EngramError, match="random plane"):
        call_endpoint("latent", root, run="gan", plane="principal")


def test_a_run_of_another_kind_is_refused(call_endpoint, finished):
    path = finished("diffusion")
    with pytest.raises(EngramError, match="Diffusion"):
        call_endpoint("latent", path.parent, run=path.name)
