"""MLP, CNN and ResNet against the same nets written out with torch.nn.functional."""

import pytest
import torch
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.tap import watch
from engram.foundations.cnn.model import CNN
from engram.foundations.mlp.model import MLP
from engram.foundations.resnet.model import ResNet

X = torch.rand(4, 1, 12, 12, generator=torch.Generator().manual_seed(0))
COMMON = {"shape": (1, 12, 12), "classes": 5, "mean": (0.3,), "std": (0.5,)}


def test_mlp_is_dense_layers():
    model = MLP(MLP.Config(**COMMON, hidden=(7, 6), activation="tanh")).eval()
    w = model.state_dict()
    h = (X.flatten(1) - 0.3) / 0.5
    h = torch.tanh(h @ w["layers.0.weight"].T + w["layers.0.bias"])
    h = torch.tanh(h @ w["layers.1.weight"].T + w["layers.1.bias"])
    torch.testing.assert_close(model(X), h @ w["layers.2.weight"].T + w["layers.2.bias"])


def test_cnn_is_convolutions_norms_and_pooling():
    model = CNN(CNN.Config(**COMMON, channels=(4, 6), convolutions=(1, 1), hidden=8)).train()
    h = (X - 0.3) / 0.5
    for stage in model.stages:
        h = F.max_pool2d(F.conv2d(h, stage.convolutions[0].weight, padding=1), 2)
        h = (h - h.mean((0, 2, 3), keepdim=True)) / (h.var((0, 2, 3), unbiased=False, keepdim=True) + 1e-5).sqrt()
        h = torch.relu(h)
    with watch(model, "hidden") as seen:
        model(X)
    expected = torch.relu(h.flatten(1) @ model.dense.weight.T + model.dense.bias)
    torch.testing.assert_close(seen["hidden"], expected, rtol=1e-4, atol=1e-5)


def test_dropout_and_running_statistics_only_while_learning():
    model = CNN(CNN.Config(**COMMON, channels=(4,), convolutions=(2,), dropout=0.5))
    assert not torch.equal(model(X), model(X))
    model.eval()
    assert torch.equal(model(X), model(X))
    assert torch.equal(model(X)[:2], model(X[:2])) or torch.allclose(model(X)[:2], model(X[:2]), atol=1e-6)


def layer(layer, h, size=1):
    h = F.max_pool2d(F.conv2d(h, layer.convolution.weight, padding=1), size)
    return torch.relu(F.batch_norm(h, None, None, training=True))


def test_resnet_is_pooling_and_rounds():
    model = ResNet(ResNet.Config(**COMMON, channels=(4, 6), blocks=2)).train()
    h = (X - 0.3) / 0.5
    for stage in model.stages:
        h = layer(stage.enter, h, size=2)
        for block in stage.blocks:
            h = h + layer(block.second, layer(block.first, h))
    expected = h.amax((2, 3)) @ model.head.weight.T + model.head.bias
    torch.testing.assert_close(model(X), expected, rtol=1e-4, atol=1e-5)


def test_switching_off_a_block_leaves_the_stream_as_it_was():
    model = ResNet(ResNet.Config(**COMMON, channels=(4,), blocks=2)).eval()
    with watch(model, "*.residual", replace={"stages.0.blocks.1.added": torch.zeros_like}) as seen:
        model(X)
    assert torch.equal(seen["stages.0.blocks.1.residual"], seen["stages.0.blocks.0.residual"])


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        (MLP.Config, {"hidden": (0,)}),
        (MLP.Config, {"dropout": 1.0}),
        (CNN.Config, {"channels": ()}),
        (CNN.Config, {"kernel": 4}),
        (CNN.Config, {"channels": (1, 1, 1, 1, 1), "convolutions": (1, 1, 1, 1, 1)}),
        (CNN.Config, {"convolutions": (1, 1)}),
        (ResNet.Config, {"channels": (1, 1, 1, 1, 1)}),
        (ResNet.Config, {"blocks": -1}),
    ],
)
def test_wrong_configurations_are_named(config, changes):
    with pytest.raises(EngramError):
        config(**changes)
