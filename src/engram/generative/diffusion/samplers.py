r"""Diffusion samplers: DDPM, DDIM, DPM-Solver++(2M), annealed Langevin dynamics, inpainting (RePaint).

    x_t = a_t x_0 + s_t \epsilon                                        noisy sample at time t                     (1)
    \epsilon = (x_t - a_t x_0) / s_t                                    its noise                                  (2)
    \nabla \log p(x_t) = -\epsilon / s_t                                its score                                  (3)
    x_r = (x_t - \beta / s_t \epsilon) / \sqrt{\alpha} + q z            ddpm: ancestral step                       (4)
    q^2 = \beta s_r^2 / s_t^2                                           variance of its noise                      (5)
    x_r = a_r x_0 + s_r \epsilon                                        ddim                                       (6)
    D = x_0 + (x_0 - x_0') h / (2 h')                                   dpm-solver-2: extrapolated x_0             (7)
    x_r = s_r / s_t x_t - a_r (e^{-h} - 1) D                            dpm-solver-2: step                         (8)
    x \leftarrow x + d \nabla \log p(x) + \sqrt{2 d} z                  langevin, a few steps at each time         (9)

    Symbols:
        x_0, x_t        predicted clean sample, noisy sample at time t
        a_t, s_t        signal and noise level, the squares add up to 1 (the papers write alpha bar for a squared)
        r               next time, earlier than t, not necessarily by one step
        \alpha, \beta   squared ratio of a_t to a_r, and 1 minus it
        \epsilon, z     noise in the sample, new noise from N(0, I)
        h, h', x_0'     step in log(a / s), and of the step before: its size and prediction
        d               Langevin step size, proportional to the squared noise level

(4): Ho et al. 2020; (6): Song, Meng & Ermon 2021; (7), (8): Lu et al. 2022; (9): Song & Ermon 2019. (6) and (8) solve
the probability flow ODE, to first and second order.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from engram.core.errors import EngramError

Denoise = Callable[[Tensor, int], Tensor]
"""predicts x_0 from x_t and t"""
SamplerName = Literal["ddpm", "ddim", "dpm-solver-2", "langevin"]

MIN_HALF_LOG_SNR, MAX_HALF_LOG_SNR = -3.0, 3.5
"""range of log(a / s) that the steps of dpm-solver-2 cover"""
LANGEVIN_STEPS, LANGEVIN_STEP_SIZE = 5, 0.1
"""Langevin steps at each time, and their size relative to the squared noise level"""


class TrajectoryStep(NamedTuple):
    """One step of a sampling trajectory."""

    t: int
    """time, from T (noise) to 0 (data)"""
    x: Tensor
    """noisy sample at that time (x_t)"""
    x_0: Tensor
    """clean sample predicted from it"""


Trajectory = Iterator[TrajectoryStep]
"""states from noise to data, one for each step"""


@dataclass(frozen=True)
class NoiseSchedule:
    """Noise schedule: signal level a and noise level s at times 0 … T."""

    a: Tensor
    s: Tensor

    @property
    def last(self) -> int:
        return len(self.a) - 1

    def add_noise(self, x_0: Tensor, t_B: Tensor, e: Tensor) -> Tensor:
        """Noisy samples x_t, each at its own time."""
        a, s = self.levels_like(x_0, t_B)
        return a * x_0 + s * e  # (1)

    def levels_like(self, x: Tensor, t_B: Tensor) -> tuple[Tensor, Tensor]:
        """a and s of each sample's time, in a shape that broadcasts with x."""
        a, s = (one.to(x.device)[t_B].to(x.dtype).view(-1, *[1] * (x.ndim - 1)) for one in (self.a, self.s))
        return a, s

    def at(self, t: int) -> tuple[float, float]:
        """a and s at time t."""
        return self.a[t].item(), self.s[t].item()

    def half_log_snr(self, t: int) -> float:
        """log(a / s) at time t."""
        a, s = self.at(t)
        return math.log(a / s)

    def times(self, count: int, spacing: Literal["time", "log-snr"]) -> list[int]:
        """`count` times in descending order, spaced evenly in time or in log SNR; then 0."""
        if count < 1:
            raise EngramError(f"A sampler takes at least one step, not {count}.")
        if spacing == "time":
            times = torch.linspace(self.last, 1, min(count, self.last)).round().long()
        else:
            ratio = (self.a[1:] / self.s[1:]).log()
            targets = torch.linspace(
                max(ratio[-1].item(), MIN_HALF_LOG_SNR), min(ratio[0].item(), MAX_HALF_LOG_SNR), count
            ).double()
            times = 1 + (ratio[None] - targets[:, None]).abs().argmin(1)
        return [*dict.fromkeys(times.tolist()), 0]


