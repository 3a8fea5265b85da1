"""Recipe of a restricted Boltzmann machine (RBM) on binarized images or rows of a table."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from engram.core.errors import EngramError
from engram.core.learner import Learner
from engram.core.recipe import Sample, SampleArgs, SampleRequest
from engram.core.registry import register
from engram.core.seeding import generator
from engram.data.dataset import Data, sample_column
from engram.data.progress import announce
from engram.memory.rbm import likelihood, plots
from engram.memory.rbm.base import EVALUATED, BoltzmannRecipe
from engram.memory.rbm.learner import ContrastiveDivergence
from engram.memory.rbm.model import RBM
from engram.plots import images
from engram.plots.figure import Figure

AIS_TEMPERATURES = {"valid": 1000, "test": 10_000}
"""intermediate distributions of annealed importance sampling, by split"""
MAX_INTERVAL = 100.0
"""nats: width at which a confidence interval of log Z is cut off"""


@dataclass(frozen=True, kw_only=True)
class RBMSampleArgs(SampleArgs):
    """Flags of `engram sample` for an RBM."""

    show: Literal["samples", "inpainting"] = "samples"
    """samples: new images from noise; inpainting: test images whose lower half is sampled"""


@register
@dataclass(frozen=True, kw_only=True)
class RBMRecipe(BoltzmannRecipe[RBM]):
    """Generative model of binary units, trained by contrastive divergence, not by a loss."""

    name: ClassVar[str] = "rbm"
    title: ClassVar[str] = "Restricted Boltzmann machine"
    Model: ClassVar[type[nn.Module]] = RBM
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"data": "digits", "hidden": 16, "steps": 20, "eval_every": 10},
        "exact": {"hidden": 20},
        "full": {"steps": 60_000, "eval_every": 6000},
    }
    best: ClassVar[tuple[str, str]] = ("valid_log_likelihood", "max")
    SampleArgs: ClassVar[type] = RBMSampleArgs

    model: RBM.Config = field(default_factory=RBM.Config)

    def learner(self, data: Data) -> ContrastiveDivergence:
        v_NV = self.binarized(data, "train", 10_000)
        rbm = RBM(replace(self.model, visible=v_NV.shape[1]))
        rbm.initialize(v_NV.mean(0))
        batch = min(self.batch, len(data.train))
        random = generator(self.seed, "gibbs")
        return ContrastiveDivergence(rbm, self.contrastive_divergence, batch, self.steps, random)

    def evaluate(self, learner: Learner[RBM], data: Data, split: str) -> dict[str, float]:
        """Return reconstruction error, free energy gaps, pseudo-likelihood, log-likelihood and its confidence.

        `energy_gap` is the mean rise of the free energy if 10% of the pixels flip, `free_energy_difference` how much
        higher it is than on training data (overfitting), `log_z_interval` the width of the interval of log Z in nats.
        """
        rbm = learner.model
        v_NV = self.binarized(data, split, EVALUATED)
        flipped = torch.rand(v_NV.shape, generator=generator(self.seed, "flip")) < 0.1
        gap = rbm.free_energy(torch.where(flipped, 1 - v_NV, v_NV)) - rbm.free_energy(v_NV)
        train_NV = self.binarized(data, "train", len(v_NV))
        overfitting = rbm.free_energy(v_NV).mean() - rbm.free_energy(train_NV).mean()
        random = generator(self.seed, "likelihood")
        temperatures = AIS_TEMPERATURES[split]
        if split == "test" and not likelihood.is_enumerable(rbm):
            announce(f"estimating log Z on the way through {temperatures:,} temperatures, which may take a minute")
        z = likelihood.log_z(rbm, random, temperatures=temperatures, mean_V=train_NV.mean(0))
        return {
            "reconstruction": (v_NV - rbm(v_NV)).square().mean().item(),
            "energy_gap": gap.mean().item(),
            "free_energy_difference": overfitting.item(),
            "pseudo_likelihood": likelihood.pseudo_likelihood(rbm, v_NV, random).mean().item(),
            "log_likelihood": likelihood.log_likelihood(rbm, v_NV, z).mean().item(),
            "log_z_interval": min(z.high - z.low, MAX_INTERVAL),
        }

    def figures(self, learner: Learner[RBM], data: Data) -> Iterator[Figure]:
        rbm = learner.model
        if sample_column(data) == "point":
            yield from self.row_figures(rbm, rbm.W, data)
            return
        shape = tuple(data.train["image"].shape[1:])
        yield images.filters(rbm.W.T, shape)
        yield from self.sample_figures(rbm, data)
        yield plots.gibbs_chain(rbm, shape, generator(self.seed, "film"))
        yield plots.inpainting(rbm, self.binarized(data, "test", 16), shape, generator(self.seed, "fill"))

    def sample(self, learner: Learner[RBM], data: Data, request: SampleRequest) -> Sample:
        """Sample images, or the lower half of test images."""
        if request.args is None or request.args.show == "samples":
            return super().sample(learner, data, request)
        if sample_column(data) != "image":
            raise EngramError("Only images are inpainted; this model has learned rows of a table.")
        count, shape = min(request.count, len(data.test)), tuple(data.train["image"].shape[1:])
        v_NV = self.binarized(data, "test", count)
        image = plots.inpaint_lower_half(learner.model, v_NV, shape, generator(self.seed, "fill"))
        return Sample({"image": image}, f"{count} test images, lower half sampled", images.grid(image, count))
