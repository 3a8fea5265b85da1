"""Boltzmann machines on binarised pictures, alone and stacked: learnt by contrastive divergence, without a loss."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from engram import data as datasets
from engram.core.errors import EngramError
from engram.core.learner import Learner
from engram.core.registry import Recipe, Request, Sample, must_be_item, recipe
from engram.core.seeding import generator
from engram.data.batches import Batches
from engram.data.dataset import Data, Split
from engram.figures import pictures
from engram.figures.figure import Figure
from engram.figures.generation import strip
from engram.layers.bernoulli import draw
from engram.models import rbm_likelihood as likelihood
from engram.models.dbn import DBN, Greedy
from engram.models.rbm import RBM, Contrast, ContrastiveDivergence

FILL_ROUNDS = 200
FILM = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500)
LEVELS = {"valid": 1000, "test": 10_000}
"""of annealing, for the likelihood of machines that are too large to be gone through"""
DOUBT = 100.0
"""nats: an interval of log Z that is wider says nothing"""
DREAM_ROUNDS = 1000
MEASURED = 10_000


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the machine may be asked."""

    show: Literal["dreams", "filled"] = "dreams"
    """pictures from nothing, or test pictures of which the lower half is filled in"""


@dataclass(frozen=True, kw_only=True)
class Boltzmann(Recipe):
    """Binary units learn what pictures are like by contrastive divergence, and dream new ones."""

    kind: ClassVar[str] = "memory"

    data: str = "mnist"
    """data set of pictures (`engram data list`), or a path: folder of pictures, .npz, .npy"""
    steps: int = 12_000
    every: int = 1200
    batch: int = 100
    """pictures in a batch"""
    model: Any
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

    def batches(self, data: Data) -> Batches:
        def prepare(batch: dict[str, Any], generator: torch.Generator) -> dict[str, Any]:
            return {"visible": drawn(batch["image"], generator)}

        return Batches(Split({"image": data.train["image"]}), self.batch, generator(self.seed, "batches"), prepare)

    def some(self, data: Data, split: str, count: int) -> Tensor:
        """The first pictures of a split, drawn once for all."""
        return drawn(data[split]["image"][:count], generator(self.seed, split))

    def probe(self, model: nn.Module, data: Data, item: int) -> str:
        must_be_item(item, len(data.test))
        model(self.some(data, "test", item + 1)[item:])
        return f"test picture {item}"

    def pictures(self, v_NV: Tensor, data: Data) -> Tensor:
        """Rows of units as pictures."""
        return v_NV.view(-1, *data.train["image"].shape[1:])

    def dreams(self, model: Any, data: Data, count: int, random: torch.Generator) -> Tensor:
        return self.pictures(model.sample(count, DREAM_ROUNDS, random), data)

    def shown(self, model: Any, data: Data) -> Iterator[Figure]:
        """Dreams and reconstructions."""
        caption = f"Each after {DREAM_ROUNDS} rounds of Gibbs sampling from noise."
        dreams = self.dreams(model, data, 64, generator(self.seed, "dreams"))
        yield Figure("Samples", caption, pictures.sheet(dreams, 16))
        v_NV = self.some(data, "test", 16)
        both = self.pictures(torch.cat([v_NV, model(v_NV)]), data)
        yield Figure("Reconstructions", "Test pictures, and what comes back of them.", pictures.sheet(both, 16))

    def sample(self, learner: Learner, data: Data, request: Request) -> Sample:
        dreams = self.dreams(learner.model, data, request.count, request.generator)
        text = f"{request.count} pictures, each after {DREAM_ROUNDS} rounds of Gibbs sampling from noise"
        return Sample({"image": dreams}, text, pictures.grid(dreams))


