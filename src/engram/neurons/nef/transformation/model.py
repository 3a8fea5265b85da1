r"""Transformation: a connection decodes a function of a represented vector (NEF, second principle).

    y = f(a, b)                                             a, b and y are represented by ensembles      (1)

Symbols:
    a, b      input, represented by the first ensemble
    y         output, represented by the second ensemble
    f         function decoded by the connection
    T, D      time steps, dimensions of the input
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from engram.neurons.nef.network import NetworkObject
from engram.neurons.nef.system import NEFConfig, NEFSystem


class Transformation(NEFSystem):
    """Computes a function of two inputs."""

    input_dimensions: ClassVar[int] = 2
    output_names: ClassVar[tuple[str, ...]] = ("f(a, b)",)
    FUNCTIONS: ClassVar[dict[str, Callable[[Tensor], Tensor]]] = {
        "channel": lambda x: x[:, :1],
        "sum": lambda x: x[:, :1] + x[:, 1:],
        "product": lambda x: x[:, :1] * x[:, 1:],
        "square": lambda x: x[:, :1] ** 2,
    }

    @dataclass(frozen=True, kw_only=True)
    class Config(NEFConfig):
        function: Literal["channel", "sum", "product", "square"] = "product"
        """function of the inputs a and b that the connection decodes: a, a + b, a b or a²"""
        tau_synapse_ms: float = 5.0
        """time constant of the synapses between the ensembles, ms"""

    def build(self) -> NetworkObject:
        inputs, y = self.new_ensemble(2, radius=math.sqrt(2)), self.new_ensemble(radius=2.0, seed_offset=1)
        self.connect(self.input_node, inputs, tau_synapse_ms=0)
        self.connect(inputs, y, function=self.f, tau_synapse_ms=self.config.tau_synapse_ms)  # (1)
        return self.probe_output(y)

    @property
    def f(self) -> Callable[[Tensor], Tensor]:
        """The configured function."""
        assert isinstance(self.config, self.Config)
        return self.FUNCTIONS[self.config.function]

    @staticmethod
    def example_input(t_s: Tensor) -> Tensor:
        """A sine of 0.5 Hz and a cosine of 0.3 Hz."""
        return torch.stack([torch.sin(2 * math.pi * 0.5 * t_s), torch.cos(2 * math.pi * 0.3 * t_s)], 1)

    def target_output(self, u_TD: Tensor) -> Tensor:
        """The function of the input."""
        return self.f(u_TD)  # (1)
