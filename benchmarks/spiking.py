"""A spiking classifier on Fashion-MNIST: snnTorch against engram, the same network and the same batches.

snnTorch trains as in its tutorials, with Adam at a constant learning rate; engram as
`engram run spiking-classifier` does.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.cli import bench
from engram.cli.bench import Contestant, Score
from engram.foundations.base import predict
from engram.neurons.spiking_classifier.recipe import SpikingRecipe

EPOCHS, LR = 1, 1e-3
WORK = f"{EPOCHS} epoch on fashion of 784–1000–10 leaky neurons, 25 time steps, batch 128; the note is test accuracy"
UNIT = "images/s"
ROUNDS = 1


def contestants() -> dict[str, Contestant]:
    data = SpikingRecipe().load()
    recipe = SpikingRecipe(steps=EPOCHS * (len(data.train) // SpikingRecipe().batch))
    Peer = bench.load("surrogate").peer_class("current")

    class Standardized(nn.Module):
        """The same network, on standardized images."""

        def __init__(self, model: Any) -> None:
            super().__init__()
            self.standardize, self.net = model.config.standardize, Peer(model)

        def forward(self, x_BCHW: Tensor) -> Tensor:
            return self.net(self.standardize(x_BCHW))

    def learning(model: nn.Module, step: Callable[[dict[str, Any]], object]) -> Callable[[], Score]:
        batches = recipe.batches(data)

        def work() -> Score:
            began = time.perf_counter()
            for _ in range(recipe.steps):
                step(next(batches))
            rate = recipe.steps * recipe.batch / (time.perf_counter() - began)
            logits_NK, label_N = predict(model, data.test)
            return Score(rate, f"{(logits_NK.argmax(1) == label_N).double().mean():.2%} accuracy")

        return work

    def snntorchs() -> Callable[[], Score]:
        torch.manual_seed(recipe.seed)
        model = Standardized(recipe.learner(data).model)
        optimizer = torch.optim.Adam(model.parameters(), lr=LR, fused=True)

        def step(batch: dict[str, Any]) -> None:
            loss = F.cross_entropy(model(batch["image"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        return learning(model, step)

    def engrams() -> Callable[[], Score]:
        torch.manual_seed(recipe.seed)
        learner = recipe.learner(data)
        return learning(learner.model, learner.step)

    return {"snnTorch": snntorchs, "engram": engrams}
