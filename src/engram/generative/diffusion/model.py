r"""Denoising diffusion with classifier-free guidance (Sohl-Dickstein et al. 2015; Ho et al. 2020).

    q(x_t | x_{t-1}) = N(\sqrt{1 - \beta_t} x_{t-1}, \beta_t I)                 forward process, one step          (1)
    x_t = a_t x_0 + s_t \epsilon                                                forward process, closed form       (2)
    L = ||\epsilon - \epsilon_\theta(x_t, t)||^2                                loss, predicting the noise         (3)
    v = a_t \epsilon - s_t x_0                                                  velocity, predicted instead        (4)
    x_0 = (x_t - s_t \epsilon) / a_t = a_t x_t - s_t v                          predicted clean sample             (5)
    \hat x = \hat x_\emptyset + (1 + w) (\hat x_y - \hat x_\emptyset)           classifier-free guidance           (6)
    L_t = 1/2 (a_{t-1}^2 / s_{t-1}^2 - a_t^2 / s_t^2) ||x_0 - \hat x_0||^2      loss at time t > 1                 (7)
    -\log p(x_0) \le \sum_t L_t + KL_T - \log p(x_0|x_1)                        variational bound                  (8)

    Symbols:
        x_0, x_t          clean sample, noisy sample at time t = 1 … T
        a_t, s_t          signal and noise: the squares add up to 1; a_t^2 is the product of all (1 - beta) up to t
        \epsilon          noise from N(0, I)
        \hat x            prediction, with the class y and without a class
        w                 guidance scale
        KL_T              divergence of q(x_T|x_0) from N(0, I)
        B, T              batch, time steps

Equation (1) is never computed. Noise schedules: "linear", \beta from 1e-4 to 0.02 (Ho et al. 2020); "cosine", a_t the
cosine of a linearly growing angle (Nichol & Dhariwal 2021); "log-snr", the log of the signal-to-noise ratio linear
between given knots. Velocity: Salimans & Ho 2022; guidance: Ho & Salimans 2022; bound: Kingma et al. 2021. The samplers
are those of `diffusion/samplers.py`.
"""

import math
from collections import deque
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.core.fit import FitMixin
from engram.generative.diffusion import samplers
from engram.generative.diffusion.samplers import NoiseSchedule, SamplerContext, SamplerName, Trajectory
from engram.generative.diffusion.unet import DenoiserConfig, PointDenoiser, UNet

PIXEL_VALUES = 256


