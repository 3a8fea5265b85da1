"""Currents to inject into a neuron, µA/cm².   T time steps, N neurons, A amplitude

    constant   J(t) = A
    step       J(t) = A                                     from onset to offset, otherwise 0
    ramp       J(t) = A (t - onset) / (offset - onset)      from onset to offset, 0 before and A after
    pulses     J(t) = A                                     for `width` at the start of every `period`, onset to offset
    noise      J(t) = 0                                     and the noise below has standard deviation A

On top of any of them comes an Ornstein–Uhlenbeck current x, different for every neuron, of mean 0, standard deviation
sigma and correlation e^(-|t - s| / tau). Its exact discretisation, whatever the step D:

    x(0) = sigma xi_0                                       stationary from the start                           (1)
    x(t + D) = k x(t) + sigma sqrt(1 - k²) xi_t             k = e^(-D / tau), xi independent standard normal    (2)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal, get_args

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from engram.core.errors import EngramError, unknown
from engram.neurons.kernels import ornstein_uhlenbeck

Kind = Literal["constant", "step", "ramp", "noise", "pulses"]


@dataclass(frozen=True, kw_only=True)
class Stimulus:
    """A current as a function of time, and how to sample it with its noise."""

    stimulus: Kind = "step"
    """course of the current in time"""
    amplitude: float = 10.0
    """strength of the current, µA/cm²; of «noise» the standard deviation"""
    onset_ms: float = 20.0
    """when a step, a ramp or pulses begin"""
    offset_ms: float = 220.0
    """when a step or pulses end, and a ramp reaches its amplitude"""
    noise: float = 0.0
    """standard deviation of a fluctuating current added on top, µA/cm²"""
    tau_ms: float = 5.0
    """how long the fluctuations last: their correlation time"""
    period_ms: float = 20.0
    """time from the start of one pulse to the start of the next"""
    width_ms: float = 1.0
    """duration of one pulse"""

    def __post_init__(self) -> None:
        if self.stimulus not in get_args(Kind):
            raise unknown("stimulus", self.stimulus, get_args(Kind))
        for field in fields(self)[1:]:
            if not math.isfinite(getattr(self, field.name)):
                raise EngramError(f"{field.name} must be a finite number, not {getattr(self, field.name)}.")
        for name in ("tau_ms", "period_ms", "width_ms"):
            if getattr(self, name) <= 0:
                raise EngramError(f"{name} must be greater than 0, not {getattr(self, name)}.")
        if self.noise < 0:
            raise EngramError(f"noise is a standard deviation and must be at least 0, not {self.noise}.")
        if self.offset_ms <= self.onset_ms:
            raise EngramError(f"offset_ms must be later than onset_ms ({self.onset_ms}), not {self.offset_ms}.")
        if self.width_ms > self.period_ms:
            raise EngramError(f"width_ms must be at most period_ms ({self.period_ms}), not {self.width_ms}.")

    def current(self, t_ms: ArrayLike | Tensor) -> Tensor:
        """The current without noise at the times t_ms, of their shape."""
        t = torch.as_tensor(t_ms, dtype=torch.float64)
        since = t - self.onset_ms
        on = (since >= 0) & (t < self.offset_ms)
        course = {
            "constant": torch.ones_like(t),
            "step": on,
            "ramp": (since / (self.offset_ms - self.onset_ms)).clamp(0, 1),
            "pulses": on & (since % self.period_ms < self.width_ms),
            "noise": torch.zeros_like(t),
        }
        return self.amplitude * course[self.stimulus].double()

    def sample(self, steps: int, step_ms: float, neurons: int, generator: torch.Generator) -> Tensor:
        """The current of every neuron, noise included, held during each of the steps from time 0, T×N."""
        course_TN = sampled(self.current, steps, step_ms, neurons)
        sigma = math.hypot(self.amplitude, self.noise) if self.stimulus == "noise" else self.noise
        if sigma == 0:
            return course_TN
        count = -(-steps * neurons // 16) * 16  # torch draws in sixteens: so a longer sample begins like a shorter one
        drawn = torch.randn(count, dtype=torch.float64, generator=generator)
        x_TN = drawn[: steps * neurons].view(steps, neurons)  # (1)
        ornstein_uhlenbeck(x_TN.numpy(), math.exp(-step_ms / self.tau_ms))  # (2)
        return course_TN + sigma * x_TN


def sampled(course: Callable[[Tensor], Tensor], steps: int, step_ms: float, neurons: int = 1) -> Tensor:
    """Any function of the time in ms as a current, T×N: its values are one for all neurons (T), or one for each (T×N).

    It is taken at the middle of each step, during which it is held: that keeps an integrator of second order at its
    order.
    """
    value = torch.as_tensor(course((torch.arange(steps, dtype=torch.float64) + 0.5) * step_ms), dtype=torch.float64)
    if value.shape not in ((steps,), (steps, 1), (steps, neurons)):
        raise EngramError(f"A current over {steps} steps for {neurons} neurons is not of shape {tuple(value.shape)}.")
    return value.reshape(steps, -1).repeat(1, neurons // value.reshape(steps, -1).shape[1])
