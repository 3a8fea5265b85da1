"""Overhead of the training loop compared with hand-written PyTorch loops."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from engram import data
from engram.cli.bench import Contestant
from engram.core.registry import get_recipe
from engram.foundations.mlp.model import MLP
from engram.training.run import Run
from engram.training.train import train

WORK = "1000 steps of an MLP 784–128–10 on mnist, batch 256, AdamW, then validation and test"
UNIT = "steps/s"
STEPS, BATCH = 1000, 256


def contestants() -> dict[str, Contestant]:
    mnist = data.load("mnist")
    image, label = mnist.train["image"], mnist.train["label"]

    def fresh() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = MLP(MLP.Config(mean=(0.13,), std=(0.31,))).train()
        return model, torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def learn(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> None:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def evaluate(model: nn.Module) -> None:
        model.eval()
        with torch.no_grad():
            for x in (mnist.valid["image"], mnist.test["image"]):
                for part in x.split(500):
                    model(part.float() / 255)

    def bare() -> Callable[[], float]:
        model, optimizer = fresh()

        def work() -> float:
            for step in range(STEPS):
                place = step * BATCH % (len(image) - len(image) % BATCH)
                if place == 0:
                    order = torch.randperm(len(image))
                index = order[place : place + BATCH]
                learn(model, optimizer, image[index].float() / 255, label[index])
            evaluate(model)
            return STEPS

        return work

    def loader() -> Callable[[], float]:
        model, optimizer = fresh()
        batches = DataLoader(TensorDataset(image, label), BATCH, shuffle=True, drop_last=True)

        def work() -> float:
            done = 0
            while done < STEPS:
                for x, y in batches:
                    learn(model, optimizer, x.float() / 255, y)
                    done += 1
                    if done == STEPS:
                        break
            evaluate(model)
            return STEPS

        return work

    def engram() -> Callable[[], float]:
        folder = tempfile.TemporaryDirectory()
        run = Run.start(
            get_recipe("mlp").from_preset("small", steps=STEPS, eval_every=STEPS), Path(folder.name) / "run"
        )

        def work() -> float:
            train(run)
            run.folder.release()
            folder.cleanup()
            return STEPS

        return work

    return {"bare PyTorch loop": bare, "DataLoader loop": loader, "engram run mlp": engram}
