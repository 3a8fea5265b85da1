r"""Stimulus: currents to inject into a neuron, µA/cm².

    J_{\text{constant}}(t) = A                                                                         (1)
    J_{\text{step}}(t) = A                                           from onset to offset, else 0      (2)
    J_{\text{ramp}}(t) = A (t - t_0) / (t_1 - t_0)                   0 before onset, A after offset    (3)
    J_{\text{pulses}}(t) = A                                         `width` of every `period`         (4)
    J_{\text{noise}}(t) = 0                                          noise of standard deviation A     (5)

An Ornstein–Uhlenbeck process, independent for every neuron, is added to any of them, in its exact discretization
(Uhlenbeck & Ornstein 1930):

    x(0) = \sigma \xi_0                                                  stationary from the start         (6)
    x(t + D) = k x(t) + \sigma \sqrt{1 - k^2} \xi_t                       with k = \exp(-D / \tau)          (7)

Symbols:
    A             amplitude
    t_0, t_1      onset and offset
    \sigma, \tau  standard deviation and correlation time of the noise
    \xi_t         independent standard normal numbers
    D             time step
    T, N          time steps, neurons
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

import torch
from annotated_types import Ge, Gt
from numpy.typing import ArrayLike
from torch import Tensor

from engram.core.errors import EngramError, unknown
from engram.neurons.finite import FiniteSettings
from engram.neurons.kernels import ornstein_uhlenbeck

Kind = Literal["constant", "step", "ramp", "noise", "pulses"]


@dataclass(frozen=True, kw_only=True)
class Stimulus(FiniteSettings):
    """A current as a function of time, with additive noise."""

    stimulus: Kind = "step"
    """time course of the injected current"""
    amplitude: float = 10.0
    """amplitude of the current, µA/cm²; of "noise" its standard deviation"""
    onset_ms: float = 20.0
    """onset of a step, a ramp or pulses, ms"""
    offset_ms: float = 220.0
    """end of a step or pulses, or when a ramp reaches its amplitude, ms; after the onset"""
    noise: Annotated[float, Ge(0)] = 0.0
    """standard deviation of the additive Ornstein–Uhlenbeck noise, µA/cm²; 0 disables"""
    tau_ms: Annotated[float, Gt(0)] = 5.0
    """correlation time of the noise, ms"""
    period_ms: Annotated[float, Gt(0)] = 20.0
    """time from the onset of one pulse to the next, ms"""
    width_ms: Annotated[float, Gt(0)] = 1.0
    """duration of a pulse, ms; at most the period"""

    def __post_init__(self) -> None:
        if self.stimulus not in get_args(Kind):
            raise unknown("stimulus", self.stimulus, get_args(Kind))
        super().__post_init__()
        if self.offset_ms <= self.onset_ms:
            raise EngramError(f"offset_ms must be later than onset_ms ({self.onset_ms}), not {self.offset_ms}.")
        if self.width_ms > self.period_ms:
            raise EngramError(f"width_ms must be at most period_ms ({self.period_ms}), not {self.width_ms}.")

    def current(self, t_ms: ArrayLike | Tensor) -> Tensor:
        """Current without noise at the times t_ms, same shape."""
        t = torch.as_tensor(t_ms, dtype=torch.float64)
        since = t - self.onset_ms
        on = (since >= 0) & (t < self.offset_ms)
        course = {
            "constant": torch.ones_like(t),  # (1)
            "step": on,  # (2)
            "ramp": (since / (self.offset_ms - self.onset_ms)).clamp(0, 1),  # (3)
            "pulses": on & (since % self.period_ms < self.width_ms),  # (4)
            "noise": torch.zeros_like(t),  # (5)
        }
        return self.amplitude * course[self.stimulus].double()

    def sample(self, steps: int, step_ms: float, neurons: int, generator: torch.Generator) -> Tensor:
        """Current of every neuron with noise, constant during each time step, T×N."""
        course_TN = sample_function(self.current, steps, step_ms, neurons)
        sigma = math.hypot(self.amplitude, self.noise) if self.stimulus == "noise" else self.noise
        if sigma == 0:
            return course_TN
        count = (
            -(-steps * neurons // 16) * 16
        )  # torch draws 16 at a time: a longer sample then starts like a shorter one
        normal = torch.randn(count, dtype=torch.float64, generator=generator)
        x_TN = normal[: steps * neurons].view(steps, neurons)  # (6)
        ornstein_uhlenbeck(x_TN.numpy(), math.exp(-step_ms / self.tau_ms))  # (7)
        return course_TN + sigma * x_TN


def sample_function(course: Callable[[Tensor], Tensor], steps: int, step_ms: float, neurons: int = 1) -> Tensor:
    """Evaluate a function of time (ms) at the middle of each time step, T×N; its values are T, T×1 or T×N.

    The midpoint keeps a second-order integrator at its order.
    """
    value = torch.as_tensor(course((torch.arange(steps, dtype=torch.float64) + 0.5) * step_ms), dtype=torch.float64)
    if value.shape not in ((steps,), (steps, 1), (steps, neurons)):
        raise EngramError(f"A current over {steps} steps for {neurons} neurons is not of shape {tuple(value.shape)}.")
    return value.reshape(steps, -1).repeat(1, neurons // value.reshape(steps, -1).shape[1])
