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
