"""Recipe of denoising diffusion."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn

from engram.core.config import Settings
from engram.core.errors import EngramError
from engram.core.learner import Batch, Learner, Metrics
from engram.core.recipe import Sample, SampleArgs, SampleRequest
from engram.core.registry import register
from engram.core.seeding import generator
from engram.data.dataset import Data, sample_column
from engram.generative.base import CHUNK, GenerativeRecipe, as_sample, decode_rows
from engram.generative.diffusion.model import Diffusion
from engram.generative.diffusion.samplers import SamplerName
from engram.plots import generative as views
from engram.plots.figure import Figure
from engram.plots.images import sheet
from engram.training.ema import EMALearner
from engram.training.optimizer import OptimizerConfig

FRAMES = 10
"""steps of a trajectory that are shown"""
CORRUPTION = 0.3
"""standard deviation of the noise in the denoising figure, where black is 0 and white 1"""
BOUND_SAMPLES = {"valid": 100, "test": 500}
"""samples of a split whose variational bound is computed"""
LOSS_SAMPLES = 1000


@dataclass(frozen=True, kw_only=True)
class SamplerConfig(Settings):
    """How samples are drawn."""

    sampler: SamplerName = "dpm-solver-2"
    """ddpm (ancestral), ddim, dpm-solver-2 (DPM-Solver++(2M), fewest steps) or annealed Langevin dynamics"""
    sampler_steps: Annotated[int, Ge(1)] = 20
    """steps of the sampler"""
    guidance: Annotated[float, Ge(0)] = 0.0
    """classifier-free guidance scale, for conditional models; 0 disables"""


@dataclass(frozen=True, kw_only=True)
class DiffusionSampleArgs(SamplerConfig, SampleArgs):
    """Flags of `engram sample` for diffusion models."""

    show: Literal["samples", "trajectory", "forward", "inpainting", "denoising"] = "samples"
    """new samples; sampling trajectory; forward process; lower half of test images inpainted; test images denoised"""
    label: Annotated[int, Ge(-1)] = -1
    """class to generate, by its index; -1 means each in turn, or none for an unconditional model"""


@register
@dataclass(frozen=True, kw_only=True)
class DiffusionRecipe(GenerativeRecipe[Diffusion]):
    """Learns to remove noise from samples, and generates by removing it step by step from pure noise."""

    name: ClassVar[str] = "diffusion"
    title: ClassVar[str] = "Diffusion"
    Model: ClassVar[type[nn.Module]] = Diffusion
    SampleArgs: ClassVar[type] = DiffusionSampleArgs
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {
            "data": "digits", "channels": (8, 16), "embedding": 32, "steps": 20, "eval_every": 10, "eval_samples": 50,
            "batch": 32, "sampler_steps": 3, "heads": 2,
        },
        "points": {"data": "points", "batch": 512, "steps": 3000, "eval_every": 1000, "lr": 2e-3},
        "full": {"steps": 3600, "eval_every": 1800, "eval_samples": 5000},
    }  # fmt: skip

    steps: int = 1200
    eval_every: int = 400
    batch: int = 64
    eval_samples: int = 2500
    model: Diffusion.Config = field(default_factory=Diffusion.Config)
    conditional: bool = False
    """condition on the class"""
    class_dropout: Annotated[float, Ge(0), Lt(1)] = 0.1
    """fraction of labels dropped during training, for classifier-free guidance"""
    ema_decay: Annotated[float, Ge(0), Lt(1)] = 0.999
    """decay of the exponential moving average (EMA) of the weights; 0 keeps the newest weights"""
    sampling: SamplerConfig = field(default_factory=SamplerConfig)
    """sampler of the evaluation and the figures"""
    optimization: OptimizerConfig = field(
        default_factory=lambda: OptimizerConfig(lr=1e-3, weight_decay=0.01, clip_grad_norm=1.0, stable_fraction=0.4)
    )
    """optimizer and learning-rate schedule"""

    def load(self) -> Data:
        loaded = super().load()
        if self.conditional and ("label" not in loaded.train or not loaded.classes):
            raise EngramError(f"{self.data} has no classes to condition on: leave out --conditional.")
        return loaded

    # ------------------------------------------------------------------ training

    def learner(self, data: Data) -> EMALearner[Diffusion]:
        classes = len(data.classes) if self.conditional else 0
        model = Diffusion(replace(self.model, classes=classes, **self.sample_space(data)))

        def loss(model: Diffusion, batch: Batch) -> tuple[Tensor, Metrics]:
            return model.loss(batch["x"], batch["t"], batch["noise"], batch.get("label")).mean(), {}

        return EMALearner(model, loss, self.optimization, self.steps, self.ema_decay)

    def draw_noise(self, x: Tensor, batch: Mapping[str, Any], generator: torch.Generator) -> dict[str, Any]:
        """Draw times, spread uniform over the batch, noise and dropped labels."""
        uniform = (torch.arange(len(x)) + torch.rand((), generator=generator)) / len(x)
        t_B = 1 + (uniform * self.model.timesteps).long().clamp(max=self.model.timesteps - 1)
        noise: dict[str, Any] = {"t": t_B, "noise": torch.randn(x.shape, generator=generator)}
        if self.conditional:
            dropped = torch.rand(len(x), generator=generator) < self.class_dropout
            noise["label"] = batch["label"].masked_fill(dropped, -1)
        return noise

    def model_metrics(self, model: Diffusion, data: Data, split: str) -> dict[str, float]:
        """Loss at evenly spread times, and the variational bound in bits per dimension."""
        random, losses = generator(self.seed, "loss"), []
        for x in self.real_samples(data, split, LOSS_SAMPLES).split(CHUNK):
            noise = self.draw_noise(x, {"label": torch.zeros(len(x), dtype=torch.long)}, random)
            losses.append(model.loss(x, noise["t"], noise["noise"]))
        x = self.real_samples(data, split, BOUND_SAMPLES[split])
        nats = torch.cat([model.variational_bound(part, random) for part in x.split(CHUNK)]).mean().item()
        bits_per_dim = nats / model.config.numel / 0.6931471805599453
        return {"loss": torch.cat(losses).mean().item(), "bits_per_dim": bits_per_dim}

    def generate(self, model: Diffusion, count: int, generator: torch.Generator) -> Tensor:
        config = self.sampling
        labels = torch.arange(count) % model.config.classes if model.config.classes else None
        return model.sample(
            count,
            generator,
            sampler=config.sampler,
            steps=config.sampler_steps,
            label_B=labels,
            guidance=config.guidance,
        )

    # ------------------------------------------------------------------ figures and samples

    def model_figures(self, model: Diffusion, data: Data) -> Iterator[Figure]:
        random = generator(self.seed, "film")
        yield views.filmstrip(
            *self.forward_process(model, data, random), "Forward process", "Test samples with increasing noise."
        )
        x_t, x_0, names = self.sampling_trajectory(model, data, self.sampling, random)
        yield views.filmstrip(x_t, names, "Sampling trajectory", "From noise (left) to samples (right).")
        yield views.filmstrip(
            x_0, names, "Predicted samples", "Clean samples predicted at each step of the trajectory."
        )
        if sample_column(data) == "point":
            if data.train["point"].shape[1] == 2:
                yield from self.score_figures(model, data)
            return
        x = self.real_samples(data, "test", 10)
        inpainted, denoised = self.inpainting(model, x, random), self.denoising(model, x, random)
        caption = "Test images, their upper half, and three inpaintings of the lower half."
        yield Figure("Inpainting", caption, sheet(inpainted, len(x)))
        caption = f"Test images, with noise of standard deviation {CORRUPTION}, and denoised."
        yield Figure("Denoising", caption, sheet(denoised, len(x)))
        if model.config.classes:
            yield self.guidance_figure(model, data)

    def guidance_figure(self, model: Diffusion, data: Data) -> Figure:
        """Samples of each class with increasing guidance, from the same noise."""
        K = min(10, model.config.classes)
        rows = [
            model.sample(K, generator(self.seed, "class"), steps=20, label_B=torch.arange(K), guidance=w)
            for w in (0.0, 1.0, 3.0)
        ]
        caption = "Samples of each class from the same noise, with guidance scales of 0, 1 and 3."
        labels = [*[""] * 2 * K, *data.classes[:K]]
        return Figure("Classes and guidance", caption, sheet(torch.cat(rows), K, labels))

    def score_figures(self, model: Diffusion, data: Data) -> Iterator[Figure]:
        """The score over the plane at two times."""
        real = self.real_samples(data, "test", 1000)
        for share in (0.1, 0.4):
            t = max(1, round(share * model.config.timesteps))
            a, _ = model.schedule.at(t)
            noisy = model.config.denormalize(a * model.config.normalize(real))
            caption = f"Score at time {t}: the direction in which the density increases most."
            yield views.vector_field(lambda x, t=t: model.score(x, t), noisy, f"Score at time {t}", caption)  # type: ignore

    def forward_process(self, model: Diffusion, data: Data, random: torch.Generator) -> tuple[Tensor, list[str]]:
        """Test samples at evenly spaced times, and names of the times."""
        x = self.real_samples(data, "test", 4 if sample_column(data) == "image" else 800)
        e = torch.randn(x.shape, generator=random)
        times = torch.linspace(0, model.config.timesteps, FRAMES).round().long()
        u = [model.schedule.add_noise(model.config.normalize(x), t.expand(len(x)), e) for t in times]
        return stack_frames(model, u), [f"t = {t}" for t in times.tolist()]

    def sampling_trajectory(
        self, model: Diffusion, data: Data, config: SamplerConfig, random: torch.Generator
    ) -> tuple[Tensor, Tensor, list[str]]:
        """Noisy samples of a trajectory, the clean samples predicted from them, and names of the times."""
        count = 4 if sample_column(data) == "image" else 800
        noise = model.noise(count, random)
        steps = list(model.trajectory(noise, random, sampler=config.sampler, steps=config.sampler_steps))
        shown = [steps[i] for i in torch.linspace(0, len(steps) - 1, FRAMES).round().long().unique().tolist()]
        x_t, x_0 = (stack_frames(model, list(u)) for u in zip(*((one.x, one.x_0) for one in shown), strict=True))
        return x_t, x_0, [f"t = {one.t}" for one in shown]

    def inpainting(self, model: Diffusion, x: Tensor, random: torch.Generator) -> Tensor:
        """Images, their upper half, and three inpaintings."""
        mask = (torch.arange(x.shape[2]) < x.shape[2] // 2)[:, None].expand(x.shape)
        inpainted = [model.inpaint(x, mask, random) for _ in range(3)]
        return torch.cat([x, torch.where(mask, x, 0.5), *inpainted])

    def denoising(self, model: Diffusion, x: Tensor, random: torch.Generator) -> Tensor:
        """Images, noisy images, and denoised images."""
        noisy = x + CORRUPTION * torch.randn(x.shape, generator=random)
        return torch.cat([x, noisy, model.remove_noise(noisy, CORRUPTION, random)])

    def run_model(self, model: Diffusion, x: Tensor) -> None:
        """Run the network on a sample at half of the time steps."""
        t_B = torch.full((len(x),), model.config.timesteps // 2)
        e = torch.randn(x.shape, generator=generator(self.seed, "probe"))
        model(model.schedule.add_noise(model.config.normalize(x), t_B, e), t_B)

    def sample(self, learner: Learner[Diffusion], data: Data, request: SampleRequest) -> Sample:
        model, count, random = learner.model, request.count, request.generator
        args: DiffusionSampleArgs = request.args or DiffusionSampleArgs()
        if args.show == "samples":
            return decode_rows(self.new_samples(model, count, args, random), data)
        if args.show in ("trajectory", "forward"):
            frames, names = self.forward_process(model, data, random)
            if args.show == "trajectory":
                frames, _, names = self.sampling_trajectory(model, data, args, random)
            flat = frames.flatten(0, 1) if frames.ndim == 5 else frames[-1]
            return as_sample(flat, "from left to right " + ", ".join(names), len(names), {"frames": frames})
        if sample_column(data) != "image":
            raise EngramError(f"{args.show} is for images: points have --show samples, trajectory or forward.")
        x = self.real_samples(data, "test", min(count, 16))
        if args.show == "inpainting":
            rows, text = self.inpainting(model, x, random), "lower half inpainted three times"
        else:
            rows, text = self.denoising(model, x, random), f"noise of standard deviation {CORRUPTION} removed"
        return as_sample(rows, f"{len(x)} test images: {text}", len(x))

    def new_samples(self, model: Diffusion, count: int, args: DiffusionSampleArgs, random: torch.Generator) -> Sample:
        """Samples of one class, of each class in turn, or of an unconditional model."""
        labels = None
        if args.label >= 0:
            labels = torch.full((count,), args.label)
        elif model.config.classes:
            labels = torch.arange(count) % model.config.classes
        samples = [
            model.sample(
                len(part), random, sampler=args.sampler, steps=args.sampler_steps, guidance=args.guidance,
                label_B=labels[part] if labels is not None else None,
            )
            for part in torch.arange(count).split(CHUNK)
        ]  # fmt: skip
        text = f"{count} new samples in {args.sampler_steps} steps ({args.sampler})"
        arrays = {"label": labels} if labels is not None else {}
        return as_sample(torch.cat(samples), text, arrays=arrays)


def stack_frames(model: Diffusion, frames: list[Tensor]) -> Tensor:
    """Denormalized samples at S times: images N × S × C × H × W, points S × N × D."""
    shown = [model.config.denormalize(u) for u in frames]
    return torch.stack(shown, 1) if model.config.is_image else torch.stack(shown)
