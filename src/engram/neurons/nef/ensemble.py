r"""Ensemble: representation, first principle of the NEF (Eliasmith & Anderson 2003).

A population of leaky integrate-and-fire (LIF) neurons represents a vector x by nonlinear encoding and linear decoding.

    a_i(x) = r(\alpha_i e_i \cdot x / R + \beta_i)                                    encoding: activity             (1)
    \alpha_i = (J_i - 1) / (1 - c_i), \beta_i = 1 - \alpha_i c_i                      gain and bias                  (2)
    J_i = 1 / (1 - \exp((\tau_{ref} - 1 / m_i) / \tau_m))                             input at the maximal rate      (3)
    \hat{x} = a D, D = \argmin_D ||A D - F||^2                                        decoding, least squares        (4)
    (A^T A + S \sigma^2 I) D = A^T F                                                  L2-regularized decoders        (5)

Where the noise is so small that A^T A would lose digits, (5) is solved by QR as the least squares problem of A stacked
on sqrt(S) sigma I, which does not square the condition number; otherwise by Cholesky factorization, which is faster.

Symbols:
    r                     firing rate of a LIF neuron by its input
    e_i                   encoder (preferred direction), a unit vector
    R                     radius
    c_i, m_i              intercept, in radii, and maximal rate
    \tau_m, \tau_{ref}    membrane time constant, refractory period
    D                     decoders of f(x)
    A, F                  activities and f(x) at the evaluation points
    \sigma                standard deviation of the noise of activities
    S, N, D, K            evaluation points, neurons, dimensions of x and of f(x)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.memory import check_memory
from engram.core.tap import tap
from engram.neurons.finite import FiniteSettings
from engram.neurons.lif.model import LIF, firing_rate_hz
from engram.neurons.spikes import Spikes

Function = Callable[[Tensor], Tensor]
WELL_CONDITIONED = 1e8
"""condition number up to which A'A keeps half of its digits"""


