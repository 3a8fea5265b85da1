r"""Spiking networks: groups of neurons connected by synapses with weights and delays.

    \tau_m dv_i/dt = s_i + u_i - v_i                                    LIF neuron, not refractory                (1)
    c dV_i/dt = s_i + u_i - I_{ion}                                     Hodgkin–Huxley neuron: s is a current     (2)
    \tau_s ds_i/dt = -s_i                                               synaptic current                          (3)
    s_i \leftarrow s_i + w_{ji} / \tau_s                                spike of j, one delay later               (4)
    v \leftarrow v e_m + (1 - e_m) u + s \tau_s (e_s - e_m) / (\tau_s - \tau_m)     exact step of (1)             (5)
    s \leftarrow s e_s                                                  exact step of (3)                         (6)
    e_m = \exp(-D / \tau_m), e_s = \exp(-D / \tau_s)                    decay per time step                       (7)

Spikes fall on the ends of time steps. The synapses of each presynaptic neuron are stored side by side, and silent
neurons cost nothing.

    net = SpikingNetwork(step_ms=0.1)
    excitatory, inhibitory = net.add_lif(3200, input=1.1), net.add_lif(800, input=1.1)
    net.connect(excitatory, inhibitory, weight=2.0, probability=0.02, delay_ms=1.5, generator=g)
    net.add_poisson_input(excitatory, rate_hz=500.0, weight=1.0)
    state, recording = net.step(net.init_state(), steps=10_000, record=[0, 1])

Symbols:
    v, V, s               membrane potential (dimensionless, in mV), synaptic current
    u                     external input
    w_{ji}                weight from presynaptic neuron j to postsynaptic neuron i
    \tau_m, \tau_s        membrane and synaptic time constants
    I_{ion}               ionic currents
    D                     time step
    N, M, T, R            neurons, synapses, time steps, recorded neurons
"""

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.neurons.hodgkin_huxley.model import THRESHOLD_MV, HodgkinHuxley
from engram.neurons.spikes import Spikes, sort_by_neuron
from engram.neurons.spiking_network.kernel import SYNAPSE, WIDE, Circuit, Monitor, aligned, run_steps

Array = NDArray[np.float64]
MAX_SYNAPSES = 10**9
LIF_ROWS = ("tau_m_ms", "tau_ref_ms", "tau_s_ms", "input")


@dataclass(frozen=True)
class NeuronGroup:
    """A range of neurons of a network."""

    first: int
    count: int

    @property
    def numbers(self) -> slice:
        return slice(self.first, self.first + self.count)


@dataclass(frozen=True)
class Recording:
    """All spikes, and potential and synaptic current of the recorded neurons after each step, T×R."""

    spikes: Spikes
    v_TR: Tensor
    s_TR: Tensor
    duration_ms: float

    def firing_rate_hz(self, group: NeuronGroup) -> float:
        """Mean firing rate of a group."""
        inside = (self.spikes.neuron >= group.first) & (self.spikes.neuron < group.first + group.count)
        return float(inside.sum()) / group.count / self.duration_ms * 1000


@dataclass
class State:
    """State of a network between two calls of `step`."""

    v_N: Array
    s_N: Array
    refractory_N: NDArray[np.int64]
    """remaining refractory time of LIF neurons, in time steps"""
    hh_4H: Array
    """V, m, h, n of the Hodgkin–Huxley neurons"""
    elapsed_steps: int
    """time steps so far"""
    recent: NDArray[np.int64]
    """neurons that fired within the longest delay, in order of time"""
    recent_count: NDArray[np.int64]
    """spikes per time step within the longest delay (see `recent`)"""
    random: NDArray[np.uint64]
    """state of the random number generator of Poisson inputs"""


@dataclass
class Projection:
    """Synapses with one delay: presynaptic neurons, postsynaptic neurons and weights."""

    delay: int
    source: list[NDArray[np.int64]] = field(default_factory=list)
    target: list[NDArray[np.int64]] = field(default_factory=list)
    weight: list[Array] = field(default_factory=list)


