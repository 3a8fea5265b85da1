"""Population coding: many neurons hold a value (note 003 §26; Eliasmith & Anderson 2003).

S samples, N neurons, D dimensions of x, K dimensions of f(x)

    a_i(x) = rate(alpha_i e_i . x / r + beta_i)             activity; e_i on the unit sphere, r the radius      (1)
    alpha_i = (J_i - 1) / (1 - c_i),   beta_i = 1 - alpha_i c_i                                                 (2)
    J_i = 1 / (1 - e^((tau_ref - 1 / a_i) / tau_m))         silent up to e_i . x = c_i r, a_i at e_i . x = r    (3)
    x' = a D,   D = argmin |A D - F|^2                      decoders of f, from activities A at samples of x    (4)
    (A'A + S sigma^2 I) D = A'F                             the same where activities carry noise of sigma      (5)

Where the noise is so small that A'A would lose digits, (5) is solved as the least squares problem of A with sqrt(S)
sigma I below it, by QR, which does not square the condition of A; otherwise by Cholesky's factors, which is quicker.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.tap import tap
from engram.neurons.lif import LIF, Spikes, rate_hz

Function = Callable[[Tensor], Tensor]
WELL_CONDITIONED = 1e8
"""up to where half of the digits are left of A'A"""


class Population(nn.Module):
    """LIF neurons that hold a value between them."""

    encoder_ND: Tensor
    gain_N: Tensor
    bias_N: Tensor

    @dataclass(frozen=True, kw_only=True)
    class Config:
        neurons: int = 100
        """number of neurons (N)"""
        dimensions: int = 1
        """dimensions of the value that they hold (D)"""
        radius: float = 1.0
        """length of the largest value"""
        slowest_hz: float = 200.0
        """the smallest of the rates that neurons have at their strongest"""
        fastest_hz: float = 400.0
        """the largest of them"""
        lowest: float = -1.0
        """the smallest of the values, in radii, at which neurons begin to fire"""
        highest: float = 0.9
        """the largest of them"""
        tau_m_ms: float = 20.0
        """time constant of the membrane, ms"""
        tau_ref_ms: float = 2.0
        """time after a spike in which nothing happens, ms"""
        seed: int = 0
        """number that encoders, rates and thresholds are drawn from"""

        def __post_init__(self) -> None:
            for name in ("neurons", "dimensions", "radius", "slowest_hz", "tau_m_ms"):
                if not 0 < getattr(self, name) < math.inf:
                    raise EngramError(f"{name} must be greater than 0, not {getattr(self, name)}.")
            if self.tau_ref_ms < 0:
                raise EngramError(f"tau_ref_ms must be at least 0, not {self.tau_ref_ms}.")
            if not self.slowest_hz <= self.fastest_hz:
                raise EngramError(f"fastest_hz must be at least slowest_hz ({self.slowest_hz}), not {self.fastest_hz}.")
            if self.fastest_hz * self.tau_ref_ms >= 1000:
                raise EngramError(f"fastest_hz must be below 1000 / tau_ref_ms, and is {self.fastest_hz}.")
            if not -1 <= self.lowest <= self.highest < 1:
                raise EngramError(f"Thresholds go from -1 to below 1, not from {self.lowest} to {self.highest}.")

    def __init__(self, config: Config | None = None) -> None:
        super().__init__()
        self.config = config or self.Config()
        g = torch.Generator().manual_seed(self.config.seed)
        N, D = self.config.neurons, self.config.dimensions
        encoder_ND = nn.functional.normalize(torch.randn(N, D, generator=g, dtype=torch.float64), dim=1)
        rate_N = between(self.config.slowest_hz, self.config.fastest_hz, N, g)
        gain_N, bias_N = self.gain_and_bias(rate_N, between(self.config.lowest, self.config.highest, N, g))
        for name, value in (("encoder_ND", encoder_ND), ("gain_N", gain_N), ("bias_N", bias_N)):
            self.register_buffer(name, value)

    def gain_and_bias(self, rate_N: Tensor, threshold_N: Tensor) -> tuple[Tensor, Tensor]:
        """What lets neurons begin to fire at a threshold and reach a rate at the radius."""
        J_N = 1 / -torch.expm1((self.config.tau_ref_ms - 1000 / rate_N) / self.config.tau_m_ms)  # (3)
        gain_N = (J_N - 1) / (1 - threshold_N)
        return gain_N, 1 - gain_N * threshold_N  # (2)

    def input(self, x_SD: Tensor) -> Tensor:
        """v_in of every neuron, S×N."""
        return x_SD.double() @ self.encoder_ND.T / self.config.radius * self.gain_N + self.bias_N

    def rates(self, x_SD: Tensor) -> Tensor:
        """Activities in spikes per second, S×N."""
        rate_SN = rate_hz(self.input(x_SD).numpy(), self.config.tau_m_ms, self.config.tau_ref_ms)  # (1)
        return tap("rates", torch.from_numpy(rate_SN))

    def spikes(self, x_TD: Tensor, step_ms: float = 1.0) -> Spikes:
        """What neurons at rest do while the value goes through x_TD."""
        config = LIF.Config(
            neurons=self.config.neurons, tau_m_ms=self.config.tau_m_ms, tau_ref_ms=self.config.tau_ref_ms,
            step_ms=step_ms,
        )  # fmt: skip
        model = LIF(config)
        return model.step(model.rest(), self.input(x_TD), record=False)[2]

    def samples(self, count: int, generator: torch.Generator | None = None) -> Tensor:
        """Values that fill the ball of the radius evenly, S×D."""
        D = self.config.dimensions
        if D == 1:
            return torch.linspace(-self.config.radius, self.config.radius, count, dtype=torch.float64)[:, None]
        direction = nn.functional.normalize(torch.randn(count, D, generator=generator, dtype=torch.float64), dim=1)
        length = torch.rand(count, 1, generator=generator, dtype=torch.float64) ** (1 / D)
        return self.config.radius * length * direction

    def decoders(self, f: Function | None = None, *, x_SD: Tensor | None = None, noise: float = 0.1) -> Tensor:
        """What reads f(x), or x itself, off the activities, N×K; `noise` as a part of the largest activity."""
        if x_SD is None:
            x_SD = self.samples(max(1000, 2 * self.config.neurons), torch.Generator().manual_seed(self.config.seed))
        A_SN = self.rates(x_SD)
        F_SK = x_SD.double() if f is None else f(x_SD).double()
        if F_SK.ndim != 2 or len(F_SK) != len(x_SD):
            raise EngramError(
                f"A function of x must turn S×D into S×K, not {tuple(x_SD.shape)} into {tuple(F_SK.shape)}."
            )
        return solve(A_SN, F_SK, noise * A_SN.max().item())

    def forward(self, x_SD: Tensor) -> Tensor:
        """x as it is read off the rates."""
        return tap("decoded", self.rates(x_SD) @ self.decoders())  # (4)


def solve(A_SN: Tensor, F_SK: Tensor, sigma: float) -> Tensor:
    """D of (4), or of (5) where sigma is not 0."""
    if sigma == 0:
        return torch.linalg.lstsq(A_SN, F_SK, driver="gelsd").solution
    S, N = A_SN.shape
    if N * (A_SN.max().item() / sigma) ** 2 < WELL_CONDITIONED:
        factor_NN = torch.linalg.cholesky(A_SN.T @ A_SN + S * sigma**2 * torch.eye(N, dtype=A_SN.dtype))
        return torch.cholesky_solve(A_SN.T @ F_SK, factor_NN)  # (5)
    below_NN = math.sqrt(S) * sigma * torch.eye(N, dtype=A_SN.dtype)
    Q, R = torch.linalg.qr(torch.cat([A_SN, below_NN]))
    return torch.linalg.solve_triangular(R, Q[:S].T @ F_SK, upper=True)  # (5)


def between(low: float, high: float, count: int, generator: torch.Generator) -> Tensor:
    return low + (high - low) * torch.rand(count, generator=generator, dtype=torch.float64)
