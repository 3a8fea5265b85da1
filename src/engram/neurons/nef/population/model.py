r"""Population coding: an ensemble of spiking neurons represents its input, read by linear decoders.

    \hat{x} = \sum_i a_i d_i \approx u                      decoded value      (1)

Symbols:
    u             input
    \hat{x}       decoded value
    a_i, d_i      activity and decoder of neuron i
    T, D          time steps, dimensions of the input
"""

import math

import torch
from torch import Tensor

from engram.neurons.nef.network import NetworkObject
from engram.neurons.nef.system import NEFSystem


class PopulationCode(NEFSystem):
    """Represents a one-dimensional input."""

    def build(self) -> NetworkObject:
        x = self.new_ensemble()
        self.connect(self.input_node, x, tau_synapse_ms=0)
        return self.probe_output(x)  # (1)

    @staticmethod
    def example_input(t_s: Tensor) -> Tensor:
        """A sine of 0.5 Hz."""
        return torch.sin(2 * math.pi * 0.5 * t_s)[:, None]

    def target_output(self, u_TD: Tensor) -> Tensor:
        """The input itself."""
        return u_TD