class SpikingNetwork(nn.Module):
    """Groups of LIF and Hodgkin–Huxley neurons, synapses and Poisson inputs."""

    def __init__(self, step_ms: float = 0.1) -> None:
        super().__init__()
        if not 0 < step_ms < math.inf:
            raise EngramError(f"step_ms must be above 0, not {step_ms}.")
        self.step_ms = step_ms
        self.groups: list[NeuronGroup] = []
        self._rows: list[dict[str, Array]] = []
        self._hh: list[HodgkinHuxley] = []
        self._projections: dict[int, Projection] = {}
        self._poisson: list[tuple[NeuronGroup, float, float]] = []
        self._built: Circuit | None = None

    @property
    def neurons(self) -> int:
        return sum(group.count for group in self.groups)

    def add_lif(
        self, count: int, *, tau_m_ms: Any = 20.0, tau_ref_ms: Any = 2.0, tau_s_ms: Any = 5.0, input: Any = 0.0
    ) -> NeuronGroup:
        """Add LIF neurons; each parameter is one number, or one per neuron."""
        if self._hh:
            raise EngramError("LIF neurons come first: add them before the Hodgkin–Huxley neurons.")
        given = {"tau_m_ms": tau_m_ms, "tau_ref_ms": tau_ref_ms, "tau_s_ms": tau_s_ms, "input": input}
        return self._add(count, given, positive=("tau_m_ms", "tau_s_ms"))

    def add_hodgkin_huxley(self, model: HodgkinHuxley, *, tau_s_ms: Any = 5.0, input: Any = 0.0) -> NeuronGroup:
        """Add Hodgkin–Huxley neurons with the parameters of the model."""
        if model.config.step_ms != self.step_ms:
            raise EngramError(f"The neurons have a step of {model.config.step_ms} ms, the network of {self.step_ms}.")
        given = {"tau_m_ms": 1.0, "tau_ref_ms": 0.0, "tau_s_ms": tau_s_ms, "input": input}
        group = self._add(model.config.neurons, given, positive=("tau_s_ms",))
        self._hh.append(model)
        return group

    def _add(self, count: int, given: dict[str, Any], positive: tuple[str, ...]) -> NeuronGroup:
        if count < 1:
            raise EngramError(f"A group has at least one neuron, not {count}.")
        rows = {}
        for name, value in given.items():
            row = np.asarray(value, np.float64)
            if row.shape not in ((), (count,)):
                raise EngramError(f"{name} must be one number or {count}, not of shape {row.shape}.")
            if not np.isfinite(row).all() or (name in positive and (row <= 0).any()):
                raise EngramError(f"{name} must be finite{' and above 0' if name in positive else ''}.")
            if name == "tau_ref_ms" and (row < 0).any():
                raise EngramError("tau_ref_ms must not be negative.")
            rows[name] = np.broadcast_to(row, count).copy()
        group = NeuronGroup(self.neurons, count)
        self.groups.append(group)
        self._rows.append(rows)
        self._built = None
        return group

    def connect(
        self,
        source: NeuronGroup,
        target: NeuronGroup,
        *,
        weight: Any,
        probability: float | None = None,
        delay_ms: float = 0.0,
        generator: torch.Generator | None = None,
        autapses: bool = False,
    ) -> None:
        """Connect a presynaptic group to a postsynaptic one.

        `weight` is a matrix source × target (dense, or sparse of PyTorch or SciPy; zeros are no synapses), or one
        number for all pairs, each of which exists with `probability`. Without `autapses` no neuron connects to itself.
        """
        if not 0 <= delay_ms < math.inf:
            raise EngramError(f"delay_ms must be at least 0, not {delay_ms}.")
        delay, no_autapses = round(delay_ms / self.step_ms), source == target and not autapses
        if isinstance(weight, Tensor) or np.ndim(weight) or hasattr(weight, "tocoo"):
            if probability is not None:
                raise EngramError("A matrix of weights says itself which synapses there are: leave probability out.")
            row, column, value = synapses_from_matrix(weight, source.count, target.count)
        else:
            if not math.isfinite(weight):
                raise EngramError(f"weight must be finite, not {weight}.")
            row, column = sample_pairs(source.count, target.count, probability, generator)
            value = np.full(len(row), float(weight))
        kept = row != column if no_autapses else np.ones(len(row), bool)
        projection = self._projections.setdefault(delay, Projection(delay))
        projection.source.append(row[kept] + source.first)
        projection.target.append(column[kept] + target.first)
        projection.weight.append(value[kept])
        self._built = None

    def add_poisson_input(self, target: NeuronGroup, *, rate_hz: float, weight: float) -> None:
        """Add an independent Poisson input to each neuron of a group."""
        if not 0 <= rate_hz < math.inf:
            raise EngramError(f"rate_hz must be at least 0, not {rate_hz}.")
        if not math.isfinite(weight):
            raise EngramError(f"weight must be finite, not {weight}.")
        self._poisson.append((target, rate_hz, weight))
        self._built = None

    @property
    def synapses(self) -> int:
        return sum(len(weight) for projection in self._projections.values() for weight in projection.weight)

    def weights(self, source: NeuronGroup, target: NeuronGroup) -> Tensor:
        """Weight matrix from one group to another, summed over delays, source × target."""
        matrix = torch.zeros(source.count, target.count, dtype=torch.float64)
        for projection in self._projections.values():
            for row, column, value in zip(projection.source, projection.target, projection.weight, strict=True):
                here = (row >= source.first) & (row < source.first + source.count)
                here &= (column >= target.first) & (column < target.first + target.count)
                place = torch.from_numpy(row[here] - source.first), torch.from_numpy(column[here] - target.first)
                matrix.index_put_(place, torch.from_numpy(value[here]), accumulate=True)
        return matrix

    def init_state(self, generator: torch.Generator | None = None) -> State:
        """The resting state; the generator seeds the Poisson inputs."""
        N, longest = self.neurons, max(self._projections, default=0)
        hh_4H = np.concatenate([model.init_state().numpy() for model in self._hh], 1) if self._hh else np.zeros((4, 0))
        v_N = np.concatenate([np.zeros(N - hh_4H.shape[1]), hh_4H[0]])
        seed = torch.randint(2**62, (1,), generator=generator).numpy().astype(np.uint64)
        return State(
            v_N, np.zeros(N), np.zeros(N, np.int64), hh_4H, 0, np.zeros(0, np.int64), np.zeros(longest, np.int64), seed
        )

    def step(
        self, state: State, steps: int, *, input_TN: Tensor | None = None, record: Any = ()
    ) -> tuple[State, Recording]:
        """Simulate `steps` time steps.

        `input_TN` adds to the groups' inputs, `record` lists neurons to record.

        Spike times are relative to the start.
        """
        N, longest = self.neurons, max(self._projections, default=0)
        if steps < 0:
            raise EngramError(f"steps must not be negative, and is {steps}.")
        if len(state.v_N) != N or len(state.recent_count) != longest:
            raise EngramError(
                "The state is of another network, or of this one before it grew: start with init_state()."
            )
        input_TN = None if input_TN is None else torch.as_tensor(input_TN)
        if input_TN is not None and tuple(input_TN.shape) != (steps, N):
            raise EngramError(f"The input must be of shape {steps}×{N}, not {tuple(input_TN.shape)}.")
        recorded = np.asarray(list(record), np.int64)
        if len(recorded) and not 0 <= recorded.min() <= recorded.max() < N:
            raise EngramError(f"Neurons to record are numbered from 0 to {N - 1}.")
        extra_TN = np.zeros((0, N)) if input_TN is None else input_TN.double().contiguous().numpy()
        monitor = Monitor(recorded, np.empty((steps, len(recorded))), np.empty((steps, len(recorded))))
        new = State(
            state.v_N.copy(), state.s_N.copy(), state.refractory_N.copy(), state.hh_4H.copy(),
            state.elapsed_steps + steps, state.recent, state.recent_count, state.random.copy(),
        )  # fmt: skip
        fired, count_T = run_steps(new, self._build(), extra_TN, steps, monitor)
        all_fired = np.concatenate([state.recent, fired])
        new.recent_count = np.concatenate([state.recent_count, count_T])[steps:] if longest else state.recent_count
        new.recent = all_fired[len(all_fired) - new.recent_count.sum() :]
        time_ms = np.repeat(np.arange(1, steps + 1) * self.step_ms, count_T)
        recording = Recording(
            sort_by_neuron(time_ms, fired, N),
            torch.from_numpy(monitor.v_TR),
            torch.from_numpy(monitor.s_TR),
            steps * self.step_ms,
        )
        return new, recording

    def _build(self) -> Circuit:
        """Arrays of the kernel, built when first needed."""
        if self._built is None:
            if not self.groups:
                raise EngramError("The network has no neurons yet.")
            rows = {name: np.concatenate([row[name] for row in self._rows]) for name in LIF_ROWS}
            self._built = Circuit(
                **neuron_constants(rows, self.step_ms, self.neurons - sum(model.config.neurons for model in self._hh)),
                **self._synapses(rows["tau_s_ms"]),
                **self._poisson_inputs(),
                hh_8H=hh_parameters(self._hh),
                step_ms=self.step_ms,
                threshold_mV=THRESHOLD_MV,
            )
        return self._built

    def _synapses(self, tau_s_N: Array) -> dict[str, Any]:
        """Synapses in compressed sparse rows, by delay: row offsets, postsynaptic neurons, and jumps of s."""
        delays, N = sorted(self._projections), self.neurons
        begin_PN = np.zeros((len(delays), N + 1), np.int64)
        synapses, offset = [np.zeros(0, SYNAPSE)], 0
        for p, delay in enumerate(delays):
            one = self._projections[delay]
            source, target, weight = (np.concatenate(part) for part in (one.source, one.target, one.weight))
            order = np.argsort(source, kind="stable")
            begin_PN[p, 1:] = np.cumsum(np.bincount(source, minlength=N))
            begin_PN[p] += offset
            offset += len(source)
            synapses.append(np.empty(len(source), SYNAPSE))
            synapses[-1]["target"], synapses[-1]["jump"] = target[order], weight[order] / tau_s_N[target[order]]
        return {
            "delay_P": np.array(delays, np.int64),
            "begin_PN": begin_PN,
            "synapse_M": np.concatenate(synapses),
        }

    def _poisson_inputs(self) -> dict[str, Any]:
        groups = [(group.first, group.count) for group, _, _ in self._poisson]
        spikes_per_step = [group.count * rate * self.step_ms / 1000 for group, rate, _ in self._poisson]
        return {
            "poisson_group_Q2": np.array(groups, np.int64).reshape(-1, 2),
            "poisson_per_step_Q": np.array(spikes_per_step, np.float64),
            "poisson_weight_Q": np.array([weight for _, _, weight in self._poisson], np.float64),
        }


