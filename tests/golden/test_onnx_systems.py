"""ONNX files of classifiers, recurrent networks and generative models against torch, and their metadata."""

import json

import pytest
import torch

from engram import __version__
from engram.core.errors import EngramError
from engram.core.seeding import generator
from engram.foundations.cnn.model import CNN
from engram.foundations.mlp.model import MLP
from engram.foundations.resnet.model import ResNet
from engram.generative.autoencoder.model import Autoencoder
from engram.generative.diffusion.model import Diffusion
from engram.generative.gan.model import GAN
from engram.generative.vae.model import VAE
from engram.hub.onnx import export_onnx
from engram.robustness.trades.model import PlainCNN
from engram.sequences.network import CELLS, RecurrentNetwork
from tests.golden.onnx_file import open_onnx, shake

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.slow

IMAGE = {"shape": (3, 8, 8), "mean": (0.4, 0.5, 0.6), "std": (0.2, 0.3, 0.25)}
CONV = {"shape": (1, 7, 7), "channels": (4, 8), "latent_dim": 3}
POINTS = {"shape": (2,), "center": 0.3, "scale": 1.5, "hidden": (8,), "latent_dim": 3}
UNET = {"shape": (1, 7, 7), "channels": (8, 16), "heads": 2, "embedding": 16, "timesteps": 50}


@pytest.fixture(autouse=True)
def no_gradients():
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def exported(model, folder, **names):
    (path,) = export_onnx(model, folder / "model.onnx", **names)
    return open_onnx(path)


def agree(ours, expected):
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)


# ---------------------------------------------------------------------- classifiers

CLASSIFIERS = {
    "mlp": lambda: MLP(MLP.Config(**IMAGE, hidden=(16, 8), activation="softplus", classes=4)),
    "cnn": lambda: CNN(CNN.Config(**IMAGE, channels=(4, 8), convolutions=(1, 2), flip_kernel=True, classes=4)),
    "resnet": lambda: ResNet(ResNet.Config(**IMAGE, channels=(4, 8), classes=4)),
}


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_classifiers_of_images(kind, tmp_path):
    model = shake(CLASSIFIERS[kind]())
    run, metadata = exported(model, tmp_path, recipe=kind, classes=["a", "b", "ö", "d"])
    for batch in (5, 1):
        image = torch.rand(batch, 3, 8, 8)
        agree(run(image=image), {"logits": model(image)})
    assert metadata["engram.recipe"] == kind
    assert metadata["engram.version"] == __version__
    assert json.loads(metadata["classes"]) == ["a", "b", "ö", "d"]
    assert json.loads(metadata["input"]) == {
        "image": "images, float32, batch × 3 × 8 × 8: pixels from 0 to 1; the model itself normalizes them"
    }
    assert list(json.loads(metadata["output"])) == ["logits"]


@pytest.mark.parametrize("output", ["logits", "number"])
def test_an_mlp_of_rows(output, tmp_path):
    numbers = {"shape": (3,), "mean": (1.0, 2.0, 3.0), "std": (2.0, 1.0, 0.5)}
    config = MLP.Config(**numbers, classes=1, output=output, target_mean=5.0, target_std=3.0)
    model, point = shake(MLP(config)), torch.randn(5, 3)
    run, metadata = exported(model, tmp_path)
    agree(run(point=point), {"logits" if output == "logits" else "prediction": model(point)})
    assert not {"classes", "engram.recipe"} & set(metadata)  # nobody named them


# ---------------------------------------------------------------------- recurrent networks


@pytest.mark.parametrize("cell", CELLS)
def test_recurrent_networks_of_tokens(cell, tmp_path):
    config = RecurrentNetwork.Config(cell=cell, width=8, layers=2, vocabulary=23, outputs=23, bptt=3)
    model = shake(RecurrentNetwork(config))
    run, _ = exported(model, tmp_path)
    for size in ((5, 40), (1, 1)):
        ids = torch.randint(23, size)
        agree(run(ids=ids), {"logits": model(ids)})


@pytest.mark.parametrize("cell", ["gru", "mingru"])
def test_recurrent_networks_of_numbers(cell, tmp_path):
    config = RecurrentNetwork.Config(cell=cell, width=8, layers=1, vocabulary=0, inputs=3, outputs=2)
    model, x = shake(RecurrentNetwork(config)), torch.randn(5, 9, 3)
    run, metadata = exported(model, tmp_path, recipe=cell, classes=["up", "down"])
    agree(run(x=x), {"output": model(x)})
    assert json.loads(metadata["classes"]) == ["up", "down"]
    assert "batch × length × 3" in json.loads(metadata["input"])["x"]


# ---------------------------------------------------------------------- generative models


def real(config, count):
    return {"image": torch.rand(count, *config.shape)} if config.is_image else {"point": torch.randn(count, 2)}