class Ensemble(nn.Module):
    """LIF neurons that represent a vector."""

    encoder_ND: Tensor
    gain_N: Tensor
    bias_N: Tensor

    @dataclass(frozen=True, kw_only=True)
    class Config(FiniteSettings):
        neurons: Annotated[int, Ge(1)] = 100
        """number of neurons (N)"""
        dimensions: Annotated[int, Ge(1)] = 1
        """dimensions of the represented vector (D)"""
        radius: Annotated[float, Gt(0)] = 1.0
        """largest norm of the represented vector (R)"""
        max_rates: Annotated[tuple[float, float], Gt(0)] = (200.0, 400.0)
        """lowest and highest of the neurons' maximal firing rates, Hz; below 1000 / tau_ref_ms"""
        intercepts: Annotated[tuple[float, float], Ge(-1), Lt(1)] = (-1.0, 0.9)
        """lowest and highest of the values, in radii, above which neurons fire"""
        tau_m_ms: Annotated[float, Gt(0)] = 20.0
        """membrane time constant, ms"""
        tau_ref_ms: Annotated[float, Ge(0)] = 2.0
        """refractory period, ms; 0 means none"""
        seed: int = 0
        """seed of encoders, maximal rates and intercepts"""

        def __post_init__(self) -> None:
            super().__post_init__()
            for name in ("max_rates", "intercepts"):
                pair = getattr(self, name)
                if len(pair) != 2 or not pair[0] <= pair[1]:
                    raise EngramError(f"{name} must be the lowest and the highest of a range, not {pair}.")
            if self.max_rates[1] * self.tau_ref_ms >= 1000:
                raise EngramError(f"max_rates must be below 1000 / tau_ref_ms, and is {self.max_rates}.")

    def __init__(self, config: Config | None = None) -> None:
        super().__init__()
        self.config = config or self.Config()
        g = torch.Generator().manual_seed(self.config.seed)
        N, D = self.config.neurons, self.config.dimensions
        encoder_ND = nn.functional.normalize(torch.randn(N, D, generator=g, dtype=torch.float64), dim=1)
        max_rate_N = uniform(*self.config.max_rates, N, g)
        gain_N, bias_N = self.gain_bias(max_rate_N, uniform(*self.config.intercepts, N, g))
        for name, value in (("encoder_ND", encoder_ND), ("gain_N", gain_N), ("bias_N", bias_N)):
            self.register_buffer(name, value)

    def gain_bias(self, max_rate_N: Tensor, intercept_N: Tensor) -> tuple[Tensor, Tensor]:
        """Gain and bias of neurons with given maximal rates (at the radius) and intercepts."""
        J_N = 1 / -torch.expm1((self.config.tau_ref_ms - 1000 / max_rate_N) / self.config.tau_m_ms)  # (3)
        gain_N = (J_N - 1) / (1 - intercept_N)
        return gain_N, 1 - gain_N * intercept_N  # (2)

    def encode(self, x_SD: Tensor) -> Tensor:
        """Input of every neuron for represented vectors, S×N."""
        return x_SD.double() @ self.encoder_ND.T / self.config.radius * self.gain_N + self.bias_N

    def rates(self, x_SD: Tensor) -> Tensor:
        """Firing rates of every neuron (tuning curves), Hz, S×N."""
        rate_SN = firing_rate_hz(self.encode(x_SD).numpy(), self.config.tau_m_ms, self.config.tau_ref_ms)  # (1)
        return tap("rates", torch.from_numpy(rate_SN))

    def simulate_spikes(self, x_TD: Tensor, step_ms: float = 1.0) -> Spikes:
        """Spikes from rest while the represented vector follows x_TD."""
        config = LIF.Config(
            neurons=self.config.neurons, tau_m_ms=self.config.tau_m_ms, tau_ref_ms=self.config.tau_ref_ms,
            step_ms=step_ms,
        )  # fmt: skip
        model = LIF(config)
        return model.step(model.init_state(), self.encode(x_TD), record=False)[2]

    def eval_points(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Evaluation points, uniform in the ball of the radius, S×D."""
        D = self.config.dimensions
        if D == 1:
            return torch.linspace(-self.config.radius, self.config.radius, count, dtype=torch.float64)[:, None]
        direction = nn.functional.normalize(torch.randn(count, D, generator=generator, dtype=torch.float64), dim=1)
        length = torch.rand(count, 1, generator=generator, dtype=torch.float64) ** (1 / D)
        return self.config.radius * length * direction

    def solve_decoders(self, f: Function | None = None, *, x_SD: Tensor | None = None, noise: float = 0.1) -> Tensor:
        """Decoders of f(x), or of x, N×K; `noise` is relative to the largest activity."""
        points = max(1000, 2 * self.config.neurons) if x_SD is None else len(x_SD)
        check_memory(8 * points * self.config.neurons, "The activity at the evaluation points", "take fewer --neurons")
        if x_SD is None:
            x_SD = self.eval_points(points, torch.Generator().manual_seed(self.config.seed))
        A_SN = self.rates(x_SD)
        F_SK = x_SD.double() if f is None else f(x_SD).double()
        if F_SK.ndim != 2 or len(F_SK) != len(x_SD):
            raise EngramError(
                f"A function of x must turn S×D into S×K, not {tuple(x_SD.shape)} into {tuple(F_SK.shape)}."
            )
        return solve_l2(A_SN, F_SK, noise * A_SN.max().item())

    def forward(self, x_SD: Tensor) -> Tensor:
        """x decoded from the firing rates, S×D."""
        return tap("decoded", self.rates(x_SD) @ self.solve_decoders())  # (4)


def solve_l2(A_SN: Tensor, F_SK: Tensor, sigma: float) -> Tensor:
    """Decoders by least squares (4), L2-regularized (5) unless sigma is 0."""
    if sigma == 0:
        return torch.linalg.lstsq(A_SN, F_SK, driver="gelsd").solution  # (4)
    S, N = A_SN.shape
    if N * (A_SN.max().item() / sigma) ** 2 < WELL_CONDITIONED:
        factor_NN = torch.linalg.cholesky(A_SN.T @ A_SN + S * sigma**2 * torch.eye(N, dtype=A_SN.dtype))
        return torch.cholesky_solve(A_SN.T @ F_SK, factor_NN)  # (5)
    below_NN = math.sqrt(S) * sigma * torch.eye(N, dtype=A_SN.dtype)
    Q, R = torch.linalg.qr(torch.cat([A_SN, below_NN]))
    return torch.linalg.solve_triangular(R, Q[:S].T @ F_SK, upper=True)  # (5)


def uniform(low: float, high: float, count: int, generator: torch.Generator) -> Tensor:
    """Uniform random numbers."""
    return low + (high - low) * torch.rand(count, generator=generator, dtype=torch.float64)
