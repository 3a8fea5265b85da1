"""From noise to things, by a denoiser alone.

    x_t = a_t x_0 + s_t e,   a_t^2 + s_t^2 = 1       what is noisy at time t; abar_t = a_t^2 in the notes         (1)
    e = (x_t - a_t x_0) / s_t,   grad log p(x_t) = -e / s_t        the noise, and the score                       (2)

A denoiser says x_0 for x_t and t. Going from a time t to an earlier one, r, which need not be the one just before:

    ancestral     x_r = (x_t - beta / s_t e) / sqrt(alpha) + q z,   alpha = a_t^2 / a_r^2,  beta = 1 - alpha      (3)
                  q^2 = beta s_r^2 / s_t^2
    ddim          x_r = a_r x_0 + s_r e                                                                           (4)
    second-order  x_r = s_r / s_t x_t - a_r (e^-h - 1) D,   h = l_r - l_t,  l = log(a / s)                        (5)
                  D = x_0 + (x_0 - x_0 before) h / (2 h before)
    langevin      x <- x + d grad log p + sqrt(2 d) z,  d = c s_t^2,  some rounds at each level of noise          (6)

(3) is random at every step (Ho et al. 2020); (4) and (5) follow the curve of an ordinary differential equation, (5) to
second order (Song, Meng & Ermon 2021; Lu et al. 2022); (6) needs no more than the score (Song & Ermon 2019).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from engram.core.errors import EngramError

Denoise = Callable[[Tensor, int], Tensor]
"""x_t and t to x_0"""
SamplerName = Literal["ancestral", "ddim", "second-order", "langevin"]

NOISIEST, CLEAREST = -3.0, 3.5
"""log(a / s) from where to where second-order steps go: beyond, a twentieth of the thing is left, or of its noise"""
ROUNDS, PACE = 5, 0.1
"""of Langevin's dynamics: rounds at each level, and how far a step goes (c)"""


class Moment(NamedTuple):
    """A time on the way from noise to data."""

    t: int
    x: Tensor
    """as noisy as at that time"""
    x_0: Tensor
    """what the denoiser takes it for"""


@dataclass(frozen=True)
class Levels:
    """(1): how much is left of the thing and how much noise there is, at times 0 … T."""

    a: Tensor
    s: Tensor

    @property
    def last(self) -> int:
        return len(self.a) - 1

    def noisy(self, x_0: Tensor, t_B: Tensor, e: Tensor) -> Tensor:
        """x_t for each of a batch at its own time."""
        a, s = self.beside(x_0, t_B)
        return a * x_0 + s * e  # (1)

    def beside(self, x: Tensor, t_B: Tensor) -> tuple[Tensor, Tensor]:
        """a and s of a batch, each at its own time, in a form that can be multiplied with x."""
        a, s = (one.to(x.device)[t_B].to(x.dtype).view(-1, *[1] * (x.ndim - 1)) for one in (self.a, self.s))
        return a, s

    def at(self, t: int) -> tuple[float, float]:
        return self.a[t].item(), self.s[t].item()

    def half_log_snr(self, t: int) -> float:
        a, s = self.at(t)
        return math.log(a / s)

    def times(self, count: int, evenly: Literal["time", "noise"]) -> list[int]:
        """`count` times from T down to 1, or evenly in l between where nothing and where all can be seen; then 0."""
        if count < 1:
            raise EngramError(f"A sampler takes at least one step, not {count}.")
        if evenly == "time":
            chosen = torch.linspace(self.last, 1, min(count, self.last)).round().long()
        else:
            ratio = (self.a[1:] / self.s[1:]).log()
            wanted = torch.linspace(max(ratio[-1].item(), NOISIEST), min(ratio[0].item(), CLEAREST), count).double()
            chosen = 1 + (ratio[None] - wanted[:, None]).abs().argmin(1)
        return [*dict.fromkeys(chosen.tolist()), 0]


@dataclass(frozen=True)
class Way:
    """What a step needs beside where it is: who tells noise, how much of it there is when, and chance."""

    denoise: Denoise
    levels: Levels
    generator: torch.Generator


