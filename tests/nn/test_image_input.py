import pytest
import torch

from engram.core.errors import EngramError
from engram.core.registry import registry
from engram.nn.image_input import ImageConfig

CLASSIFIERS = ["backprop", "cnn", "mlp", "resnet", "spiking-classifier", "trades", "vanishing-gradients", "vit"]


@pytest.mark.parametrize("shape", [(2, 1, 28, 28), (2, 3, 32, 32), (2, 3, 24, 23), (3, 24, 24), (2, 3 * 24 * 24)])
def test_images_of_another_shape_are_refused(shape):
    with pytest.raises(EngramError, match="This model takes images of 3×24×24 .*, and a tensor of"):
        ImageConfig(shape=(3, 24, 24)).standardize(torch.zeros(shape))


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_every_classifier_refuses_images_of_another_shape(name):
    cls = registry()[name].Model
    model = cls(cls.Config(shape=(3, 24, 24), **({"patch": 8} if name == "vit" else {}))).eval()
    model(torch.zeros(2, 3, 24, 24))
    for shape in ((2, 1, 28, 28), (2, 3, 32, 32)):  # of which the first would be broadcast
        with pytest.raises(EngramError, match="takes images of 3×24×24"):
            model(torch.zeros(shape))


WIDTHS = {
    "mlp": {"shape": (5,), "mean": (0.0,) * 5, "std": (1.0,) * 5},
    "autoencoder": {"shape": (5,)},
    "vae": {"shape": (5,)},
    "gan": {"shape": (5,)},
    "rbm": {"visible": 5},
}


@pytest.mark.parametrize("name", WIDTHS)
def test_rows_of_another_width_are_refused(name):
    cls = registry()[name].Model
    model = cls(cls.Config(**WIDTHS[name])).eval()
    model(torch.zeros(2, 5))
    for shape in ((2, 4), (2, 1), (5,), (2, 1, 5), (2, 1, 28, 28)):  # of which the second would be broadcast
        with pytest.raises(EngramError, match="takes rows of 5 numbers.* and a tensor of"):
            model(torch.zeros(shape))


@pytest.mark.parametrize("name", ["autoencoder", "vae", "gan"])
def test_generative_models_refuse_images_of_another_shape(name):
    cls = registry()[name].Model
    model = cls(cls.Config(shape=(1, 8, 8))).eval()
    model(torch.zeros(2, 1, 8, 8))
    with pytest.raises(EngramError, match="takes images of 1×8×8"):
        model(torch.zeros(2, 1, 7, 7))
