"""Models that make things from codes: autoencoder, VAE and GAN."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.learner import Batch, Descent, Gradient, Learner, Metrics
from engram.core.registry import Request, Sample, recipe
from engram.core.seeding import generator
from engram.data.dataset import Data
from engram.figures import generation as views
from engram.figures.figure import Figure
from engram.figures.pictures import sheet
from engram.layers.bernoulli import draw
from engram.models.autoencoder import Autoencoder
from engram.models.gan import GAN, Adversarial, Contest
from engram.models.vae import VAE
from engram.recipes.generative import AT_ONCE, Generative, between, column, sample_of

TINY = {"data": "digits", "hidden": (32,), "code": 4, "steps": 20, "every": 10, "measured": 100, "channels": ()}
POINTS = {"data": "points", "channels": (), "hidden": (128, 128), "batch": 256}
STAGES = (32, 64)
LIKELIHOOD_ITEMS = {"valid": 500, "test": 2000}
WALK = 10


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a model of codes may be asked."""

    show: Literal["samples", "reconstruction", "interpolation", "plane"] = "samples"
    """new things; test items and what their codes give back; the way from one thing to another; a walk over a plane"""


@dataclass(frozen=True, kw_only=True)
class Coded(Generative):
    """Things come from codes, and where there is an encoder, codes from things."""

    Ask: ClassVar[type] = Wish

    def make(self, model: Any, count: int, generator: torch.Generator) -> Tensor:
        return model.sample(count, generator)

    def some_codes(self, model: Any, data: Data, count: int) -> Tensor:
        """Codes of test items, or where there is no encoder, codes as they are drawn."""
        if not hasattr(model, "encode"):
            return model.codes(count, generator(self.seed, "codes"))
        return encoded(model, self.seen(data, "test", count))

    def own_figures(self, model: Any, data: Data) -> Iterator[Figure]:
        z_NZ = self.some_codes(model, data, 2000)
        if hasattr(model, "encode"):
            yield from self.reconstructions(model, data)
            labels = data.test["label"][: len(z_NZ)] if "label" in data.test else None
            if z_NZ.shape[1] > 1:
                yield views.code_map(z_NZ, labels, data.classes)
        if column(data) == "image":
            yield views.plane(model.decode, z_NZ)
            way = self.ways(model, data, 4, generator(self.seed, "ways"))
            caption = "From left to right, codes on the way from one to another: does every step look like something?"
            yield Figure("Interpolation", caption, sheet(way.flatten(0, 1), WALK))

    def reconstructions(self, model: Any, data: Data) -> Iterator[Figure]:
        x = self.seen(data, "test", 16 if column(data) == "image" else 1000)
        again = model(x)
        if column(data) == "image":
            caption = "Test pictures, and what is left of them after they have been a code."
            yield Figure("Reconstructions", caption, sheet(torch.cat([x, again]), 16))
        else:
            caption = "Test points, and where they come back to."
            yield Figure("Reconstructions", caption, views.scatter({"real": x, "reconstructed": again}))

    def ways(self, model: Any, data: Data, rows: int, random: torch.Generator) -> Tensor:
        """Things on the way between two codes, rows × WALK."""
        if hasattr(model, "encode"):
            index = torch.randint(len(data.test), (2 * rows,), generator=random)
            z_NZ = encoded(model, self.seen(data, "test", len(data.test))[index])
        else:
            z_NZ = model.codes(2 * rows, random)
        z = torch.cat([between(a, b, WALK) for a, b in zip(z_NZ[:rows], z_NZ[rows:], strict=True)])
        return model.decode(z).unflatten(0, (rows, WALK))

    def sample(self, learner: Learner, data: Data, request: Request) -> Sample:
        model: Any = learner.model
        count, wish = request.count, request.ask or Wish()
        if wish.show == "samples":
            x = torch.cat(
                [self.make(model, min(AT_ONCE, count - i), request.generator) for i in range(0, count, AT_ONCE)]
            )
            return sample_of(x, f"{count} new ones")
        if wish.show == "reconstruction":
            if not hasattr(model, "encode"):
                raise EngramError(f"{self.name} has no encoder, so that nothing can be reconstructed.")
            x = self.seen(data, "test", count)
            again = model(x)
            columns = min(len(x), 16)
            pairs = [torch.cat(pair) for pair in zip(x.split(columns), again.split(columns), strict=True)]
            return sample_of(
                torch.cat(pairs), f"{len(x)} of the test split, each row above what its codes give back", columns
            )
        if wish.show == "interpolation":
            rows = max(1, count // WALK)
            x = self.ways(model, data, rows, request.generator).flatten(0, 1)
            return sample_of(x, f"{rows} ways from one to another, in {WALK} steps each", WALK)
        if column(data) != "image":
            raise EngramError("A plane of codes is drawn for pictures: points have --show samples.")
        side = max(2, round(count**0.5))
        x = views.walk(model.decode, self.some_codes(model, data, 2000), side)
        return sample_of(x, f"{side} × {side} places of the plane in which codes differ most", side)


def encoded(model: Any, x: Tensor) -> Tensor:
    return torch.cat([model.encode(part) for part in x.split(AT_ONCE)])


# ---------------------------------------------------------------------- autoencoder


@recipe
@dataclass(frozen=True, kw_only=True)
class AutoencoderRecipe(Coded):
    """A thing goes through a narrow code and must come out as it was."""

    name: ClassVar[str] = "autoencoder"
    title: ClassVar[str] = "Autoencoder"
    notes: ClassVar[str] = "003 §19"
    Model: ClassVar[type[nn.Module]] = Autoencoder
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": TINY,
        "points": POINTS | {"code": 1, "steps": 2000, "every": 500},
        "denoising": {"noise": 0.6},
        "full": {"channels": STAGES, "steps": 3000, "every": 1000},
    }

    steps: int = 2000
    every: int = 500
    model: Autoencoder.Config = field(default_factory=Autoencoder.Config)
    descent: Descent = field(default_factory=lambda: Descent(lr=1e-3, weight_decay=1e-4))
    """how to go downhill"""

    def learner(self, data: Data) -> Gradient:
        def loss(model: Any, batch: Batch) -> tuple[Tensor, Metrics]:
            return model.loss(batch["x"], batch["noise"]), {}

        return Gradient(Autoencoder(replace(self.model, **self.space(data))), loss, self.descent, self.steps)

    def chance(self, x: Tensor, batch: Mapping[str, Any], generator: torch.Generator) -> dict[str, Any]:
        return {"noise": torch.randn(x.shape, generator=generator) if self.model.noise else torch.zeros_like(x)}

    def own_marks(self, model: Any, data: Data, split: str) -> dict[str, float]:
        x = self.seen(data, split, 5000)
        return {"reconstruction": reconstruction(model, x)}

    def reconstructions(self, model: Any, data: Data) -> Iterator[Figure]:
        yield from super().reconstructions(model, data)
        if self.model.noise and column(data) == "image":
            x = self.seen(data, "test", 16)
            e = torch.randn(x.shape, generator=generator(self.seed, "corrupt"))
            noisy = (x + self.model.noise * model.config.scale * e).clamp(0, 1)
            caption = "Test pictures with noise, and what is made of them."
            yield Figure("Denoising", caption, sheet(torch.cat([noisy, model(noisy)]), 16))


