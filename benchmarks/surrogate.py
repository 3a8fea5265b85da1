"""A training step of a spiking classifier: snnTorch against engram, equal spikes and gradients."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.cli.bench import Contestant
from engram.core.errors import EngramError
from engram.neurons.spiking_classifier.model import SpikingNet

BATCH, TIME, HIDDEN, STEPS = 128, 25, 1000, 5
WORK = f"training step of 784–{HIDDEN}–10 leaky neurons, {TIME} time steps, batch {BATCH}, images as currents"
UNIT = "images/s"
Coding = Literal["current", "spikes"]


def contestants() -> dict[str, Contestant]:
    return contest("current")


def peer_class(coding: Coding) -> type[nn.Module]:
    """snnTorch's form of a SpikingNet with one hidden layer, with the same weights."""
    import snntorch
    from snntorch import surrogate

    class Peer(nn.Module):
        def __init__(self, model: SpikingNet) -> None:
            super().__init__()
            self.first, self.second = (nn.Linear(a, b) for a, b in ((784, HIDDEN), (HIDDEN, 10)))
            self.first.load_state_dict(model.layers[0].state_dict())
            self.second.load_state_dict(model.layers[1].state_dict())
            self.hidden = snntorch.Leaky(
                beta=model.config.beta, spike_grad=surrogate.atan(alpha=model.config.surrogate_slope)
            )
            self.out = snntorch.Leaky(beta=model.config.beta, reset_mechanism="none")

        def forward(self, x_BCHW: Tensor) -> Tensor:
            hidden, out, seen = self.hidden.init_leaky(), self.out.init_leaky(), []
            x_TBD = x_BCHW.flatten(1).expand(TIME, -1, -1)
            for x_BD in x_TBD if coding == "current" else torch.bernoulli(x_TBD):
                spikes, hidden = self.hidden(self.first(x_BD), hidden)
                _, out = self.out(self.second(spikes), out)
                seen.append(out)
            return torch.stack(seen).mean(0)

    return Peer


def contest(coding: Coding) -> dict[str, Contestant]:
    torch.manual_seed(0)
    model = SpikingNet(SpikingNet.Config(hidden=(HIDDEN,), time=TIME, coding=coding))
    peer = peer_class(coding)(model)
    x_BCHW, y_B = torch.rand(BATCH, 1, 28, 28), torch.randint(10, (BATCH,))
    gradients = []
    for one in (peer, model):
        torch.manual_seed(1)  # of spikes that are drawn
        gradients.append(torch.autograd.grad(F.cross_entropy(one(x_BCHW), y_B), list(one.parameters())))
    apart = max(((a - b).abs().max() / a.abs().max()).item() for a, b in zip(*gradients, strict=True))
    if apart > 1e-5:
        raise EngramError(f"Gradients are to be the same, and differ by {apart:.1e} of the largest.")

    def learning(net: nn.Module) -> Callable[[], float]:
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)

        def work() -> float:
            for _ in range(STEPS):
                loss = F.cross_entropy(net(x_BCHW), y_B)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            return STEPS * BATCH

        work()
        return work

    return {"snnTorch": lambda: learning(peer), "engram": lambda: learning(model)}