def sample(kind: SamplerName, way: Way, x_T: Tensor, steps: int) -> Iterator[Moment]:
    """The way from x_T, which is all noise, to a thing: the moment before each step, and the end."""
    times = way.levels.times(steps, "noise" if kind == "second-order" else "time")
    step = STEPS[kind]()
    x = x_T
    for t, r in zip(times, times[1:], strict=False):
        x_0 = way.denoise(x, t)
        yield Moment(t, x, x_0)
        x = step(x, x_0, t, r, way)
    yield Moment(0, x, x)


def ancestral(x: Tensor, x_0: Tensor, t: int, r: int, way: Way) -> Tensor:
    (a_t, s_t), (a_r, s_r) = way.levels.at(t), way.levels.at(r)
    alpha = (a_t / a_r) ** 2
    beta = 1 - alpha
    e = (x - a_t * x_0) / s_t  # (2)
    z = torch.randn(x.shape, generator=way.generator, dtype=x.dtype)
    return (x - beta / s_t * e) / math.sqrt(alpha) + math.sqrt(beta) * s_r / s_t * z  # (3)


def ddim(x: Tensor, x_0: Tensor, t: int, r: int, way: Way) -> Tensor:
    (a_t, s_t), (a_r, s_r) = way.levels.at(t), way.levels.at(r)
    return a_r * x_0 + s_r / s_t * (x - a_t * x_0)  # (4)


class SecondOrder:
    """(5) remembers the step before; the first step and the last one are of first order."""

    def __init__(self) -> None:
        self.before: tuple[Tensor, float] | None = None

    def __call__(self, x: Tensor, x_0: Tensor, t: int, r: int, way: Way) -> Tensor:
        (_, s_t), (a_r, s_r) = way.levels.at(t), way.levels.at(r)
        if r == 0:
            return x_0
        h, D = way.levels.half_log_snr(r) - way.levels.half_log_snr(t), x_0
        if self.before is not None:
            last, h_last = self.before
            D = x_0 + (x_0 - last) * (h / (2 * h_last))
        self.before = x_0, h
        return s_r / s_t * x - a_r * math.expm1(-h) * D  # (5)


def langevin(x: Tensor, x_0: Tensor, t: int, r: int, way: Way) -> Tensor:
    """Rounds of (6) at the noise of t, after which what is there is taken to the noise of r."""
    a_t, s_t = way.levels.at(t)
    d = PACE * s_t**2
    for _ in range(ROUNDS):
        score = (a_t * x_0 - x) / s_t**2  # (2)
        x = x + d * score + math.sqrt(2 * d) * torch.randn(x.shape, generator=way.generator, dtype=x.dtype)  # (6)
        x_0 = way.denoise(x, t)
    return ddim(x, x_0, t, r, way)


STEPS: dict[str, Callable[[], Callable[..., Tensor]]] = {
    "ancestral": lambda: ancestral,
    "ddim": lambda: ddim,
    "second-order": SecondOrder,
    "langevin": lambda: langevin,
}


def inpaint(way: Way, known: Tensor, mask: Tensor, steps: int, repeats: int) -> Iterator[Moment]:
    """Fill in where `mask` is false: on the way down what is known is put in with the noise of the time, and each step
    is taken several times, from the same noise anew, so that the two parts come to agree (Lugmayr et al. 2022)."""
    times = way.levels.times(steps, "time")
    x = torch.randn(known.shape, generator=way.generator, dtype=known.dtype)
    for t, r in zip(times, times[1:], strict=False):
        (a_t, _), (a_r, s_r) = way.levels.at(t), way.levels.at(r)
        for again in range(repeats):
            x_0 = way.denoise(x, t)
            if again == 0:
                yield Moment(t, x, x_0)
            x = ancestral(x, x_0, t, r, way)
            e, z = (torch.randn(known.shape, generator=way.generator, dtype=known.dtype) for _ in range(2))
            x = torch.where(mask, a_r * known + s_r * e, x)
            if again + 1 < repeats and r > 0:
                alpha = (a_t / a_r) ** 2
                x = math.sqrt(alpha) * x + math.sqrt(1 - alpha) * z
    yield Moment(0, x, x)