class Diffusion(FitMixin, nn.Module):
    """Denoising network and noise schedule."""

    @dataclass(frozen=True, kw_only=True)
    class Config(DenoiserConfig):
        timesteps: Annotated[int, Ge(2)] = 1000
        """time steps of the forward process (T)"""
        noise_schedule: Literal["linear", "cosine", "log-snr"] = "cosine"
        """noise schedule: linear beta, cosine, or log SNR linear between --log-snr-knots"""
        log_snr_knots: tuple[float, ...] = (10.0, 0.0, -10.0)
        """decreasing values of log(a^2 / s^2) at uniform spaced times, for --noise-schedule log-snr"""
        prediction: Literal["noise", "velocity", "x0"] = "velocity"
        """what the network predicts: the noise, the velocity or the clean sample"""

        def __post_init__(self) -> None:
            super().__post_init__()
            knots = self.log_snr_knots
            if len(knots) < 2 or any(b >= a for a, b in zip(knots, knots[1:], strict=False)):
                raise EngramError(f"log_snr_knots must be two decreasing numbers or more, not {knots}.")

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.network = UNet(config) if config.is_image else PointDenoiser(config)
        self.schedule = build_schedule(config)

    def forward(self, u: Tensor, t_B: Tensor, label_B: Tensor | None = None) -> Tensor:
        """Prediction of the network for normalized samples u, noisy as at times t."""
        return self.network(u, t_B / self.config.timesteps, label_B)

    def loss(self, x: Tensor, t_B: Tensor, noise: Tensor, label_B: Tensor | None = None) -> Tensor:
        """Mean squared error of the prediction, B."""
        u = self.config.normalize(x)
        predicted = self(self.schedule.add_noise(u, t_B, noise), t_B, label_B)  # (2)
        return F.mse_loss(predicted, self._target(u, t_B, noise), reduction="none").flatten(1).mean(1)  # (3)

    def _target(self, u: Tensor, t_B: Tensor, e: Tensor) -> Tensor:
        if self.config.prediction == "velocity":
            return self.schedule.add_noise(e, t_B, -u)  # (4)
        return e if self.config.prediction == "noise" else u

    # ------------------------------------------------------------------ sampling

    def denoise(self, u: Tensor, t: int | Tensor, label_B: Tensor | None = None, guidance: float = 0.0) -> Tensor:
        """Predict the clean sample x_0, normalized; pixels are clamped to their range."""
        t_B = torch.full((len(u),), t) if isinstance(t, int) else t
        predicted = self(u, t_B, label_B)
        if guidance and label_B is not None:
            unconditional = self(u, t_B)
            predicted = unconditional + (1 + guidance) * (predicted - unconditional)  # (6): before (5), which is linear
        a, s = self.schedule.levels_like(u, t_B)
        if self.config.prediction == "velocity":
            predicted = a * u - s * predicted  # (5)
        elif self.config.prediction == "noise":
            predicted = (u - s * predicted) / a  # (5)
        return predicted.clamp(-1, 1) if self.config.is_image else predicted

    def trajectory(
        self,
        x_T: Tensor,
        generator: torch.Generator,
        *,
        sampler: SamplerName = "dpm-solver-2",
        steps: int = 20,
        label_B: Tensor | None = None,
        guidance: float = 0.0,
    ) -> Trajectory:
        """Sampling trajectory from noise x_T to samples, in normalized units."""
        self.check_labels(label_B)
        context = SamplerContext(lambda u, t: self.denoise(u, t, label_B, guidance), self.schedule, generator)
        return samplers.sample(sampler, context, x_T, steps)

    def check_labels(self, label_B: Tensor | None) -> None:
        """Refuse classes that the model was not trained on."""
        if label_B is not None and not self.config.classes:
            raise EngramError(
                "This model was not trained on classes: leave the label out, or train with --conditional."
            )
        if label_B is not None and not 0 <= int(label_B.min()) <= int(label_B.max()) < self.config.classes:
            raise EngramError(f"A label must be from 0 to {self.config.classes - 1}.")

    def noise(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw x_T from N(0, I)."""
        return torch.randn(count, *self.config.shape, generator=generator)

    def sample(self, count: int, generator: torch.Generator, **how: Any) -> Tensor:
        """Draw samples: the end of a `trajectory` with the options `how`."""
        (end,) = deque(self.trajectory(self.noise(count, generator), generator, **how), 1)
        return self.config.denormalize(end.x)

    def inpaint(
        self, x: Tensor, mask: Tensor, generator: torch.Generator, *, steps: int = 50, repeats: int = 4
    ) -> Tensor:
        """Generate x anew where `mask` is false, consistent with the rest."""
        context = SamplerContext(self.denoise, self.schedule, generator)
        *_, end = samplers.inpaint(context, self.config.normalize(x), mask, steps, repeats)
        return self.config.denormalize(end.x)

    def remove_noise(self, x: Tensor, sigma: float, generator: torch.Generator, *, steps: int = 20) -> Tensor:
        """Denoise samples with noise of known standard deviation `sigma`, in units of the data, by DDIM."""
        wanted = sigma / self.config.scale
        t = int((self.schedule.s / self.schedule.a - wanted).abs().argmin())
        if t == 0:
            return x
        u = self.config.normalize(x) * self.schedule.at(t)[0]
        times = sorted({*torch.linspace(t, 1, steps).round().int().tolist(), 0}, reverse=True)
        context = SamplerContext(self.denoise, self.schedule, generator)
        for now, then in zip(times, times[1:], strict=False):
            u = samplers.ddim(u, self.denoise(u, now), now, then, context)
        return self.config.denormalize(u)

    def score(self, x: Tensor, t: int) -> Tensor:
        """Score at x: gradient of log p(x_t), in normalized units."""
        u = self.config.normalize(x)
        a, s = self.schedule.at(t)
        return (a * self.denoise(u, t) - u) / s**2

    # ------------------------------------------------------------------ likelihood

    def variational_bound(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Upper bound of -log p(x) in nats, B, estimated at one random time for each sample.

        Times are drawn in proportion to the decrease of the log SNR, which keeps the variance of the estimate small.
        """
        u, (a, s) = self.config.normalize(x), (self.schedule.a, self.schedule.s)
        snr = (a / s)[1:].square()
        share = (snr[:-1] / snr[1:]).log()
        p = share / share.sum()
        uniform = (torch.arange(len(u)) + torch.rand((), generator=generator)) / len(u)
        index_B = torch.searchsorted(p.cumsum(0), uniform.double()).clamp(max=len(p) - 1)
        t_B = index_B + 2  # the step from 1 to 0 is `_last_step`
        u_t = self.schedule.add_noise(u, t_B, torch.randn(u.shape, generator=generator))
        x_0 = self.denoise(u_t, t_B)
        decrease_B = ((snr[:-1] - snr[1:]) / p)[index_B].float()
        diffusion_B = 0.5 * decrease_B * (u - x_0).square().flatten(1).sum(1)  # (7)
        variance = s[-1] ** 2
        prior_B = 0.5 * (variance + (a[-1] * u).square() - variance.log() - 1).flatten(1).sum(1).float()
        return diffusion_B + prior_B + self._last_step(u, generator)  # (8)

    def _last_step(self, u: Tensor, generator: torch.Generator) -> Tensor:
        """-log p(x_0|x_1) in nats, B; over 256 pixel values for images."""
        a, s = self.schedule.at(1)
        middle = u + s / a * torch.randn(u.shape, generator=generator)
        if not self.config.is_image:
            residual = (u - middle) * a / s
            return (
                (0.5 * residual.square() + math.log(s / a * math.sqrt(2 * math.pi) * self.config.scale))
                .flatten(1)
                .sum(1)
            )
        values = torch.linspace(-1, 1, PIXEL_VALUES)
        logits = -0.5 * ((middle[..., None] - values) * (a / s)).square()
        index = ((u + 1) * (PIXEL_VALUES - 1) / 2).round().long().clamp(0, PIXEL_VALUES - 1)
        return -logits.log_softmax(-1).gather(-1, index[..., None])[..., 0].flatten(1).sum(1)


def build_schedule(config: Diffusion.Config) -> NoiseSchedule:
    """The noise schedule at times 0 … T, in 64 bits."""
    T = config.timesteps
    t = torch.arange(T + 1, dtype=torch.float64) / T
    if config.noise_schedule == "linear":
        beta = torch.linspace(0.1 / T, min(20 / T, 0.999), T, dtype=torch.float64)
        abar = torch.cat([torch.ones(1, dtype=torch.float64), (1 - beta).cumprod(0)])
    elif config.noise_schedule == "cosine":
        angle = torch.cos((t + 0.008) / 1.008 * math.pi / 2).square()
        beta = (1 - angle[1:] / angle[:-1]).clamp(max=0.999)
        abar = torch.cat([torch.ones(1, dtype=torch.float64), (1 - beta).cumprod(0)])
    else:
        knots = torch.tensor(config.log_snr_knots, dtype=torch.float64)
        place = t[1:] * (len(knots) - 1)
        low = place.floor().long().clamp(max=len(knots) - 2)
        ratio = knots[low] + (place - low) * (knots[low + 1] - knots[low])
        abar = torch.cat([torch.ones(1, dtype=torch.float64), torch.sigmoid(ratio)])
    return NoiseSchedule(abar.sqrt(), (1 - abar).sqrt())
