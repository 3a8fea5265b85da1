"""Generative recipes from the command line, on images, on points and on user data."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from engram import data as datasets
from engram import load
from engram.core.registry import registry
from engram.core.seeding import generator
from engram.generative.autoencoder.recipe import AutoencoderRecipe
from engram.generative.diffusion.model import Diffusion
from engram.generative.diffusion.recipe import DiffusionRecipe
from engram.generative.latent import interpolate, slerp
from engram.generative.vae.recipe import VAERecipe
from engram.training.run import Run
from tests.conftest import tiny

GENERATIVE = ("autoencoder", "vae", "gan", "diffusion")
SHARED = {"frechet_distance", "frechet_distance_real", "precision", "recall", "novelty"}


def newest_sample(folder, name="samples"):
    """The newest image of samples, and the arrays beside it."""
    newest = max((folder / name).glob("*.npz"), key=lambda path: path.stat().st_mtime)
    with Image.open(newest.with_suffix(".png")) as image, np.load(newest) as arrays:
        return image.copy(), dict(arrays)


@pytest.fixture
def own_run(tmp_path):
    """A run in its own folder, which a test may write into."""
    return lambda name, **changes: tiny(name, tmp_path / name, **changes).folder.path


@pytest.mark.parametrize("name", GENERATIVE)
def test_all_are_measured_alike(name, finished):
    last = json.loads((finished(name) / "metrics.jsonl").read_text().splitlines()[-1])
    assert {f"test_{key}" for key in SHARED} <= set(last)


@pytest.mark.parametrize("name", ["autoencoder", "vae"])
@pytest.mark.parametrize(
    ("show", "count", "rows", "columns"),
    [("samples", 9, 3, 3), ("reconstruction", 5, 2, 5), ("interpolation", 20, 2, 10), ("plane", 16, 4, 4)],
)
def test_every_view_of_latents(name, show, count, rows, columns, own_run, engram):
    folder = own_run(name)
    answer = engram("sample", folder, "--show", show, "--count", count)
    assert answer.code == 0, answer.err
    image, arrays = newest_sample(folder)
    assert image.size == (3 * 9 * columns, 3 * 9 * rows)  # digits of 8 × 8 with a gap, three times as large
    assert arrays["image"].shape == (rows * columns, 1, 8, 8)


def test_interpolation_begins_and_ends_at_reconstructions(own_run):
    run = Run.open(own_run("autoencoder"))
    model = run.learner.model.eval()
    with torch.no_grad():
        path = interpolate(run.recipe, model, run.data, 1, generator(4))[0]
        index = torch.randint(len(run.data.test), (2,), generator=generator(4))
        ends = model(run.recipe.real_samples(run.data, "test", len(run.data.test))[index])
    torch.testing.assert_close(path[[0, -1]], ends, rtol=1e-3, atol=1e-3)


def test_a_gan_reconstructs_nothing(own_run, refused):
    assert "no encoder" in refused("sample", own_run("gan"), "--show", "reconstruction")


@pytest.mark.parametrize("show", ["samples", "trajectory", "forward", "inpainting", "denoising"])
def test_every_view_of_diffusion(show, own_run, engram):
    folder = own_run("diffusion")
    answer = engram("sample", folder, "--show", show, "--count", 4, "--sampler", "ddim", "--sampler-steps", 4)
    assert answer.code == 0, answer.err
    image, arrays = newest_sample(folder)
    rows = {"samples": 2, "inpainting": 5, "denoising": 3}.get(show, 4)
    assert image.size[1] == 3 * 9 * rows
    if show in ("trajectory", "forward"):
        assert arrays["frames"].shape[:1] == (4,)
    if show == "inpainting":
        known = arrays["image"].reshape(5, 4, 8, 8)
        np.testing.assert_allclose(known[2:, :, :4], np.repeat(known[:1, :, :4], 3, 0), atol=1e-6)


@pytest.mark.parametrize("sampler", ["ddpm", "ddim", "dpm-solver-2", "langevin"])
def test_every_sampler_can_be_chosen(sampler, own_run, engram):
    folder = own_run("diffusion")
    answer = engram("sample", folder, "--sampler", sampler, "--sampler-steps", 3, "--count", 2)
    assert answer.code == 0, answer.err
    assert sampler in answer.out


def test_classes_of_a_conditional_model(own_run, engram, refused):
    folder = own_run("diffusion", conditional=True)
    assert load(folder).config.classes == 10
    assert engram("sample", folder, "--label", 3, "--guidance", 2, "--count", 3).code == 0
    assert newest_sample(folder)[1]["label"].tolist() == [3, 3, 3]
    assert "from 0 to 9" in refused("sample", folder, "--label", 10)
    assert engram("report", folder).code == 0
    assert "Classes and guidance" in (folder / "report.html").read_text()


def test_an_unconditional_model_refuses_classes(own_run, refused):
    assert "not trained on classes" in refused("sample", own_run("diffusion"), "--label", 3)


def test_labels_are_dropped_for_guidance():
    recipe = DiffusionRecipe(conditional=True, class_dropout=0.25)
    drawn = recipe.draw_noise(torch.zeros(4000, 1, 2, 2), {"label": torch.full((4000,), 7)}, generator(0))
    assert (drawn["label"] == -1).float().mean().item() == pytest.approx(0.25, abs=0.03)
    assert set(drawn["label"].tolist()) == {-1, 7}


def test_times_of_a_batch_are_spread_evenly():
    recipe = DiffusionRecipe()
    t = recipe.draw_noise(torch.zeros(100, 1, 2, 2), {}, generator(0))["t"]
    assert t.min() >= 1
    assert t.max() <= 1000
    assert ((t - 1) // 10).unique().numel() == 100


@pytest.mark.parametrize("name", GENERATIVE)
def test_points_are_learned_and_drawn(name, tmp_path, engram):
    folder = tmp_path / name
    words = [
        "run",
        name,
        "--preset",
        "points",
        "--points",
        "rings",
        "--steps",
        20,
        "--eval-every",
        20,
        "--eval-samples",
        200,
    ]
    assert engram(*words, "--out", folder).code == 0
    page = (folder / "report.html").read_text()
    expected = {"gan": "Discriminator logit", "diffusion": "Score at time"}.get(name, "Reconstructions")
    assert expected in page
    image, arrays = newest_sample(folder)
    assert arrays["point"].shape == (64, 2)
    assert image.size == (480, 480)


def test_planes_of_points_are_refused(tmp_path, refused, engram):
    folder = tmp_path / "vae"
    assert (
        engram(
            "run", "vae", "--preset", "points", "--steps", 5, "--eval-every", 5, "--eval-samples", 50, "--out", folder
        ).code
        == 0
    )
    assert "for images" in refused("sample", folder, "--show", "plane")


@pytest.mark.parametrize("name", GENERATIVE)
def test_user_images_without_classes(name, tmp_path, engram):
    """Color images of a size that cannot be halved twice; their features are principal components."""
    images = tmp_path / "images"
    images.mkdir()
    random = np.random.default_rng(0)
    for i in range(60):
        Image.fromarray(random.integers(0, 256, (11, 9, 3), dtype=np.uint8)).save(images / f"{i}.png")
    folder = tmp_path / "run"
    changes = ["--batch", 8, "--eval-samples", 10]
    if name != "diffusion":
        changes += ["--channels", 4, 8]
    answer = engram("run", name, "--preset", "tiny", "--data", images, *changes, "--out", folder)
    assert answer.code == 0, answer.err
    assert newest_sample(folder)[1]["image"].shape == (64, 3, 11, 9)


def test_texts_are_refused(refused, tmp_path):
    assert "images or points" in refused("run", "vae", "--data", "shakespeare", "--out", tmp_path / "run")


def test_points_without_classes_refuse_conditional(refused, tmp_path):
    np.save(tmp_path / "own.npy", np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32))
    words = ["run", "diffusion", "--preset", "tiny", "--data", tmp_path / "own.npy", "--conditional"]
    assert "--conditional" in refused(*words, "--out", tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "flag", "value"),
    [("vae", "beta", -1), ("vae", "importance-samples", 0), ("diffusion", "sampler-steps", 0),
     ("diffusion", "guidance", -1), ("diffusion", "ema-decay", 1), ("diffusion", "heads", 5),
     ("gan", "discriminator-steps", 0), ("autoencoder", "eval-samples", 3), ("autoencoder", "latent-dim", 0),
     ("autoencoder", "batch", 1)],
)  # fmt: skip
def test_bad_settings_are_named(name, flag, value, refused, tmp_path):
    said = refused("run", name, "--preset", "tiny", f"--{flag}", value, "--out", tmp_path / "run")
    assert flag.replace("-", "_") in said


def test_the_vae_binarizes_at_random():
    recipe = VAERecipe()
    x = torch.full((2000, 1, 4, 4), 0.3)
    first, second = (recipe.draw_noise(x, {}, generator(i))["x"] for i in range(2))
    assert set(first.unique().tolist()) == {0.0, 1.0}
    assert first.mean().item() == pytest.approx(0.3, abs=0.01)
    assert not torch.equal(first, second)
    shades = VAERecipe(binarize=False).draw_noise(x, {}, generator(0))["x"]
    assert torch.equal(shades, x)


def test_denoising_autoencoder_is_given_noise():
    recipe = AutoencoderRecipe.from_preset("denoising")
    assert recipe.draw_noise(torch.zeros(50, 1, 2, 2), {}, generator(0))["noise"].std().item() == pytest.approx(
        1, abs=0.2
    )
    assert not AutoencoderRecipe().draw_noise(torch.zeros(5, 1, 2, 2), {}, generator(0))["noise"].any()


def test_slerp_keeps_the_norm():
    a, b = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 3.0])
    path = slerp(a, b, 5)
    torch.testing.assert_close(path[[0, -1]], torch.stack([a, b]))
    torch.testing.assert_close(path.norm(dim=1), torch.full((5,), 3.0))
    assert torch.isfinite(slerp(a, a, 3)).all()


@pytest.mark.slow
def test_diffusion_learns_a_mixture_of_gaussians(tmp_path):
    """Eight bells on a circle: each found, as often as it should be, by every sampler."""
    data = datasets.load("points", shape="gaussians", count=20_000)
    recipe = registry()["diffusion"].from_preset("points", points="gaussians", steps=1500, eval_every=1500)
    learner, batches = recipe.learner(data), recipe.batches(data)
    torch.manual_seed(0)
    for _ in range(recipe.steps):
        learner.step(next(batches))
    model = learner.model.eval()
    assert isinstance(model, Diffusion)
    for sampler, steps in (("ddpm", 250), ("ddim", 20), ("dpm-solver-2", 10)):
        with torch.no_grad():
            made = model.sample(4000, generator(1), sampler=sampler, steps=steps)
        piece = (torch.atan2(made[:, 1], made[:, 0]) / (torch.pi / 4)).round().long() % 8
        share = piece.bincount(minlength=8) / 4000
        assert (share - 1 / 8).abs().max() < 0.04, (sampler, share)
        assert sliced(made, data.test["point"]) < 0.1, sampler


def sliced(x, y, directions=64):
    """The Wasserstein distance of two clouds, averaged over directions."""
    angle = torch.linspace(0, torch.pi, directions)
    way = torch.stack([angle.cos(), angle.sin()])
    at = torch.linspace(0.005, 0.995, 200)
    return (torch.quantile(x @ way, at, 0) - torch.quantile(y @ way, at, 0)).abs().mean().item()
