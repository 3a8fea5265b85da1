r"""Membrane of a leaky integrate-and-fire (LIF) neuron in physical units.

    c dV/dt = J - g_L (V - V_L), \tau_m = c / g_L                                membrane, time constant       (1)
    v = (V - V_L) / (V_{th} - V_L), v_{in} = J / (g_L (V_{th} - V_L))            dimensionless form            (2)

Symbols:
    V, V_L, V_{th}        membrane potential, leak reversal potential, threshold, mV
    J                     injected current, µA/cm²
    c, g_L                capacitance, µF/cm², and leak conductance, mS/cm²
    v, v_{in}             dimensionless membrane potential and input
"""

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Gt
from torch import Tensor

from engram.core.errors import EngramError
from engram.neurons.finite import FiniteSettings


@dataclass(frozen=True, kw_only=True)
class Membrane(FiniteSettings):
    """Membrane parameters, and conversion to the dimensionless form and back."""

    c: Annotated[float, Gt(0)] = 1.0
    """membrane capacitance, µF/cm²"""
    g_L: Annotated[float, Gt(0)] = 0.05
    """leak conductance, mS/cm²"""
    V_L: float = -65.0
    """reversal potential of the leak, mV"""
    V_th: float = -50.0
    """spike threshold, mV; above V_L"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.V_th > self.V_L:
            raise EngramError(f"V_th must be above V_L ({self.V_L}), not {self.V_th}.")

    @property
    def tau_m_ms(self) -> float:
        return self.c / self.g_L  # (1)

    def normalize_voltage(self, V: Tensor) -> Tensor:
        """Dimensionless membrane potential of V in mV."""
        return (V - self.V_L) / (self.V_th - self.V_L)  # (2)

    def voltage_mV(self, v: Tensor) -> Tensor:
        """Membrane potential in mV of a dimensionless one."""
        return self.V_L + v * (self.V_th - self.V_L)

    def normalize_current(self, J: Tensor) -> Tensor:
        """Dimensionless input of a current in µA/cm²."""
        return J / (self.g_L * (self.V_th - self.V_L))  # (2)

    def current(self, v_in: Tensor) -> Tensor:
        """Current in µA/cm² of a dimensionless input."""
        return v_in * self.g_L * (self.V_th - self.V_L)
