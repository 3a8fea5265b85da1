"""Diffusion: things are drowned in noise, and a network learns the way back."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from engram.core.average import AveragedGradient
from engram.core.errors import EngramError
from engram.core.learner import Batch, Descent, Learner, Metrics
from engram.core.registry import Request, Sample, recipe
from engram.core.seeding import generator
from engram.data.dataset import Data
from engram.figures import generation as views
from engram.figures.figure import Figure
from engram.figures.pictures import sheet
from engram.models.diffusion import Diffusion
from engram.models.samplers import SamplerName
from engram.recipes.generative import AT_ONCE, Generative, column, sample_of

MOMENTS = 10
"""pictures of a film"""
CORRUPTION = 0.3
"""standard deviation of the noise that is shown taken away, where white is 1"""
BOUND_ITEMS = {"valid": 100, "test": 500}
LOSS_ITEMS = 1000


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How things are made from noise."""

    sampler: SamplerName = "second-order"
    """ancestral, as in the notes; ddim or second-order, which need few steps; langevin, by the score"""
    sampler_steps: int = 20
    """steps from noise to a thing"""
    guidance: float = 0.0
    """how much more of what makes a thing its class, where a class is asked for"""

    def __post_init__(self) -> None:
        if self.sampler_steps < 1:
            raise EngramError(f"sampler_steps must be at least 1, not {self.sampler_steps}.")
        if not self.guidance >= 0:
            raise EngramError(f"guidance must not be negative, and is {self.guidance}.")


@dataclass(frozen=True, kw_only=True)
class Wish(Sampling):
    """What a diffusion model may be asked."""

    show: Literal["samples", "path", "noising", "inpainting", "denoising"] = "samples"
    """new things; their way out of the noise; the way in; test pictures of which half is filled in; noise taken away"""
    label: int = -1
    """class to be made, by its number; -1 leaves it open"""


