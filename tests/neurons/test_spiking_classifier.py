"""The spiking classifier, beside the same network in snnTorch."""

import pytest
import snntorch
import torch
from snntorch import surrogate
from torch import nn

from engram.core.errors import EngramError
from engram.core.tap import watch
from engram.neurons.spiking_classifier.model import SpikingNet


class Peer(nn.Module):
    """The same layers, stepped through time."""

    def __init__(self, model: SpikingNet) -> None:
        super().__init__()
        self.layers, self.config = model.layers, model.config
        self.neurons = [snntorch.Leaky(beta=0.95, spike_grad=surrogate.atan(alpha=2.0)) for _ in model.config.hidden]
        self.readout = snntorch.Leaky(beta=0.95, reset_mechanism="none")

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        state, out, seen = [neuron.init_leaky() for neuron in self.neurons], self.readout.init_leaky(), []
        for _ in range(self.config.time):
            z = self.config.standardize(x_BCHW).flatten(1)
            for i, neuron in enumerate(self.neurons):
                z, state[i] = neuron(self.layers[i](z), state[i])
            _, out = self.readout(self.layers[-1](z), out)
            seen.append(out)
        return torch.stack(seen).mean(0)


def test_logits_and_gradients_are_those_of_snntorch():
    torch.manual_seed(0)
    model = SpikingNet(SpikingNet.Config(shape=(1, 8, 8), hidden=(40, 30), time=15, classes=5))
    x = 4 * torch.rand(6, 1, 8, 8)
    mine, theirs = model(x), Peer(model)(x)
    torch.testing.assert_close(mine, theirs)
    weights = list(model.parameters())
    for a, b in zip(torch.autograd.grad(mine.square().sum(), weights),
                    torch.autograd.grad(theirs.square().sum(), weights), strict=True):  # fmt: skip
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_an_image_as_spikes():
    torch.manual_seed(0)
    model = SpikingNet(SpikingNet.Config(shape=(1, 8, 8), hidden=(20,), time=400, coding="spikes"))
    x = torch.linspace(0, 1, 64).view(1, 1, 8, 8)
    with watch(model, "spikes.in") as seen:
        model(x)
    assert set(seen["spikes.in"].unique().tolist()) == {0.0, 1.0}
    torch.testing.assert_close(seen["spikes.in"].mean(0), x.flatten(1), atol=0.1, rtol=0)
    assert seen["spikes.in"][:, 0, 0].sum() == 0
    assert seen["spikes.in"][:, 0, -1].sum() == 400


@pytest.mark.parametrize("changes", [{"hidden": ()}, {"time": 0}, {"beta": 2.0}])
def test_what_cannot_be_is_refused(changes):
    with pytest.raises(EngramError, match=next(iter(changes))):
        SpikingNet.Config(**changes)
