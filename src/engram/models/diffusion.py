"""Diffusion (Sohl-Dickstein et al. 2015; Ho, Jain & Abbeel 2020; note 003 §22).   B batch, T levels of noise

    q(x_t | x_t-1) = N(sqrt(1 - beta_t) x_t-1, beta_t I)             a little noise, again and again                (1)
    x_t = a_t x_0 + s_t e,   a_t^2 = prod_s<=t (1 - beta_s),   s_t^2 = 1 - a_t^2,   e ~ N(0, I)     all at once     (2)
    E = mean |e - e_theta(x_t, t)|^2,   t ~ U(1 … T)                 tell the noise                                 (3)
    v = a_t e - s_t x_0                                              or the velocity, or x_0 itself                 (4)
    x_0 = (x_t - s_t e) / a_t = a_t x_t - s_t v                      each says what x_0 would be                    (5)
    x_0 <- x_0(none) + (1 + w) (x_0(label) - x_0(none))              guidance: more of what makes it the class      (6)
    -log p(x_0) <= sum_t 1/2 (a_t-1^2 / s_t-1^2 - a_t^2 / s_t^2) |x_0 - x_0(x_t, t)|^2                              (7)
                   + KL(q(x_T|x_0), N(0, I)) - log p(x_0|x_1)

(1) is never computed. Schedules: «linear», beta from 1e-4 to 0.02 (Ho et al.); «cosine», a_t = cos of an angle that
grows evenly (Nichol & Dhariwal 2021); «free», log(a_t^2 / s_t^2) through knots of one's own. (7) is Kingma et al.'s
(2021). From noise to things: `samplers`.
"""

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engram.core.errors import EngramError
from engram.models import samplers
from engram.models.denoiser import Denoising, PointNet, UNet
from engram.models.samplers import Levels, Moment, SamplerName, Way

SHADES = 256
"""values of a pixel, for (7)"""