@dataclass(frozen=True)
class SamplerContext:
    """What each sampler step needs: the denoiser, the noise schedule and the random generator."""

    denoise: Denoise
    schedule: NoiseSchedule
    generator: torch.Generator


def sample(sampler: SamplerName, context: SamplerContext, x_T: Tensor, steps: int) -> Trajectory:
    """Yield the trajectory from noise x_T to a sample: the state before each step, and the end."""
    times = context.schedule.times(steps, "log-snr" if sampler == "dpm-solver-2" else "time")
    step = STEPS[sampler]()
    x = x_T
    for t, r in zip(times, times[1:], strict=False):
        x_0 = context.denoise(x, t)
        yield TrajectoryStep(t, x, x_0)
        x = step(x, x_0, t, r, context)
    yield TrajectoryStep(0, x, x)


def ddpm(x: Tensor, x_0: Tensor, t: int, r: int, context: SamplerContext) -> Tensor:
    (a_t, s_t), (a_r, s_r) = context.schedule.at(t), context.schedule.at(r)
    alpha = (a_t / a_r) ** 2
    beta = 1 - alpha
    e = (x - a_t * x_0) / s_t  # (2)
    z = torch.randn(x.shape, generator=context.generator, dtype=x.dtype)
    return (x - beta / s_t * e) / math.sqrt(alpha) + math.sqrt(beta) * s_r / s_t * z  # (4), (5)


def ddim(x: Tensor, x_0: Tensor, t: int, r: int, context: SamplerContext) -> Tensor:
    (a_t, s_t), (a_r, s_r) = context.schedule.at(t), context.schedule.at(r)
    return a_r * x_0 + s_r / s_t * (x - a_t * x_0)  # (6)


class DPMSolver2:
    """Step of DPM-Solver++(2M), which keeps the step before.

    The first and the last step are of first order.
    """

    def __init__(self) -> None:
        self.previous: tuple[Tensor, float] | None = None

    def __call__(self, x: Tensor, x_0: Tensor, t: int, r: int, context: SamplerContext) -> Tensor:
        (_, s_t), (a_r, s_r) = context.schedule.at(t), context.schedule.at(r)
        if r == 0:
            return x_0
        h, D = context.schedule.half_log_snr(r) - context.schedule.half_log_snr(t), x_0
        if self.previous is not None:
            last, h_last = self.previous
            D = x_0 + (x_0 - last) * (h / (2 * h_last))  # (7)
        self.previous = x_0, h
        return s_r / s_t * x - a_r * math.expm1(-h) * D  # (8)


def langevin(x: Tensor, x_0: Tensor, t: int, r: int, context: SamplerContext) -> Tensor:
    """Langevin steps at time t, then a DDIM step to time r."""
    a_t, s_t = context.schedule.at(t)
    d = LANGEVIN_STEP_SIZE * s_t**2
    for _ in range(LANGEVIN_STEPS):
        score = (a_t * x_0 - x) / s_t**2  # (2), (3)
        x = x + d * score + math.sqrt(2 * d) * torch.randn(x.shape, generator=context.generator, dtype=x.dtype)  # (9)
        x_0 = context.denoise(x, t)
    return ddim(x, x_0, t, r, context)


STEPS: dict[str, Callable[[], Callable[..., Tensor]]] = {
    "ddpm": lambda: ddpm,
    "ddim": lambda: ddim,
    "dpm-solver-2": DPMSolver2,
    "langevin": lambda: langevin,
}


def inpaint(context: SamplerContext, known: Tensor, mask: Tensor, steps: int, repeats: int) -> Trajectory:
    """Yield the trajectory of inpainting where `mask` is false (RePaint, Lugmayr et al. 2022).

    The known part is replaced at every step by its noisy version; each step is repeated, with noise added between,
    so that the generated part becomes consistent with the known one.
    """
    times = context.schedule.times(steps, "time")
    x = torch.randn(known.shape, generator=context.generator, dtype=known.dtype)
    for t, r in zip(times, times[1:], strict=False):
        (a_t, _), (a_r, s_r) = context.schedule.at(t), context.schedule.at(r)
        for repeat in range(repeats):
            x_0 = context.denoise(x, t)
            if repeat == 0:
                yield TrajectoryStep(t, x, x_0)
            x = ddpm(x, x_0, t, r, context)
            e, z = (torch.randn(known.shape, generator=context.generator, dtype=known.dtype) for _ in range(2))
            x = torch.where(mask, a_r * known + s_r * e, x)
            if repeat + 1 < repeats and r > 0:
                alpha = (a_t / a_r) ** 2
                x = math.sqrt(alpha) * x + math.sqrt(1 - alpha) * z
    yield TrajectoryStep(0, x, x)
