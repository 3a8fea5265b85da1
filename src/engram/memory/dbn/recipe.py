"""Recipe of a deep belief network (DBN) on binarized images or rows of a table."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import nn

from engram.core.learner import Learner
from engram.core.registry import register
from engram.core.seeding import generator
from engram.data.dataset import Data, sample_column
from engram.memory.dbn.learner import GreedyLayerwise
from engram.memory.dbn.model import DBN
from engram.memory.rbm.base import EVALUATED, BoltzmannRecipe
from engram.plots import images
from engram.plots.figure import Figure


@register
@dataclass(frozen=True, kw_only=True)
class DBNRecipe(BoltzmannRecipe[DBN]):
    """Stack of restricted Boltzmann machines, trained greedily layer by layer."""

    name: ClassVar[str] = "dbn"
    title: ClassVar[str] = "Deep belief network"
    Model: ClassVar[type[nn.Module]] = DBN
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"data": "digits", "hidden": (16, 8), "steps": 20, "eval_every": 10},
    }
    best: ClassVar[tuple[str, str]] = ("valid_reconstruction", "min")

    steps: int = 12_000
    eval_every: int = 1500
    model: DBN.Config = field(default_factory=DBN.Config)

    def learner(self, data: Data) -> GreedyLayerwise:
        v_NV = self.binarized(data, "train", 10_000)
        model = DBN(replace(self.model, visible=v_NV.shape[1]))
        model.initialize(v_NV.mean(0))
        batch = min(self.batch, len(data.train))
        return GreedyLayerwise(model, self.contrastive_divergence, batch, self.steps, generator(self.seed, "gibbs"))

    def evaluate(self, learner: Learner[DBN], data: Data, split: str) -> dict[str, float]:
        """Return the mean squared reconstruction error from the top layer and from every layer."""
        model = learner.model
        v_NV = self.binarized(data, split, EVALUATED)
        errors = {
            f"reconstruction_{level}": (v_NV - model.down(model.up(v_NV, level), level)).square().mean().item()
            for level in range(1, len(model.rbms) + 1)
        }
        return {"reconstruction": errors[f"reconstruction_{len(model.rbms)}"], **errors}

    def figures(self, learner: Learner[DBN], data: Data) -> Iterator[Figure]:
        model = learner.model
        if sample_column(data) == "point":
            yield from self.row_figures(model, model.layers[0].W, data)
            return
        shape = tuple(data.train["image"].shape[1:])
        yield images.filters(model.layers[0].W.T, shape)
        for level in range(2, len(model.rbms) + 1):
            one_hot = torch.eye(self.model.hidden[level - 1])[:64] * 4
            features = model.down(one_hot, level) - model.down(torch.zeros_like(one_hot), level)
            yield replace(images.filters(features, shape), title=f"Features of layer {level}")
        yield from self.sample_figures(model, data)