def reconstruction(model: Any, x: Tensor) -> float:
    """Mean squared error of a pixel or coordinate after it has been part of a code."""
    errors = [(model(part) - part).square().flatten(1).mean(1) for part in x.split(AT_ONCE)]
    return torch.cat(errors).mean().item()


# ---------------------------------------------------------------------- variational autoencoder


@recipe
@dataclass(frozen=True, kw_only=True)
class VAERecipe(Coded):
    """An autoencoder whose codes are drawn and kept near a Gaussian, so that any code stands for something."""

    name: ClassVar[str] = "vae"
    title: ClassVar[str] = "Variational autoencoder"
    notes: ClassVar[str] = "003 §21"
    Model: ClassVar[type[nn.Module]] = VAE
    best: ClassVar[tuple[str, str]] = ("valid_loss", "min")
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": TINY | {"draws": 5},
        "points": POINTS | {"code": 2, "steps": 4000, "every": 1000, "deviation": 0.1},
        "plane": {"code": 2},
        "full": {"hidden": (512, 512), "code": 40, "steps": 20_000, "every": 5000, "draws": 500},
    }

    steps: int = 3000
    every: int = 750
    model: VAE.Config = field(default_factory=VAE.Config)
    beta: float = 1.0
    """how much codes are pulled towards the Gaussian; above 1 they come apart more, and reconstruct less"""
    binarise: bool = True
    """let each pixel be white with the probability that its brightness is, drawn anew whenever it is seen"""
    draws: int = 100
    """draws of a code for the bound of the likelihood in the end; a tenth of them on the way"""
    descent: Descent = field(default_factory=lambda: Descent(lr=1e-3, weight_decay=0.0))
    """how to go downhill"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.beta >= 0:
            raise EngramError(f"beta must not be negative, and is {self.beta}.")
        if self.draws < 1:
            raise EngramError(f"draws must be at least 1, not {self.draws}.")

    def learner(self, data: Data) -> Gradient:
        def loss(model: Any, batch: Batch) -> tuple[Tensor, Metrics]:
            total, first, second = model.loss(batch["x"], batch["noise"], self.beta)
            return total, {"nats_lost": first.detach(), "kl": second.detach()}

        return Gradient(VAE(replace(self.model, **self.space(data))), loss, self.descent, self.steps)

    def chance(self, x: Tensor, batch: Mapping[str, Any], generator: torch.Generator) -> dict[str, Any]:
        noise = torch.randn(len(x), self.model.code, generator=generator)
        return {"x": self.as_learnt(x, generator), "noise": noise}

    def as_learnt(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Pixels black or white, where they are to be."""
        return draw(x, generator) if self.binarise and x.ndim == 4 and self.model.pixels == "bernoulli" else x

    def own_marks(self, model: Any, data: Data, split: str) -> dict[str, float]:
        """The loss, and the importance-weighted bound of log p(x) in nats."""
        random = generator(self.seed, "bound")
        x = self.as_learnt(self.seen(data, split, LIKELIHOOD_ITEMS[split]), random)
        e_NZ = torch.randn(len(x), self.model.code, generator=random)
        total, _, divergence = model.loss(x, e_NZ, self.beta)
        draws = self.draws if split == "test" else max(1, self.draws // 10)
        bound = torch.cat([model.bound(part, draws, random) for part in x.split(20)])
        return {
            "loss": total.item(),
            "kl": divergence.item(),
            "log_likelihood": bound.mean().item(),
            "reconstruction": reconstruction(model, self.seen(data, split, 5000)),
        }


# ---------------------------------------------------------------------- generative adversarial network


@recipe
@dataclass(frozen=True, kw_only=True)
class GANRecipe(Coded):
    """One network makes things, another tells them from real ones, and each learns from the other."""

    name: ClassVar[str] = "gan"
    title: ClassVar[str] = "Generative adversarial network"
    notes: ClassVar[str] = "003 §30"
    Model: ClassVar[type[nn.Module]] = GAN
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": TINY,
        "points": POINTS | {"code": 2, "steps": 4000, "every": 1000, "lr": 1e-3, "judge_lr": 1e-3},
        "full": {"channels": (48, 96), "steps": 8000, "every": 2000},
    }

    steps: int = 2500
    every: int = 500
    batch: int = 64
    model: GAN.Config = field(default_factory=lambda: GAN.Config(channels=STAGES, hidden=()))
    contest: Contest = field(default_factory=Contest)
    """how the players learn"""

    def learner(self, data: Data) -> Adversarial:
        norm = self.model.judge_norm and self.contest.rules != "penalty"
        return Adversarial(GAN(replace(self.model, judge_norm=norm, **self.space(data))), self.contest, self.steps)

    def chance(self, x: Tensor, batch: Mapping[str, Any], generator: torch.Generator) -> dict[str, Any]:
        return {"codes": torch.randn(len(x), self.contest.rounds + 1, self.model.code, generator=generator)}

    def own_marks(self, model: Any, data: Data, split: str) -> dict[str, float]:
        """How often the discriminator is right: half the time if it cannot tell."""
        real = torch.cat([model(part) for part in self.seen(data, split, 1000).split(AT_ONCE)])
        made = model(self.made(model, len(real), "judged"))
        return {"judge_accuracy": (((real > 0).float().mean() + (made <= 0).float().mean()) / 2).item()}

    def own_figures(self, model: Any, data: Data) -> Iterator[Figure]:
        yield from super().own_figures(model, data)
        if column(data) == "point" and data.train["point"].shape[1] == 2:
            caption = (
                "How real each place looks to the discriminator, and what is made: where it is sure that things are "
                "real, the generator is drawn to."
            )
            real, made = self.seen(data, "test", 1000), self.made(model, 1000, "field")
            yield views.field(model, real, made, "The discriminator's field", caption)
