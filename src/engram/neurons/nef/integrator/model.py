r"""Neural integrator: an ensemble with a recurrent connection accumulates its input and keeps the sum.

    dx/dt = u                                               integrator         (1)

Symbols:
    x     represented value
    u     input
    T, D  time steps, dimensions of the input
"""

import torch
from torch import Tensor

from engram.neurons.nef.network import NetworkObject
from engram.neurons.nef.system import NEFSystem


class Integrator(NEFSystem):
    """Integrates a one-dimensional input over time."""

    def build(self) -> NetworkObject:
        x = self.new_ensemble()
        self.connect_dynamics(x, torch.zeros_like)  # (1)
        return self.probe_output(x)

    @staticmethod
    def example_input(t_s: Tensor) -> Tensor:
        """Pulses of +1, -1 and +1 with pauses between them, every 4 s."""
        within = t_s % 4
        up = ((within > 0.2) & (within <= 0.7)) | ((within > 2.7) & (within <= 3.2))
        down = (within > 1.2) & (within <= 2.2)
        return (up.double() - down.double())[:, None]

    def target_output(self, u_TD: Tensor) -> Tensor:
        """The integral of the input."""
        return u_TD.double().cumsum(0) * self.config.step_ms / 1000  # (1)
