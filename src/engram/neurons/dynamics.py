"""Transformations and dynamics: populations that compute with what they hold (note 003 §27–28; Eliasmith & Anderson
2003).   N neurons, D dimensions, K dimensions of a connection, T steps, D the step where it stands alone

    W = D E                                                 a connection, kept as decoders and encoders         (1)
    y = D' a,   J = alpha (E x) / r + beta                  so it costs N + M numbers instead of N M            (2)
    tau dx/dt = -x + y                                      the synapse between; held during a step:            (3)
    x <- k x + (1 - k) y,   k = e^(-D / tau)                                                                    (4)

A population connected to itself by the function tau f(x) + x, with input tau u, runs through (3) as

    dx/dt = f(x) + u                                        an integrator for f = 0, an oscillator, Lorenz's    (5)

With `spiking=False` activities are the rates themselves: the recurrent rate network of the notes, tau ds/dt = -s +
rate(s) W + beta + C for currents s = E x, of which (3) keeps only the D numbers that matter.

    net = Assembly()
    u, x = net.input(1), net.population(Population.Config(neurons=1000))
    net.connect(u, x, transform=0.1, tau_ms=100)
    net.connect(x, x, tau_ms=100)
    seen = net.probe(x, tau_ms=10)
    state, recording = net.step(net.rest(), {u: signal_TD})
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.neurons.dynamics_kernel import SMALL, Circuit, advance
from engram.neurons.lif import Spikes, by_neuron
from engram.neurons.population import Function, Population

Array = NDArray[np.float64]
MOST_SPIKES = 1 << 22
"""for which room is taken at once"""


@dataclass(frozen=True)
class Node:
    """Something that holds a value: an input, a population, or a probe."""

    kind: str
    number: int
    dimensions: int


@dataclass(frozen=True)
class Link:
    """A connection: what is read off the source, N×K or D×K, and how slowly it reaches the target."""

    source: Node
    target: Node
    weights: Tensor
    tau_ms: float


@dataclass
class State:
    """All that the future depends on: each neuron's v and how long it has to wait, each connection's value."""

    v_N: Array
    wait_N: Array
    y: Array
    passed: int


@dataclass(frozen=True)
class Recording:
    """What the probes saw after each step, and all spikes."""

    probed: Mapping[Node, Tensor]
    spikes: Spikes


class Assembly(nn.Module):
    """Populations, inputs and probes, and the connections between them."""

    def __init__(self, step_ms: float = 1.0, *, spiking: bool = True) -> None:
        super().__init__()
        if not 0 < step_ms < math.inf:
            raise EngramError(f"step_ms must be greater than 0, not {step_ms}.")
        self.step_ms, self.spiking = step_ms, spiking
        self.populations = nn.ModuleList()
        self.nodes: list[Node] = []
        self.links: list[Link] = []
        self._built: Circuit | None = None
        self._fired, self._when = np.empty(0, np.int64), np.empty(0)  # room for spikes, used again and again

    def input(self, dimensions: int) -> Node:
        """A value from outside."""
        return self._node("input", dimensions)

    def population(self, config: Population.Config | Population) -> Node:
        made = config if isinstance(config, Population) else Population(config)
        if self.spiking and made.config.tau_ref_ms < self.step_ms:
            raise EngramError(
                f"tau_ref_ms must be at least the step ({self.step_ms} ms), not {made.config.tau_ref_ms}."
            )
        self.populations.append(made)
        return self._node("population", made.config.dimensions)

    def probe(self, source: Node, function: Function | None = None, *, tau_ms: float = 10.0) -> Node:
        """Something that looks on."""
        read = self._read(source, function, None)
        probe = self._node("probe", read.shape[1])
        self.links.append(Link(source, probe, read, self._tau(source, tau_ms)))
        return probe

    def _node(self, kind: str, dimensions: int) -> Node:
        if dimensions < 1:
            raise EngramError(f"A value has at least one dimension, not {dimensions}.")
        self._built = None
        self.nodes.append(Node(kind, sum(node.kind == kind for node in self.nodes), dimensions))
        return self.nodes[-1]

    def of(self, node: Node) -> Population:
        made = self.populations[node.number]
        assert isinstance(made, Population)
        return made

    def connect(
        self,
        source: Node,
        target: Node,
        *,
        function: Function | None = None,
        transform: Any = None,
        tau_ms: float = 5.0,
        decoders: Tensor | None = None,
    ) -> None:
        """Let a population hear a function of what another one holds, or an input, times a transform (target × K)."""
        if target.kind != "population":
            raise EngramError(f"A connection ends in a population, not in an {target.kind}.")
        read = self._read(source, function, decoders)
        if transform is not None:
            matrix = torch.as_tensor(transform, dtype=torch.float64)
            matrix = matrix * torch.eye(target.dimensions, dtype=torch.float64) if matrix.ndim == 0 else matrix
            if matrix.shape != (target.dimensions, read.shape[1]):
                need = f"{target.dimensions}×{read.shape[1]}"
                raise EngramError(f"The transform must be of shape {need}, not {tuple(matrix.shape)}.")
            read = read @ matrix.T
        if read.shape[1] != target.dimensions:
            raise EngramError(f"{read.shape[1]} dimensions do not fit into {target.dimensions} without a transform.")
        self.links.append(Link(source, target, read, self._tau(source, tau_ms)))
        self._built = None

    def _read(self, source: Node, function: Function | None, decoders: Tensor | None) -> Tensor:
        if source.kind == "population":
            return self.of(source).decoders(function) if decoders is None else decoders.double()
        if source.kind == "probe" or function is not None or decoders is not None:
            raise EngramError("A function is read off a population; an input comes as it is.")
        return torch.eye(source.dimensions, dtype=torch.float64)

    def _tau(self, source: Node, tau_ms: float) -> float:
        if not 0 <= tau_ms < math.inf or (tau_ms == 0 and source.kind == "population"):
            raise EngramError(f"tau_ms must be greater than 0, not {tau_ms}.")
        return tau_ms

    def rest(self, generator: torch.Generator | None = None) -> State:
        """Nothing is held yet; with a generator, neurons are not all equally far from their first spike."""
        neurons = sum(self.of(node).config.neurons for node in self._all("population"))
        v_N = torch.zeros(neurons, dtype=torch.float64)
        if generator is not None:
            v_N.uniform_(generator=generator)
        return State(v_N.numpy(), np.zeros(neurons), np.zeros(sum(link.weights.shape[1] for link in self.links)), 0)

    def _all(self, kind: str) -> list[Node]:
        return [node for node in self.nodes if node.kind == kind]

    def step(
        self, state: State, inputs: Mapping[Node, Tensor] | None = None, steps: int | None = None
    ) -> tuple[State, Recording]:
        """Advance with the inputs, each T×D and held during a step, or by `steps` where there are none.

        Times begin with 0 at the first of these steps.
        """
        inputs = inputs or {}
        T = steps if steps is not None else max((len(value) for value in inputs.values()), default=0)
        for node in self._all("input"):
            if node not in inputs or tuple(inputs[node].shape) != (T, node.dimensions):
                raise EngramError(f"Input {node.number} needs values of shape {T}×{node.dimensions}.")
        u_TU = torch.cat([torch.zeros(T, 0), *(inputs[node] for node in self._all("input"))], 1).double().numpy()
        circuit = self._built = self._built or self._circuit()
        new = State(state.v_N.copy(), state.wait_N.copy(), state.y.copy(), state.passed + T)
        probed_TR = np.empty((T, sum(node.dimensions for node in self._all("probe"))))
        room = min(len(new.v_N) * (T + 1), MOST_SPIKES) if self.spiking else 0
        if len(self._fired) < room:
            self._fired, self._when = np.empty(room, np.int64), np.empty(room)
        fired, when, parts, done = self._fired, self._when, [], 0
        while done < T:
            done, count = advance(new.v_N, new.wait_N, new.y, circuit, u_TU, probed_TR, fired, when, done, self.spiking)
            parts.append((fired[:count], when[:count]) if done == T else (fired[:count].copy(), when[:count].copy()))
        who, times_ms = parts[0] if len(parts) == 1 else (np.concatenate(every) for every in zip(*parts, strict=True))
        spikes = by_neuron(times_ms, who, len(new.v_N))
        widths = [node.dimensions for node in self._all("probe")]
        seen = torch.from_numpy(probed_TR).split(widths, 1) if widths else []
        return new, Recording(dict(zip(self._all("probe"), seen, strict=True)), spikes)

    def _circuit(self) -> Circuit:
        pops = [self.of(node) for node in self._all("population")]
        widest = max((pop.config.dimensions for pop in pops), default=1)
        scaled = [pop.encoder_ND * (pop.gain_N / pop.config.radius)[:, None] for pop in pops]
        padded = [nn.functional.pad(E_ND, (0, widest - E_ND.shape[1])) for E_ND in scaled]
        first = {"population": 0, "probe": sum(pop.config.dimensions for pop in pops), "input": 0}
        place = dict[Node, int]()
        for node in self.nodes:
            place[node] = first[node.kind]
            first[node.kind] += node.dimensions
        links, step = self.links, self.step_ms
        return Circuit(
            encoder_DN=torch.cat(padded).T.contiguous().numpy() if pops else np.zeros((1, 0)),
            bias_N=torch.cat([pop.bias_N for pop in pops]).numpy() if pops else np.zeros(0),
            tau_P=np.array([pop.config.tau_m_ms for pop in pops], np.float64),
            wait_P=np.array([pop.config.tau_ref_ms for pop in pops], np.float64),
            first_P=np.cumsum([0, *(pop.config.neurons for pop in pops)]),
            place_P=np.array([place[node] for node in self._all("population")], np.int64),
            wide_P=np.array([pop.config.dimensions for pop in pops], np.int64),
            source_C=np.array([-1 if link.source.kind == "input" else link.source.number for link in links], np.int64),
            from_C=np.array([place[link.source] for link in links], np.int64),
            to_C=np.array([place[link.target] for link in links], np.int64),
            rows_C=np.array([link.weights.shape[0] for link in links], np.int64),
            wide_C=np.array([link.weights.shape[1] for link in links], np.int64),
            begin_C=np.cumsum([0, *(link.weights.numel() for link in links)]),
            weights=torch.cat([torch.zeros(0), *(link.weights.flatten() for link in links)]).double().numpy(),
            kept_C=np.array([math.exp(-step / link.tau_ms) if link.tau_ms else 0.0 for link in links]),
            immediate_C=np.array([link.tau_ms == 0 for link in links]),
            probed=first["population"],
            values=first["probe"],
            step_ms=step,
            small=all(step / pop.config.tau_m_ms <= SMALL for pop in pops),
        )
