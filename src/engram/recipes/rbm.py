"""The restricted Boltzmann machine on binarised pictures: learnt by contrastive divergence, without a loss."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from engram import data as datasets
from engram.core.errors import EngramError
from engram.core.learner import Learner
from engram.core.registry import Recipe, Request, Sample, recipe
from engram.core.seeding import generator
from engram.data.batches import Batches
from engram.data.dataset import Data, Split
from engram.figures import pictures
from engram.figures.figure import Figure
from engram.models.rbm import RBM, Contrast, ContrastiveDivergence

DREAM_ROUNDS = 1000


@recipe
@dataclass(frozen=True, kw_only=True)
class RBMRecipe(Recipe):
    """Two layers of binary units learn what pictures are like by contrastive divergence, and dream new ones."""

    name: ClassVar[str] = "rbm"
    title: ClassVar[str] = "Restricted Boltzmann machine"
    kind: ClassVar[str] = "memory"
    notes: ClassVar[str] = "003 §23"
    Model: ClassVar[type[nn.Module]] = RBM
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"data": "digits", "hidden": 16, "steps": 20, "every": 10},
    }
    best: ClassVar[tuple[str, str]] = ("valid_reconstruction", "min")

    data: str = "mnist"
    """data set of pictures (`engram data list`), or a path: folder of pictures, .npz, .npy"""
    steps: int = 8000
    every: int = 800
    batch: int = 100
    """pictures in a batch"""
    model: RBM.Config = field(default_factory=RBM.Config)
    """the machine"""
    contrast: Contrast = field(default_factory=Contrast)
    """how it learns"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch < 1:
            raise EngramError(f"batch must be at least 1, not {self.batch}.")

    @property
    def per_step(self) -> float:
        return self.batch

    def load(self) -> Data:
        loaded = datasets.load(self.data)
        if "image" not in loaded.train:
            raise EngramError(f"{self.name} learns from pictures, and {self.data} has none.")
        return loaded

    def learner(self, data: Data) -> ContrastiveDivergence:
        some_NV = binary(data.train["image"][:10_000])
        rbm = RBM(replace(self.model, visible=some_NV.shape[1]))
        rbm.initialise(some_NV.mean(0))
        batch = min(self.batch, len(data.train))
        return ContrastiveDivergence(rbm, self.contrast, batch, self.steps, generator(self.seed, "gibbs"))

    def batches(self, data: Data) -> Batches:
        def prepare(batch: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
            return {"visible": binary(batch["image"])}

        return Batches(Split({"image": data.train["image"]}), self.batch, generator(self.seed, "batches"), prepare)

    def evaluate(self, learner: Learner, data: Data, split: str) -> dict[str, float]:
        """Squared error of one round, and the energy gap: how much deeper data lies than data with pixels flipped."""
        rbm = machine(learner)
        v_NV = binary(data[split]["image"][:5000])
        flipped = torch.rand(v_NV.shape, generator=generator(self.seed, "flip")) < 0.1
        gap = rbm.free_energy(torch.where(flipped, 1 - v_NV, v_NV)) - rbm.free_energy(v_NV)
        trained = binary(data.train["image"][: len(v_NV)])
        overfit = rbm.free_energy(v_NV).mean() - rbm.free_energy(trained).mean()
        return {
            "reconstruction": (v_NV - rbm(v_NV)).square().mean().item(),
            "energy_gap": gap.mean().item(),
            "free_energy_difference": overfit.item(),
        }

    def figures(self, learner: Learner, data: Data) -> Iterator[Figure]:
        rbm, shape = machine(learner), tuple(data.train["image"].shape[1:])
        yield pictures.filters(rbm.W.T, shape)
        dreams = rbm.sample(64, DREAM_ROUNDS, generator(self.seed, "dreams")).view(-1, *shape)
        caption = f"Each after {DREAM_ROUNDS} rounds of Gibbs sampling from noise."
        yield Figure("Samples", caption, pictures.sheet(dreams, 16))
        v_NV = binary(data.test["image"][:16])
        both = torch.cat([v_NV, rbm(v_NV)]).view(-1, *shape)
        yield Figure("Reconstructions", "Test pictures, and what one round makes of them.", pictures.sheet(both, 16))

    def probe(self, model: nn.Module, data: Data, item: int) -> str:
        if not 0 <= item < len(data.test):
            raise EngramError(f"item must be from 0 to {len(data.test) - 1}, the size of the test split, not {item}.")
        model(binary(data.test["image"][item : item + 1]))
        return f"test picture {item}"

    def sample(self, learner: Learner, data: Data, request: Request) -> Sample:
        dreams = machine(learner).sample(request.count, DREAM_ROUNDS, request.generator)
        dreams = dreams.view(-1, *data.train["image"].shape[1:])
        text = f"{request.count} pictures, each after {DREAM_ROUNDS} rounds of Gibbs sampling from noise"
        return Sample({"image": dreams}, text, pictures.grid(dreams))


def machine(learner: Learner) -> RBM:
    assert isinstance(learner.model, RBM)
    return learner.model


def binary(image_NCHW: Tensor) -> Tensor:
    """Pictures as rows of zeros and ones: a pixel is on if it is brighter than the middle."""
    return (image_NCHW.flatten(1) > 127).float()
