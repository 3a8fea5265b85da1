"""Steps of micrograd's own network: engram's automatic differentiation compared with micrograd, autograd and torch.

Its loss: hinge of the margin plus the square of all weights; its update: gradient descent. All in 64 bits but torch,
which computes in its own 32.
"""

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from engram.cli.bench import Contestant
from engram.foundations.autodiff import relu
from engram.foundations.autodiff.nets import MLP, SGD

SIZES, SAMPLES, LR, ALPHA = (2, 16, 16, 1), 100, 0.05, 1e-4
WORK = f"a step of {'–'.join(map(str, SIZES))} on {SAMPLES} samples: forward, hinge loss, backward, update"
UNIT = "steps/s"
ROUNDS = 5
STEPS = 500


def moons() -> tuple[Any, Any]:
    angle, side = np.random.default_rng(0).uniform(0, np.pi, SAMPLES), np.arange(SAMPLES) % 2
    x = np.stack([np.cos(angle) * (1 - 2 * side) + side, np.sin(angle) * (1 - 2 * side) + side / 2], 1)
    return x, 2.0 * side - 1


def contestants() -> dict[str, Contestant]:
    x, t = moons()

    def engram() -> Callable[[], float]:
        net = MLP(SIZES, np.random.default_rng(0))
        parameters = list(net.parameters())
        update = SGD(net.parameters(), LR)

        def work() -> float:
            for _ in range(STEPS):
                loss = relu(1 - net(x).reshape(-1) * t).mean()
                for p in parameters:
                    loss = loss + ALPHA * (p * p).sum()
                net.zero_grad()
                loss.backward()
                update.step()
            return STEPS

        return work

    def micrograd() -> Callable[[], float]:
        from micrograd.nn import MLP

        random.seed(0)
        net = MLP(SIZES[0], list(SIZES[1:]))
        rows, signs = x.tolist(), t.tolist()

        def work() -> float:
            margins = [(1 - sign * net(row)).relu() for row, sign in zip(rows, signs, strict=True)]
            loss = sum(margins) * (1.0 / len(margins)) + ALPHA * sum(p * p for p in net.parameters())
            net.zero_grad()
            loss.backward()
            for p in net.parameters():
                p.data -= LR * p.grad
            return 1

        return work

    def autograd() -> Callable[[], float]:
        import autograd.numpy as anp
        from autograd import grad

        draw = np.random.default_rng(0)
        weights = [
            (draw.standard_normal((a, b)) * np.sqrt(2 / a), np.zeros(b)) for a, b in zip(SIZES, SIZES[1:], strict=False)
        ]

        def loss(weights: Any) -> Any:
            h = x
            for i, (W, b) in enumerate(weights):
                h = anp.dot(h, W) + b
                h = anp.maximum(h, 0) if i < len(weights) - 1 else h
            size = sum(anp.sum(W * W) + anp.sum(b * b) for W, b in weights)
            return anp.mean(anp.maximum(1 - h[:, 0] * t, 0)) + ALPHA * size

        slope = grad(loss)

        def work() -> float:
            for _ in range(STEPS):
                for (W, b), (dW, db) in zip(weights, slope(weights), strict=True):
                    W -= LR * dW
                    b -= LR * db
            return STEPS

        return work

    def torch_eager() -> Callable[[], float]:
        import torch
        from torch import nn

        layers: list[nn.Module] = []
        for a, b in zip(SIZES, SIZES[1:], strict=False):
            layers += [nn.Linear(a, b), nn.ReLU()]
        net = nn.Sequential(*layers[:-1])
        X, T = torch.tensor(x).float(), torch.tensor(t).float()
        optimizer = torch.optim.SGD(net.parameters(), LR)

        def work() -> float:
            for _ in range(STEPS):
                loss = torch.relu(1 - net(X)[:, 0] * T).mean()
                loss = loss + ALPHA * sum((p * p).sum() for p in net.parameters())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            return STEPS

        return work

    return {"micrograd": micrograd, "autograd": autograd, "torch": torch_eager, "engram": engram}