def neuron_constants(rows: dict[str, Array], step_ms: float, lif: int) -> dict[str, Any]:
    """Factors of (5) and (6) for each neuron, the first `lif` being LIF, and blocks with equal factors."""
    tau_m, tau_s = rows["tau_m_ms"], rows["tau_s_ms"]
    e_m, e_s = np.exp(-step_ms / tau_m), np.exp(-step_ms / tau_s)  # (7)
    equal = np.isclose(tau_m, tau_s, rtol=1e-9)
    difference = np.where(equal, 1.0, tau_s - tau_m)
    from_s = np.where(equal, step_ms / tau_m * e_m, tau_s * (e_s - e_m) / difference)  # (5), and its limit
    gain = np.where(np.arange(len(e_m)) < lif, 1 - e_m, 1.0)
    edges = np.array([*range(0, lif, WIDE), lif], np.int64)
    blocks = [(tau_m[first:last], tau_s[first:last]) for first, last in pairwise(edges)]
    return {
        "e_m_N": aligned(e_m),
        "e_s_N": aligned(e_s),
        "from_s_N": aligned(from_s),
        "gain_N": aligned(gain),
        "base_N": aligned(gain * rows["input"]),
        "tau_s_N": tau_s,
        "refractory_steps_N": np.round(rows["tau_ref_ms"] / step_ms).astype(np.int64),
        "edge_B": edges,
        "uniform_B": np.array([bool(np.ptp(m) == 0 and np.ptp(s) == 0) for m, s in blocks], bool),
    }