@pytest.mark.parametrize("settings", [CONV, POINTS, {**POINTS, "tied": True}])
def test_autoencoder(settings, tmp_path):
    model = shake(Autoencoder(Autoencoder.Config(**settings)))
    run, _ = exported(model, tmp_path)
    for batch in (5, 1):
        ((name, x),) = real(model.config, batch).items()
        agree(run(**{name: x}), {"reconstruction": model(x), "latent": model.encode(x)})


@pytest.mark.parametrize("settings", [CONV, POINTS, {**CONV, "likelihood": "gaussian"}])
def test_vae_is_an_encoder_and_a_decoder(settings, tmp_path):
    model = shake(VAE(VAE.Config(**settings)))
    paths = export_onnx(model, tmp_path / "mine.onnx", recipe="vae")
    assert [path.name for path in paths] == ["mine.encoder.onnx", "mine.decoder.onnx"]
    (encode, about_encoder), (decode, about_decoder) = map(open_onnx, paths)
    ((name, x),) = real(model.config, 5).items()
    posterior = encode(**{name: x})
    agree(posterior, dict(zip(("mean", "log_variance"), model.posterior(x), strict=True)))
    agree(decode(latent=posterior["mean"]), {"reconstruction": model(x)})
    assert about_encoder["engram.recipe"] == about_decoder["engram.recipe"] == "vae"


@pytest.mark.parametrize("settings", [CONV, POINTS])
def test_generator_of_a_gan(settings, tmp_path):
    model = shake(GAN(GAN.Config(**settings)))
    run, metadata = exported(model, tmp_path)
    z = model.sample_latents(5, generator(0, "latents"))
    agree(run(latent=z), {"generated": model.decode(z)})
    assert "batch × 3" in json.loads(metadata["input"])["latent"]


@pytest.mark.parametrize("prediction", ["noise", "velocity", "x0"])
def test_denoising_network_predicts_the_noise(prediction, tmp_path):
    """Whatever the network predicts, the noise it is equal to gives the model's clean sample, unclamped."""
    model = shake(Diffusion(Diffusion.Config(**UNET, prediction=prediction, patch=2)))
    run, metadata = exported(model, tmp_path)
    x_t, t = torch.randn(5, 1, 7, 7), torch.tensor([5, 20, 50, 30, 12])
    noise = run(x_t=x_t, t=t)["noise"]
    alphas_cumprod = torch.tensor(json.loads(metadata["alphas_cumprod"]), dtype=torch.float64)
    assert len(alphas_cumprod) == 51
    a, s = (level[t].view(-1, 1, 1, 1) for level in (alphas_cumprod.sqrt(), (1 - alphas_cumprod).sqrt()))
    predicted = model(x_t, t).double()
    expected = {"noise": predicted, "velocity": s * x_t + a * predicted, "x0": (x_t - a * predicted) / s}
    agree(noise, expected[prediction].float())
    x_0 = ((x_t - s * noise) / a).clamp(-1, 1).float()
    torch.testing.assert_close(x_0[t < 40], model.denoise(x_t, t)[t < 40], atol=1e-4, rtol=1e-4)


def test_denoising_network_of_classes(tmp_path):
    model = shake(Diffusion(Diffusion.Config(**UNET, classes=3)))
    run, metadata = exported(model, tmp_path, recipe="diffusion", classes=["a", "b", "c"])
    x_t, t, label = torch.randn(4, 1, 7, 7), torch.tensor([1, 20, 50, 30]), torch.tensor([2, 0, -1, 1])
    a, s = model.schedule.levels_like(x_t, t)
    agree(run(x_t=x_t, t=t, label=label), {"noise": s * x_t + a * model(x_t, t, label)})
    assert json.loads(metadata["classes"]) == ["a", "b", "c"]


def test_denoising_network_of_points(tmp_path):
    points = {"shape": (2,), "center": 0.3, "scale": 1.5, "hidden": 8, "prediction": "noise", "timesteps": 50}
    model, x_t, t = shake(Diffusion(Diffusion.Config(**points))), torch.randn(5, 2), torch.tensor([1, 5, 9, 40, 50])
    run, metadata = exported(model, tmp_path)
    agree(run(x_t=x_t, t=t), {"noise": model(x_t, t)})
    assert "(x - 0.3) / 1.5" in json.loads(metadata["input"])["x_t"]


# ---------------------------------------------------------------------- the file


def test_a_file_has_no_paths_of_the_machine_that_wrote_it(tmp_path):
    (path,) = export_onnx(CLASSIFIERS["mlp"](), tmp_path / "model.onnx")
    assert b"site-packages" not in path.read_bytes()
    assert b"model.py" not in path.read_bytes()


def test_other_models_are_refused(tmp_path):
    with pytest.raises(EngramError, match=r"PlainCNN cannot be written as ONNX; the models of autodiff, .* can\."):
        export_onnx(PlainCNN(PlainCNN.Config()), tmp_path / "model.onnx")
