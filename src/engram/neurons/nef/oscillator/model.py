r"""Neural oscillator: an ensemble whose recurrent connection rotates the represented vector.

    dx_1/dt = -2 \pi f x_2 + u_1                                                    (1)
    dx_2/dt = 2 \pi f x_1 + u_2                                                     (2)

Symbols:
    x_1, x_2      represented vector
    u_1, u_2      input
    f             frequency
    T, D          time steps, dimensions of the input
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from engram.neurons.nef.network import NetworkObject
from engram.neurons.nef.system import NEFConfig, NEFSystem


class Oscillator(NEFSystem):
    """Rotates a two-dimensional vector at a constant frequency."""

    input_dimensions: ClassVar[int] = 2
    output_names: ClassVar[tuple[str, ...]] = ("x_1", "x_2")

    @dataclass(frozen=True, kw_only=True)
    class Config(NEFConfig):
        frequency_hz: float = 1.0
        """frequency of the rotation, Hz; negative reverses it (f)"""

    def build(self) -> NetworkObject:
        x = self.new_ensemble(2)
        self.connect_dynamics(x, lambda v: self.angular_velocity * torch.stack([-v[:, 1], v[:, 0]], 1))  # (1), (2)
        return self.probe_output(x)

    @property
    def angular_velocity(self) -> float:
        """Radians per second."""
        assert isinstance(self.config, self.Config)
        return 2 * math.pi * self.config.frequency_hz

    @staticmethod
    def example_input(t_s: Tensor) -> Tensor:
        """A pulse of 0.1 s that would move x_1 to 1."""
        return torch.stack([(t_s <= 0.1).double() * 10, torch.zeros_like(t_s)], 1)

    def target_output(self, u_TD: Tensor) -> Tensor:
        """The exact solution for an input that is constant during each time step."""
        x, output, angle = 0j, [], self.angular_velocity * self.config.step_ms / 1000
        rotation = complex(math.cos(angle), math.sin(angle))
        gain = (rotation - 1) / (1j * self.angular_velocity) if angle else self.config.step_ms / 1000
        for u in u_TD.double().tolist():
            x = rotation * x + complex(*u) * gain  # (1), (2)
            output.append([x.real, x.imag])
        return torch.tensor(output, dtype=torch.float64)
