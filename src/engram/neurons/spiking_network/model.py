r"""Balanced network of excitatory and inhibitory neurons.

van Vreeswijk & Sompolinsky 1996; Brunel 2000.

Leaky integrate-and-fire (LIF) neurons, any pair connected with probability p:

    w_e = w, w_i = -g w                                     excitatory and inhibitory weight          (1)
    \nu_{ext}, w                                            rate and weight of the Poisson input      (2)

With g above N_e / N_i the mean input stays near the threshold, and its fluctuations cause irregular, asynchronous
spikes.

Symbols:
    N_e, N_i      numbers of excitatory and inhibitory neurons
    w, g          synaptic weight, relative strength of inhibition
    p             connection probability
    \nu_{ext}     rate of the external Poisson input to each neuron
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from engram.core.seeding import generator
from engram.neurons.finite import FiniteSettings
from engram.neurons.spikes import Spikes
from engram.neurons.spiking_network.network import Recording, SpikingNetwork


class BrunelNetwork(SpikingNetwork):
    """An excitatory and an inhibitory group with Poisson input.

    `state` holds v and s of every neuron (2×N).
    """

    state: Tensor

    @dataclass(frozen=True, kw_only=True)
    class Config(FiniteSettings):
        excitatory: Annotated[int, Ge(1)] = 3200
        """number of excitatory neurons (N_e)"""
        inhibitory: Annotated[int, Ge(1)] = 800
        """number of inhibitory neurons (N_i)"""
        probability: Annotated[float, Ge(0), Le(1)] = 0.02
        """connection probability of each pair of neurons (p)"""
        weight: float = 2.0
        """weight of an excitatory synapse (w)"""
        inhibition: float = 6.0
        """strength of inhibition relative to excitation (g)"""
        poisson_rate_hz: Annotated[float, Ge(0)] = 700.0
        """rate of the external Poisson input to each neuron, Hz; 0 disables"""
        delay_ms: Annotated[float, Ge(0)] = 1.5
        """synaptic delay, ms"""
        tau_m_ms: Annotated[float, Gt(0)] = 20.0
        """membrane time constant, ms"""
        tau_ref_ms: Annotated[float, Ge(0)] = 2.0
        """refractory period, ms; 0 means none"""
        tau_s_ms: Annotated[float, Gt(0)] = 5.0
        """synaptic time constant, ms"""
        step_ms: Annotated[float, Gt(0)] = 0.1
        """time step, ms"""
        connection_seed: int = 0
        """seed of the random connections"""

    def __init__(self, config: Config | None = None) -> None:
        self_config = config or self.Config()
        super().__init__(self_config.step_ms)
        self.config = c = self_config
        g = generator(c.connection_seed, "wiring")
        times = {"tau_m_ms": c.tau_m_ms, "tau_ref_ms": c.tau_ref_ms, "tau_s_ms": c.tau_s_ms}
        self.excitatory, self.inhibitory = self.add_lif(c.excitatory, **times), self.add_lif(c.inhibitory, **times)
        for source, weight in ((self.excitatory, c.weight), (self.inhibitory, -c.inhibition * c.weight)):  # (1)
            for target in (self.excitatory, self.inhibitory):
                self.connect(source, target, weight=weight, probability=c.probability, delay_ms=c.delay_ms, generator=g)
        for target in (self.excitatory, self.inhibitory):
            self.add_poisson_input(target, rate_hz=c.poisson_rate_hz, weight=c.weight)  # (2)
        self.register_buffer("state", torch.zeros(2, self.neurons, dtype=torch.float64))

    def forward(self, steps: int) -> Recording:
        """Recording of `steps` time steps from rest."""
        return self.step(self.init_state(generator(self.config.connection_seed, "outside")), steps)[1]


def isi_cv(spikes: Spikes, neurons: int) -> Tensor:
    """Coefficient of variation (CV) of interspike intervals (ISI) of neurons with more than three spikes."""
    trains = np.split(spikes.time_ms, np.searchsorted(spikes.neuron, np.arange(1, neurons)))
    intervals = [np.diff(train) for train in trains if len(train) > 3]
    return torch.tensor([interval.std() / interval.mean() for interval in intervals], dtype=torch.float64)