@recipe
@dataclass(frozen=True, kw_only=True)
class DiffusionRecipe(Generative):
    """Noise is added until nothing is left; a network that tells the noise leads back, from nothing to something."""

    name: ClassVar[str] = "diffusion"
    title: ClassVar[str] = "Diffusion"
    notes: ClassVar[str] = "003 §22"
    Model: ClassVar[type[nn.Module]] = Diffusion
    Ask: ClassVar[type] = Wish
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {
            "data": "digits", "channels": (8, 16), "embedding": 32, "steps": 20, "every": 10, "measured": 50,
            "batch": 32, "sampler_steps": 3, "heads": 2,
        },
        "points": {"data": "points", "batch": 512, "steps": 3000, "every": 1000, "lr": 2e-3},
        "full": {"steps": 3600, "every": 1800, "measured": 5000},
    }  # fmt: skip

    steps: int = 1200
    every: int = 400
    batch: int = 64
    measured: int = 2500
    model: Diffusion.Config = field(default_factory=Diffusion.Config)
    conditional: bool = False
    """teach the classes too, so that one can be asked for"""
    forget: float = 0.1
    """part of the labels that are left out while learning, so that things can be made without one (guidance)"""
    memory: float = 0.999
    """how slowly the weights that are kept follow those that learn"""
    sampling: Sampling = field(default_factory=Sampling)
    """how things are made"""
    descent: Descent = field(default_factory=lambda: Descent(lr=1e-3, weight_decay=0.01, clip=1.0, hold=0.4))
    """how to go downhill"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("forget", "memory"):
            if not 0 <= getattr(self, name) < 1:
                raise EngramError(f"{name} is a part, at least 0 and below 1, not {getattr(self, name)}.")

    def load(self) -> Data:
        loaded = super().load()
        if self.conditional and ("label" not in loaded.train or not loaded.classes):
            raise EngramError(f"{self.data} has no classes to be taught: leave out --conditional.")
        return loaded

    # ------------------------------------------------------------------ learning

    def learner(self, data: Data) -> AveragedGradient:
        classes = len(data.classes) if self.conditional else 0
        model = Diffusion(replace(self.model, classes=classes, **self.space(data)))

        def loss(model: Any, batch: Batch) -> tuple[Tensor, Metrics]:
            return model.loss(batch["x"], batch["t"], batch["noise"], batch.get("label")).mean(), {}

        return AveragedGradient(model, loss, self.descent, self.steps, self.memory)

    def chance(self, x: Tensor, batch: Mapping[str, Any], generator: torch.Generator) -> dict[str, Any]:
        """A time for each, spread evenly over the batch, and its noise."""
        evenly = (torch.arange(len(x)) + torch.rand((), generator=generator)) / len(x)
        t_B = 1 + (evenly * self.model.levels).long().clamp(max=self.model.levels - 1)
        drawn: dict[str, Any] = {"t": t_B, "noise": torch.randn(x.shape, generator=generator)}
        if self.conditional:
            left_out = torch.rand(len(x), generator=generator) < self.forget
            drawn["label"] = batch["label"].masked_fill(left_out, -1)
        return drawn

    def own_marks(self, model: Any, data: Data, split: str) -> dict[str, float]:
        """The loss at times spread evenly, and a bound of -log2 p(x) for each number of a thing."""
        assert isinstance(model, Diffusion)
        random, losses = generator(self.seed, "loss"), []
        for x in self.seen(data, split, LOSS_ITEMS).split(AT_ONCE):
            drawn = self.chance(x, {"label": torch.zeros(len(x), dtype=torch.long)}, random)
            losses.append(model.loss(x, drawn["t"], drawn["noise"]))
        x = self.seen(data, split, BOUND_ITEMS[split])
        nats = torch.cat([model.bound(part, random) for part in x.split(AT_ONCE)]).mean().item()
        return {"loss": torch.cat(losses).mean().item(), "bits": nats / model.config.numbers / 0.6931471805599453}

    def make(self, model: Any, count: int, generator: torch.Generator) -> Tensor:
        own = self.sampling
        labels = torch.arange(count) % model.config.classes if model.config.classes else None
        return model.sample(
            count, generator, sampler=own.sampler, steps=own.sampler_steps, label_B=labels, guidance=own.guidance
        )

    # ------------------------------------------------------------------ looking and asking

    def own_figures(self, model: Any, data: Data) -> Iterator[Figure]:
        assert isinstance(model, Diffusion)
        random = generator(self.seed, "film")
        yield views.strip(
            *self.drowning(model, data, random),
            "The way in",
            "Real ones under more and more noise, until none is left.",
        )
        x_t, x_0, names = self.coming(model, data, random)
        yield views.strip(x_t, names, "The way out", "From noise to things: what there is at a time, left to right.")
        yield views.strip(
            x_0, names, "What the network expects", "At each of these times, what it takes the noise for."
        )
        if column(data) == "point":
            yield from self.scores(model, data)
            return
        x = self.seen(data, "test", 10)
        filled, cleaned = self.filled(model, x, random), self.cleaned(model, x, random)
        caption = "Test pictures, their upper half, and three ways to go on from it."
        yield Figure("Inpainting", caption, sheet(filled, len(x)))
        caption = f"Test pictures, with noise of {CORRUPTION}, and without it again."
        yield Figure("Denoising", caption, sheet(cleaned, len(x)))
        if model.config.classes:
            yield self.by_class(model, data)

    def by_class(self, model: Diffusion, data: Data) -> Figure:
        """Each class with more and more guidance, from the same noise."""
        K = min(10, model.config.classes)
        rows = [
            model.sample(K, generator(self.seed, "class"), steps=20, label_B=torch.arange(K), guidance=w)
            for w in (0.0, 1.0, 3.0)
        ]
        caption = "Each class asked for, without guidance, and with guidance of 1 and 3, from the same noise."
        labels = [*[""] * 2 * K, *data.classes[:K]]
        return Figure("Classes and guidance", caption, sheet(torch.cat(rows), K, labels))

    def scores(self, model: Diffusion, data: Data) -> Iterator[Figure]:
        real = self.seen(data, "test", 1000)
        for share in (0.1, 0.4):
            t = max(1, round(share * model.config.levels))
            a, _ = model.levels.at(t)
            noisy = model.config.outside(a * model.config.inside(real))
            caption = f"The score at time {t}: from every place, the way to where things are more probable."
            yield views.arrows(lambda x, t=t: model.score(x, t), noisy, f"Score at time {t}", caption)  # type: ignore

    def drowning(self, model: Diffusion, data: Data, random: torch.Generator) -> tuple[Tensor, list[str]]:
        """Real things at times from none to all."""
        x = self.seen(data, "test", 4 if column(data) == "image" else 800)
        e = torch.randn(x.shape, generator=random)
        times = torch.linspace(0, model.config.levels, MOMENTS).round().long()
        u = [model.levels.noisy(model.config.inside(x), t.expand(len(x)), e) for t in times]
        return film(model, u), [f"t = {t}" for t in times.tolist()]

    def coming(self, model: Diffusion, data: Data, random: torch.Generator) -> tuple[Tensor, Tensor, list[str]]:
        """Moments of the way out of the noise, and what the network takes them for."""
        count = 4 if column(data) == "image" else 800
        own = self.sampling
        way = list(model.way(model.noise(count, random), random, sampler=own.sampler, steps=own.sampler_steps))
        chosen = [way[i] for i in torch.linspace(0, len(way) - 1, MOMENTS).round().long().unique().tolist()]
        x_t, x_0 = film(model, [one.x for one in chosen]), film(model, [one.x_0 for one in chosen])
        return x_t, x_0, [f"t = {one.t}" for one in chosen]

    def filled(self, model: Diffusion, x: Tensor, random: torch.Generator) -> Tensor:
        mask = (torch.arange(x.shape[2]) < x.shape[2] // 2)[:, None].expand(x.shape)
        ways = [model.fill(x, mask, random) for _ in range(3)]
        return torch.cat([x, torch.where(mask, x, 0.5), *ways])

    def cleaned(self, model: Diffusion, x: Tensor, random: torch.Generator) -> Tensor:
        noisy = x + CORRUPTION * torch.randn(x.shape, generator=random)
        return torch.cat([x, noisy, model.clean(noisy, CORRUPTION, random)])

    def pass_through(self, model: Any, x: Tensor) -> None:
        """With half of the noise."""
        assert isinstance(model, Diffusion)
        t_B = torch.full((len(x),), model.config.levels // 2)
        e = torch.randn(x.shape, generator=generator(self.seed, "probe"))
        model(model.levels.noisy(model.config.inside(x), t_B, e), t_B)

    def sample(self, learner: Learner, data: Data, request: Request) -> Sample:
        model, count, random = learner.model, request.count, request.generator
        assert isinstance(model, Diffusion)
        wish: Wish = request.ask if isinstance(request.ask, Wish) else Wish()
        if wish.show == "samples":
            return self.new(model, data, count, wish, random)
        if wish.show in ("path", "noising"):
            moments, names = self.drowning(model, data, random)
            if wish.show == "path":
                asked = replace(self, sampling=Sampling(sampler=wish.sampler, sampler_steps=wish.sampler_steps))
                moments, _, names = asked.coming(model, data, random)
            flat = moments.flatten(0, 1) if moments.ndim == 5 else moments[-1]
            return sample_of(flat, "from left to right " + ", ".join(names), len(names), {"moments": moments})
        if column(data) != "image":
            raise EngramError(f"{wish.show} is for pictures: points have --show samples, path or noising.")
        x = self.seen(data, "test", min(count, 16))
        rows = self.filled(model, x, random) if wish.show == "inpainting" else self.cleaned(model, x, random)
        said = (
            "upper half kept, three ways to go on" if wish.show == "inpainting" else f"noise of {CORRUPTION} taken away"
        )
        return sample_of(rows, f"{len(x)} of the test split: {said}", len(x))

    def new(self, model: Diffusion, data: Data, count: int, wish: Wish, random: torch.Generator) -> Sample:
        labels = None
        if wish.label >= 0:
            labels = torch.full((count,), wish.label)
        elif model.config.classes:
            labels = torch.arange(count) % model.config.classes
        made = [
            model.sample(
                len(part), random, sampler=wish.sampler, steps=wish.sampler_steps, guidance=wish.guidance,
                label_B=labels[part] if labels is not None else None,
            )
            for part in torch.arange(count).split(AT_ONCE)
        ]  # fmt: skip
        text = f"{count} new ones in {wish.sampler_steps} steps ({wish.sampler})"
        arrays = {"label": labels} if labels is not None else {}
        return sample_of(torch.cat(made), text, arrays=arrays)


def film(model: Diffusion, moments: list[Tensor]) -> Tensor:
    """Things by moments: pictures R × S × C × H × W, points S × N × D."""
    shown = [model.config.outside(u) for u in moments]
    return torch.stack(shown, 1) if model.config.pictures else torch.stack(shown)
