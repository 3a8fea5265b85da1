r"""Networks of the NEF (Eliasmith & Anderson 2003): ensembles, nodes and probes.

Transformation, the second principle: a connection decodes a function of the represented vector. Dynamics, the third
principle: a recurrent connection with its synapse integrates a differential equation (`system.NEFSystem`).

    W = D E                                                 weights, kept as decoders and encoders        (1)
    y = a D, J = \alpha (x E) / R + \beta                   N + M instead of N M multiplications          (2)
    \tau dx/dt = -x + y                                     first-order synapse                           (3)
    x \leftarrow k x + (1 - k) y, k = \exp(-h / \tau)       exact step of (3)                             (4)

With `spiking=False` activities are firing rates: a recurrent rate network.

    net = NEFNetwork()
    u, x = net.add_node(1), net.add_ensemble(Ensemble.Config(neurons=1000))
    net.connect(u, x, transform=0.1, tau_synapse_ms=100)
    net.connect(x, x, tau_synapse_ms=100)
    probe = net.add_probe(x, tau_synapse_ms=10)
    state, recording = net.step(net.init_state(), {u: signal_TD})

Symbols:
    a, x, y               activities, represented vector, decoded function
    D, E                  decoders, encoders
    \alpha, \beta, R      gain, bias, radius
    J                     input of the neurons
    \tau, h               time constant of the synapse, time step
    T, N, M               time steps, presynaptic and postsynaptic neurons
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.neurons.nef.ensemble import Ensemble, Function
from engram.neurons.nef.kernel import SMALL, Circuit, run_steps
from engram.neurons.spikes import Spikes, sort_by_neuron

Array = NDArray[np.float64]
MAX_SPIKES = 1 << 22
"""size limit of the spike buffer"""


@dataclass(frozen=True)
class NetworkObject:
    """A node (input), an ensemble or a probe of a network."""

    kind: Literal["node", "ensemble", "probe"]
    index: int
    dimensions: int


@dataclass(frozen=True)
class Connection:
    """A connection: decoders N×K of an ensemble or matrix D×K of a node, and a synapse's time constant."""

    source: NetworkObject
    target: NetworkObject
    weights: Tensor
    tau_synapse_ms: float


@dataclass
class State:
    """Membrane potential and remaining refractory time of each neuron, filtered value of each connection."""

    v_N: Array
    refractory_N: Array
    y: Array
    elapsed_steps: int


@dataclass(frozen=True)
class Recording:
    """Values of the probes after each time step, and all spikes."""

    probes: Mapping[NetworkObject, Tensor]
    spikes: Spikes


