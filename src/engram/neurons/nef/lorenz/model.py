r"""Lorenz attractor (Lorenz 1963): chaotic dynamics in the recurrent connection of one ensemble.

    dx/dt = \sigma (y - x)                                                          (1)
    dy/dt = -x z' - y                                                               (2)
    dz'/dt = x y - \beta (z' + \rho) - \rho                 z' = z - \rho, around zero      (3)

Symbols:
    x, y, z               represented vector
    z'                    z shifted by \rho
    \sigma, \beta, \rho   Prandtl number, geometric factor, Rayleigh number
    T, S, D               time steps, evaluation points, dimensions of the input
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from engram.neurons.nef.network import NetworkObject
from engram.neurons.nef.system import NEFConfig, NEFSystem


class Lorenz(NEFSystem):
    """Follows the Lorenz equations."""

    input_dimensions: ClassVar[int] = 3
    output_names: ClassVar[tuple[str, ...]] = ("x", "y", "z - ρ")

    @dataclass(frozen=True, kw_only=True)
    class Config(NEFConfig):
        sigma: float = 10.0
        """Prandtl number: rate at which x relaxes to y (σ)"""
        beta: float = 8 / 3
        """geometric factor: rate at which z decays (β)"""
        rho: float = 28.0
        """Rayleigh number: strength of the heating (ρ)"""

    def build(self) -> NetworkObject:
        x = self.new_ensemble(3, radius=60.0)
        self.connect_dynamics(x, self.derivatives)
        return self.probe_output(x)

    def derivatives(self, value_SD: Tensor) -> Tensor:
        """Time derivative of each point."""
        return torch.stack(self.equations(*value_SD.unbind(1)), 1)

    def equations(self, x: Any, y: Any, z: Any) -> tuple[Any, Any, Any]:
        """Time derivatives of x, y and z', numbers or tensors."""
        c = self.config
        assert isinstance(c, self.Config)
        return c.sigma * (y - x), -x * z - y, x * y - c.beta * (z + c.rho) - c.rho  # (1), (2), (3)

    @staticmethod
    def example_input(t_s: Tensor) -> Tensor:
        """A pulse of 0.1 s that moves x away from the equilibrium."""
        return torch.stack([(t_s <= 0.1).double() * 100, torch.zeros_like(t_s), torch.zeros_like(t_s)], 1)

    def target_output(self, u_TD: Tensor) -> Tensor:
        """Solution by the Runge–Kutta method of fourth order; being chaotic, any two solutions diverge."""
        output, step = [], self.config.step_ms / 1000
        x: tuple[float, ...] = (0.0, 0.0, 0.0)

        def advance(slope: Sequence[float], time: float) -> tuple[float, ...]:
            return tuple(value + time * change for value, change in zip(x, slope, strict=True))

        for u in u_TD.tolist():

            def slope(point: Sequence[float], u: list[float] = u) -> list[float]:
                return [f + u_d for f, u_d in zip(self.equations(*point), u, strict=True)]

            k1 = slope(x)
            k2 = slope(advance(k1, step / 2))
            k3 = slope(advance(k2, step / 2))
            k4 = slope(advance(k3, step))
            x = advance([(a + 2 * b + 2 * c + d) / 6 for a, b, c, d in zip(k1, k2, k3, k4, strict=True)], step)
            output.append(x)
        return torch.tensor(output, dtype=torch.float64)
