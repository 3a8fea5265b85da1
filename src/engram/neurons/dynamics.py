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
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.neurons.kernels import compiled, inlined
from engram.neurons.lif import Spikes, by_neuron
from engram.neurons.population import Function, Population

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
SMALL = 0.1
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
        parts, done = [(np.zeros(0, np.int64), np.zeros(0))], 0
        while done < T:
            fired, when = np.empty(room, np.int64), np.empty(room)
            done, count = _advance(
                new.v_N, new.wait_N, new.y, circuit, u_TU, probed_TR, fired, when, done, self.spiking
            )
            parts.append((fired[:count], when[:count]))
        who, times_ms = (np.concatenate(every) for every in zip(*parts, strict=True)) if len(parts) > 2 else parts[-1]
        spikes = by_neuron(times_ms, who, len(new.v_N))
        widths = [node.dimensions for node in self._all("probe")]
        seen = torch.from_numpy(probed_TR).split(widths, 1) if widths else []
        return new, Recording(dict(zip(self._all("probe"), seen, strict=True)), spikes)

    def _circuit(self) -> "Circuit":
        pops = [self.of(node) for node in self._all("population")]
        widest = max((pop.config.dimensions for pop in pops), default=1)
        scaled = [pop.encoder_ND * (pop.gain_N / pop.config.radius)[:, None] for pop in pops]
        padded = [nn.functional.pad(E_ND, (0, widest - E_ND.shape[1])) for E_ND in scaled]
        first = {"population": 0, "probe": sum(pop.config.dimensions for pop in pops), "input": 0}
        place = dict[Node, int]()
        for node in self.nodes:
            place[node] = first[node.kind]
            first[node.kind] += node.dimensions
        constant = {name: torch.cat([torch.full((pop.config.neurons,), getattr(pop.config, name)) for pop in pops])
                    for name in ("tau_m_ms", "tau_ref_ms")} if pops else {}  # fmt: skip
        links, step = self.links, self.step_ms
        return Circuit(
            encoder_DN=torch.cat(padded).T.contiguous().numpy() if pops else np.zeros((1, 0)),
            bias_N=torch.cat([pop.bias_N for pop in pops]).numpy() if pops else np.zeros(0),
            tau_N=constant["tau_m_ms"].double().numpy() if pops else np.zeros(0),
            wait_N=constant["tau_ref_ms"].double().numpy() if pops else np.zeros(0),
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


class Circuit(NamedTuple):
    """An assembly as the kernel reads it: P populations, C connections."""

    encoder_DN: Array
    """times gain, by radius, and filled up with zeros to the widest population"""
    bias_N: Array
    tau_N: Array
    wait_N: Array
    first_P: Integers
    """first neuron"""
    place_P: Integers
    """where its value stands among all values"""
    wide_P: Integers
    source_C: Integers
    """population, or -1 for an input"""
    from_C: Integers
    to_C: Integers
    rows_C: Integers
    wide_C: Integers
    begin_C: Integers
    weights: Array
    kept_C: Array
    immediate_C: NDArray[np.bool_]
    probed: int
    """from where on values are those of probes"""
    values: int
    step_ms: float
    small: bool
    """whether a step is so much shorter than every tau that a series does"""


@compiled
def _advance(
    v_N: Array, wait_N: Array, y: Array, circuit: Circuit, u_TU: Array, probed_TR: Array, fired: Integers, when: Array,
    first: int, spiking: bool,
) -> tuple[int, int]:  # fmt: skip
    """Advance as far as there is room for spikes: the step that was reached, and how many spikes."""
    x, fresh, J_N, count = np.zeros(circuit.values), np.zeros(len(y)), np.empty_like(v_N), 0
    everyone = np.arange(len(v_N))
    for t in range(first, len(u_TU)):
        if spiking and len(fired) - count < len(v_N):
            return t, count
        x[:] = 0
        fresh[:] = 0
        _inputs(circuit, u_TU[t], fresh)
        _gather(circuit, y, fresh, x)
        for p in range(len(circuit.place_P)):
            _drive(circuit, p, x, J_N)
            if spiking:
                before = count
                count = _population(circuit, p, v_N, wait_N, J_N, fired, when, count, t)
                _read(circuit, p, fired[before:count], J_N, True, fresh)
            else:
                _rates(circuit, p, J_N, J_N)
                _read(circuit, p, everyone[circuit.first_P[p] : circuit.first_P[p + 1]], J_N, False, fresh)
        k = 0
        for c in range(len(circuit.kept_C)):
            for _ in range(circuit.wide_C[c]):
                y[k] = circuit.kept_C[c] * y[k] + (1 - circuit.kept_C[c]) * fresh[k]  # (4)
                k += 1
        x[:] = 0
        _gather(circuit, y, y, x)
        for r in range(circuit.values - circuit.probed):
            probed_TR[t, r] = x[circuit.probed + r]
    return len(u_TU), count


@inlined
def _inputs(circuit: Circuit, u_U: Array, fresh: Array) -> None:
    """What connections from inputs carry."""
    k = 0
    for c in range(len(circuit.source_C)):
        wide = circuit.wide_C[c]
        if circuit.source_C[c] < 0:
            for row in range(circuit.rows_C[c]):
                for j in range(wide):
                    fresh[k + j] += circuit.weights[circuit.begin_C[c] + row * wide + j] * u_U[circuit.from_C[c] + row]
        k += wide


@inlined
def _gather(circuit: Circuit, y: Array, fresh: Array, x: Array) -> None:
    """What reaches each value; connections without a synapse carry what is fresh."""
    k = 0
    for c in range(len(circuit.to_C)):
        for j in range(circuit.wide_C[c]):
            x[circuit.to_C[c] + j] += fresh[k] if circuit.immediate_C[c] else y[k]
            k += 1


@inlined
def _population(
    circuit: Circuit, p: int, v_N: Array, wait_N: Array, J_N: Array, fired: Integers, when: Array, count: int, t: int
) -> int:
    """One step of spiking neurons: all at once through the time in which they do not wait, then those that fire."""
    step, here = circuit.step_ms, slice(circuit.first_P[p], circuit.first_P[p + 1])
    v, wait, J, tau = v_N[here], wait_N[here], J_N[here], circuit.tau_N[here]
    if circuit.small:
        for i in range(len(v)):
            v[i] = max(v[i] - (J[i] - v[i]) * _expm1_series(min(wait[i] - step, 0.0) / tau[i]), 0.0)
            wait[i] = max(wait[i] - step, 0.0)
    else:
        for i in range(len(v)):
            v[i] = max(v[i] - (J[i] - v[i]) * math.expm1(min(wait[i] - step, 0.0) / tau[i]), 0.0)
            wait[i] = max(wait[i] - step, 0.0)
    for i in range(len(v)):
        if v[i] > 1:
            early = tau[i] * _log1p(-(v[i] - 1) / (J[i] - 1))  # how long before the end, negative
            fired[count], when[count] = circuit.first_P[p] + i, (t + 1) * step + early
            count += 1
            v[i], wait[i] = 0.0, circuit.wait_N[circuit.first_P[p] + i] + early
    return count


@inlined
def _expm1_series(x: float) -> float:
    """e^x - 1 for |x| <= SMALL."""
    series = 1 / 5040 + x * (1 / 40320 + x * (1 / 362880 + x * (1 / 3628800)))
    return x * (1 + x * (1 / 2 + x * (1 / 6 + x * (1 / 24 + x * (1 / 120 + x * (1 / 720 + x * series))))))


@inlined
def _log1p(x: float) -> float:
    """ln(1 + x), by the series of artanh where x is small."""
    if abs(x) > SMALL:
        return math.log1p(x)
    z = x / (2 + x)
    q = z * z
    return 2 * z * (1 + q * (1 / 3 + q * (1 / 5 + q * (1 / 7 + q * (1 / 9 + q * (1 / 11 + q * (1 / 13)))))))


@inlined
def _rates(circuit: Circuit, p: int, J_N: Array, rate_N: Array) -> None:
    """Activities of neurons that are their rates."""
    for i in range(circuit.first_P[p], circuit.first_P[p + 1]):
        silent = J_N[i] <= 1
        rate_N[i] = 0.0 if silent else 1000 / (circuit.wait_N[i] - circuit.tau_N[i] * math.log1p(-1 / J_N[i]))


@inlined
def _drive(circuit: Circuit, p: int, x: Array, J_N: Array) -> None:
    """The input of every neuron of a population."""
    here = slice(circuit.first_P[p], circuit.first_P[p + 1])
    J, bias = J_N[here], circuit.bias_N[here]
    for i in range(len(J)):
        J[i] = bias[i]
    for d in range(circuit.wide_P[p]):
        E, value = circuit.encoder_DN[d, here], x[circuit.place_P[p] + d]
        for i in range(len(J)):
            J[i] += E[i] * value  # (2)


@inlined
def _read(circuit: Circuit, p: int, who: Integers, activity_N: Array, spiking: bool, fresh: Array) -> None:
    """What the activities of some neurons mean to every connection from their population."""
    k, spike = 0, 1000 / circuit.step_ms
    for c in range(len(circuit.source_C)):
        wide = circuit.wide_C[c]
        if circuit.source_C[c] == p:
            for i in who:
                at = circuit.begin_C[c] + (i - circuit.first_P[p]) * wide
                for j in range(wide):
                    fresh[k + j] += circuit.weights[at + j] * (spike if spiking else activity_N[i])
        k += wide