class Diffusion(nn.Module):
    """A network that tells noise from things, and the levels of noise that it was taught at."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Denoising):
        levels: int = 1000
        """levels of noise (T)"""
        noising: Literal["linear", "cosine", "free"] = "cosine"
        """how noise grows from level to level"""
        knots: tuple[float, ...] = (10.0, 0.0, -10.0)
        """log of signal to noise, falling, at times spread evenly from first to last, for --noising free"""
        predict: Literal["noise", "velocity", "data"] = "velocity"
        """what the network is taught to say"""

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.levels < 2:
                raise EngramError(f"levels must be at least 2, not {self.levels}.")
            if len(self.knots) < 2 or any(b >= a for a, b in zip(self.knots, self.knots[1:], strict=False)):
                raise EngramError(f"knots must be two falling numbers or more, not {self.knots}.")

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.network = UNet(config) if config.pictures else PointNet(config)
        self.levels = schedule(config)

    def forward(self, u: Tensor, t_B: Tensor, label_B: Tensor | None = None) -> Tensor:
        """What the network says of u, which is noisy as at times t."""
        return self.network(u, t_B / self.config.levels, label_B)

    def loss(self, x: Tensor, t_B: Tensor, noise: Tensor, label_B: Tensor | None = None) -> Tensor:
        """(3), or the like for (4), one number for each of the batch."""
        u = self.config.inside(x)
        said = self(self.levels.noisy(u, t_B, noise), t_B, label_B)
        return F.mse_loss(said, self._truth(u, t_B, noise), reduction="none").flatten(1).mean(1)

    def _truth(self, u: Tensor, t_B: Tensor, e: Tensor) -> Tensor:
        if self.config.predict == "velocity":
            return self.levels.noisy(e, t_B, -u)  # (4)
        return e if self.config.predict == "noise" else u

    # ------------------------------------------------------------------ from noise to things

    def denoise(self, u: Tensor, t: int | Tensor, label_B: Tensor | None = None, guidance: float = 0.0) -> Tensor:
        """x_0 as the network sees it, in the numbers it computes with; pixels stay within their range."""
        t_B = torch.full((len(u),), t) if isinstance(t, int) else t
        said = self(u, t_B, label_B)
        if guidance and label_B is not None:
            none = self(u, t_B)
            said = none + (1 + guidance) * (said - none)  # (6): linear, as (5) is
        a, s = self.levels.beside(u, t_B)
        if self.config.predict == "velocity":
            said = a * u - s * said  # (5)
        elif self.config.predict == "noise":
            said = (u - s * said) / a  # (5)
        return said.clamp(-1, 1) if self.config.pictures else said

    def way(
        self,
        x_T: Tensor,
        generator: torch.Generator,
        *,
        sampler: SamplerName = "second-order",
        steps: int = 20,
        label_B: Tensor | None = None,
        guidance: float = 0.0,
    ) -> Iterator[Moment]:
        """Moment by moment from noise to things."""
        self.must_know(label_B)

        way = Way(lambda u, t: self.denoise(u, t, label_B, guidance), self.levels, generator)
        return samplers.sample(sampler, way, x_T, steps)

    def must_know(self, label_B: Tensor | None) -> None:
        if label_B is not None and not self.config.classes:
            raise EngramError("This model was not taught classes: leave the label out, or train with --conditional.")
        if label_B is not None and not 0 <= int(label_B.min()) <= int(label_B.max()) < self.config.classes:
            raise EngramError(f"A label is a number from 0 to {self.config.classes - 1}.")

    def noise(self, count: int, generator: torch.Generator) -> Tensor:
        return torch.randn(count, *self.config.shape, generator=generator)

    def sample(self, count: int, generator: torch.Generator, **how: Any) -> Tensor:
        """New things: the end of the `way` from noise, which says what may be chosen."""
        (end,) = deque(self.way(self.noise(count, generator), generator, **how), 1)
        return self.config.outside(end.x)

    def fill(self, x: Tensor, mask: Tensor, generator: torch.Generator, *, steps: int = 50, repeats: int = 4) -> Tensor:
        """x with new things where `mask` is false."""
        way = Way(self.denoise, self.levels, generator)
        *_, end = samplers.inpaint(way, self.config.inside(x), mask, steps, repeats)
        return self.config.outside(end.x)

    def clean(self, x: Tensor, noise: float, generator: torch.Generator, *, steps: int = 20) -> Tensor:
        """Things without their noise, of which the standard deviation is known, in their own units."""
        wanted = noise / self.config.scale
        t = int((self.levels.s / self.levels.a - wanted).abs().argmin())
        if t == 0:
            return x
        u = self.config.inside(x) * self.levels.at(t)[0]
        times = sorted({*torch.linspace(t, 1, steps).round().int().tolist(), 0}, reverse=True)
        way = Way(self.denoise, self.levels, generator)
        for now, then in zip(times, times[1:], strict=False):
            u = samplers.ddim(u, self.denoise(u, now), now, then, way)
        return self.config.outside(u)

    def score(self, x: Tensor, t: int) -> Tensor:
        """The gradient of log p(x_t) at x, in the numbers that the model computes with."""
        u = self.config.inside(x)
        a, s = self.levels.at(t)
        return (a * self.denoise(u, t) - u) / s**2

    # ------------------------------------------------------------------ how probable

    def bound(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """(7) in nats, one number for each of the batch, each at one time that is drawn for it.

        Times are drawn as often as the log of signal to noise falls there: all of them then count about the same.
        """
        u, (a, s) = self.config.inside(x), (self.levels.a, self.levels.s)
        snr = (a / s)[1:].square()
        share = (snr[:-1] / snr[1:]).log()
        p = share / share.sum()
        evenly = (torch.arange(len(u)) + torch.rand((), generator=generator)) / len(u)
        drawn_B = torch.searchsorted(p.cumsum(0), evenly.double()).clamp(max=len(p) - 1)
        t_B = drawn_B + 2  # from 1 to 0 leads the last step
        u_t = self.levels.noisy(u, t_B, torch.randn(u.shape, generator=generator))
        x_0 = self.denoise(u_t, t_B)
        fall_B = ((snr[:-1] - snr[1:]) / p)[drawn_B].float()
        noisy_B = 0.5 * fall_B * (u - x_0).square().flatten(1).sum(1)
        variance = s[-1] ** 2
        prior_B = 0.5 * (variance + (a[-1] * u).square() - variance.log() - 1).flatten(1).sum(1).float()
        return noisy_B + prior_B + self._last_step(u, generator)  # (7)

    def _last_step(self, u: Tensor, generator: torch.Generator) -> Tensor:
        """-log p(x_0|x_1): what x_1 leaves open, among 256 shades for pictures."""
        a, s = self.levels.at(1)
        middle = u + s / a * torch.randn(u.shape, generator=generator)
        if not self.config.pictures:
            away = (u - middle) * a / s
            return (
                (0.5 * away.square() + math.log(s / a * math.sqrt(2 * math.pi) * self.config.scale)).flatten(1).sum(1)
            )
        shades = torch.linspace(-1, 1, SHADES)
        logits = -0.5 * ((middle[..., None] - shades) * (a / s)).square()
        index = ((u + 1) * (SHADES - 1) / 2).round().long().clamp(0, SHADES - 1)
        return -logits.log_softmax(-1).gather(-1, index[..., None])[..., 0].flatten(1).sum(1)


def schedule(config: Diffusion.Config) -> Levels:
    """(2) at times 0 … T, in 64 bits."""
    T = config.levels
    t = torch.arange(T + 1, dtype=torch.float64) / T
    if config.noising == "linear":
        beta = torch.linspace(0.1 / T, min(20 / T, 0.999), T, dtype=torch.float64)
        abar = torch.cat([torch.ones(1, dtype=torch.float64), (1 - beta).cumprod(0)])
    elif config.noising == "cosine":
        angle = torch.cos((t + 0.008) / 1.008 * math.pi / 2).square()
        beta = (1 - angle[1:] / angle[:-1]).clamp(max=0.999)
        abar = torch.cat([torch.ones(1, dtype=torch.float64), (1 - beta).cumprod(0)])
    else:
        knots = torch.tensor(config.knots, dtype=torch.float64)
        place = t[1:] * (len(knots) - 1)
        low = place.floor().long().clamp(max=len(knots) - 2)
        ratio = knots[low] + (place - low) * (knots[low + 1] - knots[low])
        abar = torch.cat([torch.ones(1, dtype=torch.float64), torch.sigmoid(ratio)])
    return Levels(abar.sqrt(), (1 - abar).sqrt())