def hh_parameters(models: list[HodgkinHuxley]) -> Array:
    """Parameters of all Hodgkin–Huxley neurons, 8×H."""
    if not models:
        return np.zeros((8, 0))
    return torch.cat([model.parameters_8N for model in models], 1).numpy()


def synapses_from_matrix(weight: Any, rows: int, columns: int) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
    """Rows, columns and values of a dense or sparse weight matrix."""
    if hasattr(weight, "tocoo"):  # SciPy's
        entries = weight.tocoo()
        place = torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64))
        weight = torch.sparse_coo_tensor(place, torch.from_numpy(entries.data), entries.shape, check_invariants=True)
    matrix = weight if isinstance(weight, Tensor) else torch.as_tensor(np.asarray(weight))
    if tuple(matrix.shape) != (rows, columns):
        raise EngramError(f"The weights must be of shape {rows}×{columns}, not {tuple(matrix.shape)}.")
    sparse = matrix.to_sparse_coo().coalesce()
    row, column = sparse.indices().numpy()
    value = sparse.values().double().numpy()
    if not np.isfinite(value).all():
        raise EngramError("The weights must be finite.")
    return row.astype(np.int64), column.astype(np.int64), value


def sample_pairs(
    rows: int, columns: int, probability: float | None, generator: torch.Generator | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sample each pair with the same probability, by geometric distances from one to the next."""
    pairs = rows * columns
    if pairs * (1 if probability is None else probability) > MAX_SYNAPSES:
        raise EngramError(
            f"{rows:,} × {columns:,} pairs with a probability of {probability or 1} are more than {MAX_SYNAPSES:,} "
            "synapses: take fewer neurons or a lower probability."
        )
    if probability is None or probability == 1:
        chosen = np.arange(pairs)
    elif not 0 <= probability <= 1:
        raise EngramError(f"probability is from 0 to 1, not {probability}.")
    elif probability == 0:
        chosen = np.zeros(0, np.int64)
    else:
        expected = pairs * probability
        enough = int(expected + 10 * math.sqrt(expected) + 10)
        u = torch.rand(enough, dtype=torch.float64, generator=generator).clamp(min=1e-300)
        gap = torch.floor(torch.log(u) / math.log1p(-probability)).long() + 1
        chosen = (gap.cumsum(0) - 1).numpy()
        chosen = chosen[chosen < pairs]
    return chosen // columns, chosen % columns