class NEFNetwork(nn.Module):
    """Ensembles, nodes and probes, and the connections between them."""

    def __init__(self, step_ms: float = 1.0, *, spiking: bool = True) -> None:
        super().__init__()
        if not 0 < step_ms < math.inf:
            raise EngramError(f"step_ms must be above 0, not {step_ms}.")
        self.step_ms, self.spiking = step_ms, spiking
        self.ensembles = nn.ModuleList()
        self.objects: list[NetworkObject] = []
        self.connections: list[Connection] = []
        self._built: Circuit | None = None
        self._fired, self._fired_ms = np.empty(0, np.int64), np.empty(0)  # reused buffer of spikes

    def add_node(self, dimensions: int) -> NetworkObject:
        """Add an input node."""
        return self._add("node", dimensions)

    def add_ensemble(self, config: Ensemble.Config | Ensemble) -> NetworkObject:
        """Add an ensemble."""
        ensemble = config if isinstance(config, Ensemble) else Ensemble(config)
        if self.spiking and ensemble.config.tau_ref_ms < self.step_ms:
            raise EngramError(
                f"tau_ref_ms must be at least the step ({self.step_ms} ms), not {ensemble.config.tau_ref_ms}."
            )
        self.ensembles.append(ensemble)
        return self._add("ensemble", ensemble.config.dimensions)

    def add_probe(
        self, source: NetworkObject, function: Function | None = None, *, tau_synapse_ms: float = 10.0
    ) -> NetworkObject:
        """Add a probe of the represented vector, or of a function of it, filtered by a synapse."""
        weights = self._decoders(source, function, None)
        probe = self._add("probe", weights.shape[1])
        self.connections.append(Connection(source, probe, weights, self._check_tau(source, tau_synapse_ms)))
        return probe

    def _add(self, kind: Literal["node", "ensemble", "probe"], dimensions: int) -> NetworkObject:
        if dimensions < 1:
            raise EngramError(f"A represented vector has at least one dimension, not {dimensions}.")
        self._built = None
        self.objects.append(NetworkObject(kind, sum(item.kind == kind for item in self.objects), dimensions))
        return self.objects[-1]

    def ensemble(self, item: NetworkObject) -> Ensemble:
        """The ensemble of a network object."""
        found = self.ensembles[item.index]
        assert isinstance(found, Ensemble)
        return found

    def connect(
        self,
        source: NetworkObject,
        target: NetworkObject,
        *,
        function: Function | None = None,
        transform: Any = None,
        tau_synapse_ms: float = 5.0,
        decoders: Tensor | None = None,
    ) -> None:
        """Connect a node or a decoded function to an ensemble, times a transform (target × K)."""
        if target.kind != "ensemble":
            raise EngramError(f"A connection ends in an ensemble, not in a {target.kind}.")
        weights = self._decoders(source, function, decoders)
        if transform is not None:
            matrix = torch.as_tensor(transform, dtype=torch.float64)
            matrix = matrix * torch.eye(target.dimensions, dtype=torch.float64) if matrix.ndim == 0 else matrix
            if matrix.shape != (target.dimensions, weights.shape[1]):
                need = f"{target.dimensions}×{weights.shape[1]}"
                raise EngramError(f"The transform must be of shape {need}, not {tuple(matrix.shape)}.")
            weights = weights @ matrix.T
        if weights.shape[1] != target.dimensions:
            raise EngramError(f"{weights.shape[1]} dimensions do not fit into {target.dimensions} without a transform.")
        self.connections.append(Connection(source, target, weights, self._check_tau(source, tau_synapse_ms)))
        self._built = None

    def _decoders(self, source: NetworkObject, function: Function | None, decoders: Tensor | None) -> Tensor:
        if source.kind == "ensemble":
            return self.ensemble(source).solve_decoders(function) if decoders is None else decoders.double()
        if source.kind == "probe" or function is not None or decoders is not None:
            raise EngramError("A function or decoders need an ensemble as the source.")
        return torch.eye(source.dimensions, dtype=torch.float64)

    def _check_tau(self, source: NetworkObject, tau_synapse_ms: float) -> float:
        if not 0 <= tau_synapse_ms < math.inf or (tau_synapse_ms == 0 and source.kind == "ensemble"):
            raise EngramError(f"tau_synapse_ms must be above 0, not {tau_synapse_ms}.")
        return tau_synapse_ms

    def init_state(self, generator: torch.Generator | None = None) -> State:
        """The resting state; a generator draws random initial membrane potentials."""
        neurons = sum(self.ensemble(node).config.neurons for node in self._all("ensemble"))
        v_N = torch.zeros(neurons, dtype=torch.float64)
        if generator is not None:
            v_N.uniform_(generator=generator)
        return State(v_N.numpy(), np.zeros(neurons), np.zeros(sum(one.weights.shape[1] for one in self.connections)), 0)

    def _all(self, kind: str) -> list[NetworkObject]:
        return [node for node in self.objects if node.kind == kind]

    def step(
        self, state: State, inputs: Mapping[NetworkObject, Tensor] | None = None, steps: int | None = None
    ) -> tuple[State, Recording]:
        """Simulate with the input of each node, T×D, one row per time step, or for `steps` without nodes.

        Spike times are relative to the start.
        """
        inputs = inputs or {}
        T = steps if steps is not None else max((len(value) for value in inputs.values()), default=0)
        for node in self._all("node"):
            if node not in inputs or tuple(inputs[node].shape) != (T, node.dimensions):
                raise EngramError(f"Node {node.index} needs an input of shape {T}×{node.dimensions}.")
        u_TU = torch.cat([torch.zeros(T, 0), *(inputs[node] for node in self._all("node"))], 1).double().numpy()
        circuit = self._built = self._built or self._circuit()
        new = State(state.v_N.copy(), state.refractory_N.copy(), state.y.copy(), state.elapsed_steps + T)
        probe_TR = np.empty((T, sum(node.dimensions for node in self._all("probe"))))
        capacity = min(len(new.v_N) * (T + 1), MAX_SPIKES) if self.spiking else 0
        if len(self._fired) < capacity:
            self._fired, self._fired_ms = np.empty(capacity, np.int64), np.empty(capacity)
        fired, fired_ms, chunks, done = self._fired, self._fired_ms, [], 0
        while done < T:
            done, count = run_steps(
                new.v_N, new.refractory_N, new.y, circuit, u_TU, probe_TR, fired, fired_ms, done, self.spiking
            )
            last = fired[:count], fired_ms[:count]
            chunks.append(last if done == T else (last[0].copy(), last[1].copy()))
        neuron, times_ms = chunks[0] if len(chunks) == 1 else (np.concatenate(c) for c in zip(*chunks, strict=True))
        spikes = sort_by_neuron(times_ms, neuron, len(new.v_N))
        widths = [node.dimensions for node in self._all("probe")]
        values = torch.from_numpy(probe_TR).split(widths, 1) if widths else []
        return new, Recording(dict(zip(self._all("probe"), values, strict=True)), spikes)

    def _circuit(self) -> Circuit:
        """Arrays of the kernel."""
        ensembles = [self.ensemble(node) for node in self._all("ensemble")]
        widest = max((one.config.dimensions for one in ensembles), default=1)
        scaled = [one.encoder_ND * (one.gain_N / one.config.radius)[:, None] for one in ensembles]
        padded = [nn.functional.pad(E_ND, (0, widest - E_ND.shape[1])) for E_ND in scaled]
        first = {"ensemble": 0, "probe": sum(one.config.dimensions for one in ensembles), "node": 0}
        offset = dict[NetworkObject, int]()
        for node in self.objects:
            offset[node] = first[node.kind]
            first[node.kind] += node.dimensions
        links, step = self.connections, self.step_ms
        return Circuit(
            encoder_DN=torch.cat(padded).T.contiguous().numpy() if ensembles else np.zeros((1, 0)),
            bias_N=torch.cat([one.bias_N for one in ensembles]).numpy() if ensembles else np.zeros(0),
            tau_P=np.array([one.config.tau_m_ms for one in ensembles], np.float64),
            tau_ref_P=np.array([one.config.tau_ref_ms for one in ensembles], np.float64),
            first_P=np.cumsum([0, *(one.config.neurons for one in ensembles)]),
            offset_P=np.array([offset[node] for node in self._all("ensemble")], np.int64),
            dimensions_P=np.array([one.config.dimensions for one in ensembles], np.int64),
            source_C=np.array([-1 if one.source.kind == "node" else one.source.index for one in links], np.int64),
            from_C=np.array([offset[one.source] for one in links], np.int64),
            to_C=np.array([offset[one.target] for one in links], np.int64),
            rows_C=np.array([one.weights.shape[0] for one in links], np.int64),
            dimensions_C=np.array([one.weights.shape[1] for one in links], np.int64),
            begin_C=np.cumsum([0, *(one.weights.numel() for one in links)]),
            weights=torch.cat([torch.zeros(0), *(one.weights.flatten() for one in links)]).double().numpy(),
            decay_C=np.array([math.exp(-step / one.tau_synapse_ms) if one.tau_synapse_ms else 0.0 for one in links]),
            immediate_C=np.array([one.tau_synapse_ms == 0 for one in links]),
            probe_offset=first["ensemble"],
            values=first["probe"],
            step_ms=step,
            small=all(step / one.config.tau_m_ms <= SMALL for one in ensembles),
        )
