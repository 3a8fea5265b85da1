"""Steps of a digit classifier: engram's automatic differentiation compared with autograd and torch, in 32 bits."""

from collections.abc import Callable
from typing import Any

import numpy as np

from engram.cli.bench import Contestant
from engram.foundations.autodiff import cross_entropy
from engram.foundations.autodiff.nets import MLP, SGD

SIZES, BATCH, LR = (784, 128, 10), 64, 0.1
WORK = f"a step of {'–'.join(map(str, SIZES))} on {BATCH} images: forward, cross-entropy, backward, gradient descent"
UNIT = "steps/s"
ROUNDS = 5
STEPS = 500


def contestants() -> dict[str, Contestant]:
    draw = np.random.default_rng(0)
    x, t = draw.random((BATCH, SIZES[0]), np.float32), draw.integers(0, SIZES[-1], BATCH)

    def engram() -> Callable[[], float]:
        net = MLP(SIZES, np.random.default_rng(0), dtype=np.float32)
        update = SGD(net.parameters(), LR)

        def work() -> float:
            for _ in range(STEPS):
                loss = cross_entropy(net(x), t)
                net.zero_grad()
                loss.backward()
                update.step()
            return STEPS

        return work

    def autograd() -> Callable[[], float]:
        import autograd.numpy as anp
        from autograd import grad

        weights = [
            (np.asarray(draw.standard_normal((a, b)) * np.sqrt(2 / a), np.float32), np.zeros(b, np.float32))
            for a, b in zip(SIZES, SIZES[1:], strict=False)
        ]

        def loss(weights: Any) -> Any:
            (W, b), (V, c) = weights
            z = anp.dot(anp.maximum(anp.dot(x, W) + b, 0), V) + c
            z = z - anp.max(z, 1, keepdims=True)
            return anp.mean(anp.log(anp.sum(anp.exp(z), 1)) - z[np.arange(BATCH), t])

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

        net = nn.Sequential(nn.Linear(SIZES[0], SIZES[1]), nn.ReLU(), nn.Linear(SIZES[1], SIZES[2]))
        X, T = torch.tensor(x), torch.tensor(t)
        optimizer = torch.optim.SGD(net.parameters(), LR)

        def work() -> float:
            for _ in range(STEPS):
                loss = nn.functional.cross_entropy(net(X), T)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            return STEPS

        return work

    return {"autograd": autograd, "torch": torch_eager, "engram": engram}