@recipe
@dataclass(frozen=True, kw_only=True)
class RBMRecipe(Boltzmann):
    """Two layers of binary units learn what pictures are like by contrastive divergence, and dream new ones."""

    name: ClassVar[str] = "rbm"
    title: ClassVar[str] = "Restricted Boltzmann machine"
    notes: ClassVar[str] = "003 §23"
    Model: ClassVar[type[nn.Module]] = RBM
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"data": "digits", "hidden": 16, "steps": 20, "every": 10},
        "exact": {"hidden": 20},
        "full": {"steps": 60_000, "every": 6000},
    }
    best: ClassVar[tuple[str, str]] = ("valid_log_likelihood", "max")
    Ask: ClassVar[type] = Wish

    model: RBM.Config = field(default_factory=RBM.Config)

    def learner(self, data: Data) -> ContrastiveDivergence:
        some_NV = self.some(data, "train", 10_000)
        rbm = RBM(replace(self.model, visible=some_NV.shape[1]))
        rbm.initialise(some_NV.mean(0))
        batch = min(self.batch, len(data.train))
        return ContrastiveDivergence(rbm, self.contrast, batch, self.steps, generator(self.seed, "gibbs"))

    def evaluate(self, learner: Learner, data: Data, split: str) -> dict[str, float]:
        """Squared error of one round; the energy gap: how much deeper data lies than data with pixels flipped; and
        log P(data), with the width of the interval in which log Z lies."""
        rbm = machine(learner)
        v_NV = self.some(data, split, MEASURED)
        flipped = torch.rand(v_NV.shape, generator=generator(self.seed, "flip")) < 0.1
        gap = rbm.free_energy(torch.where(flipped, 1 - v_NV, v_NV)) - rbm.free_energy(v_NV)
        trained = self.some(data, "train", len(v_NV))
        overfit = rbm.free_energy(v_NV).mean() - rbm.free_energy(trained).mean()
        random = generator(self.seed, "likelihood")
        z = likelihood.log_z(rbm, random, levels=LEVELS[split], mean_V=trained.mean(0))
        return {
            "reconstruction": (v_NV - rbm(v_NV)).square().mean().item(),
            "energy_gap": gap.mean().item(),
            "free_energy_difference": overfit.item(),
            "pseudo_likelihood": likelihood.pseudo_likelihood(rbm, v_NV, random).mean().item(),
            "log_likelihood": likelihood.log_likelihood(rbm, v_NV, z).mean().item(),
            "log_z_doubt": min(z.high - z.low, DOUBT),
        }

    def figures(self, learner: Learner, data: Data) -> Iterator[Figure]:
        rbm = machine(learner)
        yield pictures.filters(rbm.W.T, tuple(data.train["image"].shape[1:]))
        yield from self.shown(rbm, data)
        yield self.film(rbm, data)
        caption = f"Test pictures, their upper half, and three ways to go on, each after {FILL_ROUNDS} rounds."
        yield Figure("Clamped and filled", caption, pictures.sheet(self.filled(rbm, data, 16), 16))

    def film(self, rbm: RBM, data: Data) -> Figure:
        """Chains as they go, from noise."""
        random = generator(self.seed, "film")
        v, frames, before = draw(torch.full((4, rbm.config.visible), 0.5), random), [], 0
        for rounds in FILM:
            v = rbm.gibbs(v, rounds - before, random)
            frames.append(rbm.visible(rbm.hidden(v)) if rounds else v)
            before = rounds
        caption = "Gibbs sampling from noise: what four chains are like after so many rounds."
        return strip(
            self.pictures(torch.stack(frames, 1).flatten(0, 1), data).unflatten(0, (4, -1)),
            [str(rounds) for rounds in FILM],
            "Gibbs film",
            caption,
        )

    def filled(self, rbm: RBM, data: Data, count: int) -> Tensor:
        """Pictures, their upper half, and three ways to fill in the lower one."""
        shape, random = tuple(data.train["image"].shape[1:]), generator(self.seed, "fill")
        v_NV = self.some(data, "test", count)
        known = (torch.arange(shape[1]) < shape[1] // 2)[:, None].expand(shape).reshape(-1).expand_as(v_NV)
        ways = [rbm.fill(v_NV, known, FILL_ROUNDS, random) for _ in range(3)]
        return torch.cat([v_NV, torch.where(known, v_NV, 0.5), *ways]).view(-1, *shape)

    def sample(self, learner: Learner, data: Data, request: Request) -> Sample:
        if request.ask is None or request.ask.show == "dreams":
            return super().sample(learner, data, request)
        count = min(request.count, len(data.test))
        image = self.filled(machine(learner), data, count)
        return Sample({"image": image}, f"{count} test pictures, lower half filled in", pictures.grid(image, count))


@recipe
@dataclass(frozen=True, kw_only=True)
class DBNRecipe(Boltzmann):
    """Boltzmann machines on top of each other, each of which learns what the one below hides."""

    name: ClassVar[str] = "dbn"
    title: ClassVar[str] = "Deep belief network"
    notes: ClassVar[str] = "003 §23"
    Model: ClassVar[type[nn.Module]] = DBN
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"data": "digits", "hidden": (16, 8), "steps": 20, "every": 10},
    }
    best: ClassVar[tuple[str, str]] = ("valid_reconstruction", "min")

    steps: int = 12_000
    every: int = 1500
    model: DBN.Config = field(default_factory=DBN.Config)

    def learner(self, data: Data) -> Greedy:
        some_NV = self.some(data, "train", 10_000)
        model = DBN(replace(self.model, visible=some_NV.shape[1]))
        model.initialise(some_NV.mean(0))
        batch = min(self.batch, len(data.train))
        return Greedy(model, self.contrast, batch, self.steps, generator(self.seed, "gibbs"))

    def evaluate(self, learner: Learner, data: Data, split: str) -> dict[str, float]:
        """Squared error after the way up to the top and down again, and up to each machine."""
        model: Any = learner.model
        v_NV = self.some(data, split, MEASURED)
        errors = {
            f"reconstruction_{level}": (v_NV - model.down(model.up(v_NV, level), level)).square().mean().item()
            for level in range(1, len(model.machines) + 1)
        }
        return {"reconstruction": errors[f"reconstruction_{len(model.machines)}"], **errors}

    def figures(self, learner: Learner, data: Data) -> Iterator[Figure]:
        model: Any = learner.model
        shape = tuple(data.train["image"].shape[1:])
        yield pictures.filters(model.machines[0].W.T, shape)
        for level in range(2, len(model.machines) + 1):
            one_hot = torch.eye(self.model.hidden[level - 1])[:64] * 4  # a unit that is strongly on
            seen = model.down(one_hot, level) - model.down(torch.zeros_like(one_hot), level)
            yield replace(pictures.filters(seen, shape), title=f"What units of machine {level} add to a picture")
        yield from self.shown(model, data)


def machine(learner: Learner) -> RBM:
    assert isinstance(learner.model, RBM)
    return learner.model


def drawn(image_NCHW: Tensor, generator: torch.Generator) -> Tensor:
    """Pictures as rows of zeros and ones: a pixel is on with the probability that its brightness says."""
    return draw(image_NCHW.flatten(1).float().div_(255), generator)
