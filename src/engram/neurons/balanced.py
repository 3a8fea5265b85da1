"""A network in which excitation and inhibition hold each other (van Vreeswijk & Sompolinsky 1996; Brunel 2000).

N_e excitatory and N_i inhibitory LIF neurons, each heard by any other with the probability p

    w_e = w,   w_i = -g w                                   inhibition is fewer and stronger                    (1)
    every neuron hears Poisson spikes of weight w at the rate nu from outside                                   (2)

With g above N_e / N_i the mean input stays near the threshold and spikes come from its fluctuations: irregular, and
hardly correlated.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.core.learner import Batch, Metrics
from engram.core.seeding import generator
from engram.neurons.lif import Spikes
from engram.neurons.network import Network, Recording, State


class Balanced(Network):
    """Two groups that hear each other and the outside. `state` holds v and s of every neuron."""

    state: Tensor

    @dataclass(frozen=True, kw_only=True)
    class Config:
        excitatory: int = 3200
        """neurons that excite (N_e)"""
        inhibitory: int = 800
        """neurons that inhibit (N_i)"""
        probability: float = 0.02
        """part of all pairs that is connected (p)"""
        weight: float = 2.0
        """weight of an excitatory synapse (w)"""
        inhibition: float = 6.0
        """how much stronger an inhibitory one is (g)"""
        outside_hz: float = 700.0
        """spikes per second that each neuron hears from outside (nu)"""
        delay_ms: float = 1.5
        """time that a spike takes"""
        tau_m_ms: float = 20.0
        """time constant of the membranes, ms"""
        tau_ref_ms: float = 2.0
        """time after a spike in which nothing happens, ms"""
        tau_s_ms: float = 5.0
        """time constant of the synapses, ms"""
        step_ms: float = 0.1
        """time step, ms"""
        wiring: int = 0
        """number that the connections are drawn from"""

        def __post_init__(self) -> None:
            for name in ("excitatory", "inhibitory"):
                if getattr(self, name) < 1:
                    raise EngramError(f"{name} must be at least 1, not {getattr(self, name)}.")

    def __init__(self, config: Config | None = None) -> None:
        self_config = config or self.Config()
        super().__init__(self_config.step_ms)
        self.config = c = self_config
        g = generator(c.wiring, "wiring")
        times = {"tau_m_ms": c.tau_m_ms, "tau_ref_ms": c.tau_ref_ms, "tau_s_ms": c.tau_s_ms}
        self.excitatory, self.inhibitory = self.lif(c.excitatory, **times), self.lif(c.inhibitory, **times)
        for source, weight in ((self.excitatory, c.weight), (self.inhibitory, -c.inhibition * c.weight)):  # (1)
            for target in (self.excitatory, self.inhibitory):
                self.connect(source, target, weight=weight, probability=c.probability, delay_ms=c.delay_ms, generator=g)
        for target in (self.excitatory, self.inhibitory):
            self.poisson(target, rate_hz=c.outside_hz, weight=c.weight)  # (2)
        self.register_buffer("state", torch.zeros(2, self.neurons, dtype=torch.float64))

    def forward(self, steps: int) -> Recording:
        """What happens from silence on."""
        return self.step(self.rest(generator(self.config.wiring, "outside")), steps)[1]


class Living:
    """The learner of a network: a batch is a stretch of time, in which all spikes are kept."""

    def __init__(self, model: Balanced, random: torch.Generator, watched: int) -> None:
        self.model, self.watched = model, watched
        self.state = model.rest(random)
        self.time_ms, self.neuron = torch.zeros(0, dtype=torch.float64), torch.zeros(0, dtype=torch.int64)
        self.v_TR = torch.zeros(0, watched, dtype=torch.float64)

    def step(self, batch: Batch) -> Metrics:
        began_ms = self.state.passed * self.model.step_ms
        self.state, recording = self.model.step(self.state, batch["steps"], record=range(self.watched))
        self.model.state.copy_(torch.from_numpy(np.stack([self.state.v_N, self.state.s_N])))
        self.time_ms = torch.cat([self.time_ms, torch.from_numpy(recording.spikes.time_ms) + began_ms])
        self.neuron = torch.cat([self.neuron, torch.from_numpy(recording.spikes.neuron)])
        self.v_TR = torch.cat([self.v_TR, recording.v_TR])
        groups = {"excitatory_hz": self.model.excitatory, "inhibitory_hz": self.model.inhibitory}
        return {name: torch.tensor(recording.rate_hz(group)) for name, group in groups.items()}

    @property
    def passed_ms(self) -> float:
        return self.state.passed * self.model.step_ms

    def spikes(self) -> Spikes:
        """All spikes so far, neuron after neuron."""
        return Spikes.sorted(self.time_ms.numpy(), self.neuron.numpy())

    def state_dict(self) -> dict[str, Any]:
        names = ("v_N", "s_N", "wait_N", "hh_4H", "recent", "recent_count")
        arrays = {name: torch.from_numpy(getattr(self.state, name)) for name in names}
        kept = {"time_ms": self.time_ms, "neuron": self.neuron, "v_TR": self.v_TR}
        random = torch.from_numpy(self.state.random.view(np.int64))
        return {"passed": self.state.passed, "random": random, **arrays, **kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        array = {name: value.numpy().copy() for name, value in state.items() if isinstance(value, Tensor)}
        self.state = State(
            array["v_N"], array["s_N"], array["wait_N"], array["hh_4H"], state["passed"], array["recent"],
            array["recent_count"], array["random"].view(np.uint64),
        )  # fmt: skip
        self.time_ms, self.neuron, self.v_TR = state["time_ms"], state["neuron"], state["v_TR"]


def irregularity(spikes: Spikes, neurons: int) -> Tensor:
    """Standard deviation of the intervals over their mean, of each neuron with more than three spikes."""
    trains = np.split(spikes.time_ms, np.searchsorted(spikes.neuron, np.arange(1, neurons)))
    gaps = [np.diff(train) for train in trains if len(train) > 3]
    return torch.tensor([gap.std() / gap.mean() for gap in gaps], dtype=torch.float64)
