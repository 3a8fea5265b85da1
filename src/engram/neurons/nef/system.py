r"""NEF systems: an ensemble that implements a differential equation, and its simulation.

Dynamics is the third principle of the Neural Engineering Framework (NEF; Eliasmith & Anderson 2003). The synapse of a
recurrent connection integrates, so decoding \tau f(x) + x makes an ensemble follow dx/dt = f(x) + u.

    x = h * (\tau f(x) + x + \tau u)                recurrent connection and input, filtered by the synapse      (1)
    h(t) = \exp(-t / \tau) / \tau                   impulse response of the synapse                              (2)

Symbols:
    x             represented vector
    f             right-hand side of the differential equation
    u             input
    h             impulse response of the synapse
    \tau          time constant of the synapse
    T, D, K       time steps, dimensions of the input and of the output
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from engram.core.learner import Batch, Metrics
from engram.core.tap import tap
from engram.neurons.finite import FiniteSettings
from engram.neurons.nef.ensemble import Ensemble
from engram.neurons.nef.network import NEFNetwork, NetworkObject, State
from engram.neurons.spikes import Spikes


@dataclass(frozen=True, kw_only=True)
class NEFConfig(FiniteSettings):
    """Settings of all NEF systems."""

    neurons: Annotated[int, Ge(1)] = 1000
    """neurons of each ensemble"""
    tau_synapse_ms: Annotated[float, Gt(0)] = 100.0
    """time constant of the synapses between ensembles and of recurrent connections, ms"""
    tau_probe_ms: Annotated[float, Gt(0)] = 10.0
    """time constant of the synapse that filters the probed output, ms"""
    spiking: bool = True
    """spiking LIF neurons instead of firing rates"""
    step_ms: Annotated[float, Gt(0)] = 1.0
    """time step, ms"""
    ensemble_seed: int = 0
    """seed of encoders, maximal rates and intercepts"""


class NEFSystem(NEFNetwork):
    """A network with one input node and one output probe; `v_N` holds the membrane potentials."""

    v_N: Tensor
    input_dimensions: ClassVar[int] = 1
    """dimensions of the input (D)"""
    output_names: ClassVar[tuple[str, ...]] = ("x",)
    """names of the dimensions of the output (K)"""
    Config: ClassVar[type[NEFConfig]] = NEFConfig

    def __init__(self, config: NEFConfig | None = None) -> None:
        self_config = config or self.Config()
        super().__init__(self_config.step_ms, spiking=self_config.spiking)
        self.config = self_config
        self.input_node = self.add_node(self.input_dimensions)
        self.output_probe = self.build()
        self.register_buffer("v_N", torch.from_numpy(self.init_state().v_N))

    def build(self) -> NetworkObject:
        """Add ensembles and connections; returns the probe of the output."""
        raise NotImplementedError

    def new_ensemble(self, dimensions: int = 1, radius: float = 1.0, seed_offset: int = 0) -> NetworkObject:
        """Add an ensemble with the configured number of neurons."""
        seed = self.config.ensemble_seed + seed_offset
        config = Ensemble.Config(neurons=self.config.neurons, dimensions=dimensions, radius=radius, seed=seed)
        return self.add_ensemble(config)

    def connect_dynamics(self, x: NetworkObject, f: Callable[[Tensor], Tensor]) -> None:
        """Connect an ensemble to itself and to the input so that it follows dx/dt = f(x) + u, time in seconds."""
        tau_ms, tau_s = self.config.tau_synapse_ms, self.config.tau_synapse_ms / 1000
        self.connect(x, x, function=lambda value: value + tau_s * f(value), tau_synapse_ms=tau_ms)  # (1)
        self.connect(self.input_node, x, transform=tau_s, tau_synapse_ms=tau_ms)  # (1)

    def probe_output(self, source: NetworkObject) -> NetworkObject:
        """Add a probe with the configured synapse."""
        return self.add_probe(source, tau_synapse_ms=self.config.tau_probe_ms)

    @staticmethod
    def example_input(t_s: Tensor) -> Tensor:
        """An input signal that demonstrates the system, T×D."""
        raise NotImplementedError

    def target_output(self, u_TD: Tensor) -> Tensor:
        """The exact output that the neurons approximate, T×K."""
        raise NotImplementedError

    def forward(self, u_TD: Tensor) -> Tensor:
        """The probed output from rest, T×K."""
        _, recording = self.step(self.init_state(self.init_generator()), {self.input_node: u_TD})
        return tap("output", recording.probes[self.output_probe])

    def init_generator(self) -> torch.Generator:
        """Generator of the initial membrane potentials."""
        return torch.Generator().manual_seed(self.config.ensemble_seed)


class NEFSimulation:
    """Simulates a NEF system window by window, as a learner.

    Keeps its input and output and the newest spikes.
    """

    def __init__(self, model: NEFSystem, generator: torch.Generator | None = None) -> None:
        self.model = model
        self.state = model.init_state(generator or model.init_generator())
        self.input_TD = torch.zeros(0, model.input_dimensions, dtype=torch.float64)
        self.output_TK = torch.zeros(0, len(model.output_names), dtype=torch.float64)
        self.spikes = Spikes(torch.zeros(0).double().numpy(), torch.zeros(0).long().numpy())

    def step(self, batch: Batch) -> Metrics:
        u_TD = batch["input"].double()
        start_ms = self.state.elapsed_steps * self.model.step_ms
        self.state, recording = self.model.step(self.state, {self.model.input_node: u_TD})
        self.model.v_N.copy_(torch.from_numpy(self.state.v_N))
        self.output_TK = torch.cat([self.output_TK, recording.probes[self.model.output_probe]])
        self.input_TD = torch.cat([self.input_TD, u_TD])
        self.spikes = Spikes(recording.spikes.time_ms + start_ms, recording.spikes.neuron)
        neurons, seconds = len(self.state.v_N), len(u_TD) * self.model.step_ms / 1000
        return {"firing_rate_hz": torch.tensor(len(recording.spikes.neuron) / neurons / seconds)}

    @property
    def time_s(self) -> Tensor:
        """Times of the output, s."""
        return torch.arange(1, len(self.output_TK) + 1) * self.model.step_ms / 1000

    def rmse(self) -> float:
        """Root mean square error of the output."""
        return (self.output_TK - self.model.target_output(self.input_TD)).square().mean().sqrt().item()

    def state_dict(self) -> dict[str, Any]:
        state = {name: torch.from_numpy(getattr(self.state, name)) for name in ("v_N", "refractory_N", "y")}
        spikes = {
            "spike_ms": torch.from_numpy(self.spikes.time_ms),
            "spike_neuron": torch.from_numpy(self.spikes.neuron),
        }
        recorded = {"input": self.input_TD, "output": self.output_TK}
        return {"elapsed_steps": self.state.elapsed_steps, **recorded, **state, **spikes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        v_N, refractory_N, y = (state[name].numpy().copy() for name in ("v_N", "refractory_N", "y"))
        self.state = State(v_N, refractory_N, y, state["elapsed_steps"])
        self.input_TD, self.output_TK = state["input"], state["output"]
        self.spikes = Spikes(state["spike_ms"].numpy(), state["spike_neuron"].numpy())
