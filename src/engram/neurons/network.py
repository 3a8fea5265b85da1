"""Spiking networks: groups of neurons that excite and inhibit each other (note 003 §2.5).   N neurons, M synapses

    tau_m dv_i/dt = s_i + input_i - v_i                     outside the refractory period; LIF neurons          (1)
    c dV_i/dt = s_i + input_i - ...                         Hodgkin–Huxley neurons: s is a current              (2)
    tau_s ds_i/dt = -s_i                                                                                        (3)
    a spike of j:   s_i += w_ji / tau_s                     a delay later, for all i that j is connected to     (4)

(1) and (3) are linear, and one step of length D is exact:

    v <- v e_m + (1 - e_m) input + s tau_s (e_s - e_m) / (tau_s - tau_m)        e_m = e^(-D / tau_m)            (5)
    s <- s e_s                                                                  e_s = e^(-D / tau_s)            (6)

Spikes fall at the ends of steps, as everywhere where neurons hear each other. What a spike costs is what it reaches:
each neuron's synapses lie side by side, and nothing is done for those that are silent.

    net = Network(step_ms=0.1)
    excited, calm = net.lif(3200, input=1.1), net.lif(800, input=1.1)
    net.connect(excited, calm, weight=2.0, probability=0.02, delay_ms=1.5, generator=g)
    net.poisson(excited, rate_hz=500.0, weight=1.0)
    state, recording = net.step(net.rest(), steps=10_000, record=[0, 1])
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
from engram.neurons.hodgkin_huxley import THRESHOLD_MV, HodgkinHuxley
from engram.neurons.lif import Spikes, by_neuron
from engram.neurons.network_kernel import SYNAPSE, WIDE, Circuit, Watched, advance, aligned

Array = NDArray[np.float64]
MOST_SYNAPSES = 10**9
LIF_ROWS = ("tau_m_ms", "tau_ref_ms", "tau_s_ms", "input")


@dataclass(frozen=True)
class Group:
    """Some neurons of a network: a range of their numbers."""

    first: int
    count: int

    @property
    def numbers(self) -> slice:
        return slice(self.first, self.first + self.count)


@dataclass(frozen=True)
class Recording:
    """What happened: all spikes, and the chosen neurons' voltage and synaptic input after each step, T×R."""

    spikes: Spikes
    v_TR: Tensor
    s_TR: Tensor
    duration_ms: float

    def rate_hz(self, group: Group) -> float:
        """Mean rate of a group."""
        inside = (self.spikes.neuron >= group.first) & (self.spikes.neuron < group.first + group.count)
        return float(inside.sum()) / group.count / self.duration_ms * 1000


@dataclass
class State:
    """All that the future depends on."""

    v_N: Array
    s_N: Array
    wait_N: NDArray[np.int64]
    """steps that a LIF neuron still has to wait"""
    hh_4H: Array
    """V, m, h, n of the Hodgkin–Huxley neurons"""
    passed: int
    """steps so far"""
    recent: NDArray[np.int64]
    """neurons that fired in the last steps, as many steps as the longest delay"""
    recent_count: NDArray[np.int64]
    """and how many in each of those steps"""
    random: NDArray[np.uint64]
    """where the generator of Poisson spikes stands"""


@dataclass
class Projection:
    """Synapses with one delay: where, from whom, to whom, how strong."""

    delay: int
    source: list[NDArray[np.int64]] = field(default_factory=list)
    target: list[NDArray[np.int64]] = field(default_factory=list)
    weight: list[Array] = field(default_factory=list)


class Network(nn.Module):
    """Groups of LIF or Hodgkin–Huxley neurons and their connections."""

    def __init__(self, step_ms: float = 0.1) -> None:
        super().__init__()
        if not 0 < step_ms < math.inf:
            raise EngramError(f"step_ms must be greater than 0, not {step_ms}.")
        self.step_ms = step_ms
        self.groups: list[Group] = []
        self._rows: list[dict[str, Array]] = []
        self._hh: list[HodgkinHuxley] = []
        self._projections: dict[int, Projection] = {}
        self._poisson: list[tuple[Group, float, float]] = []
        self._built: Circuit | None = None

    @property
    def neurons(self) -> int:
        return sum(group.count for group in self.groups)

    def lif(
        self, count: int, *, tau_m_ms: Any = 20.0, tau_ref_ms: Any = 2.0, tau_s_ms: Any = 5.0, input: Any = 0.0
    ) -> Group:
        """Add LIF neurons; each value is one for all, or one for each."""
        if self._hh:
            raise EngramError("LIF neurons come first: add them before the Hodgkin–Huxley neurons.")
        given = {"tau_m_ms": tau_m_ms, "tau_ref_ms": tau_ref_ms, "tau_s_ms": tau_s_ms, "input": input}
        return self._add(count, given, positive=("tau_m_ms", "tau_s_ms"))

    def hodgkin_huxley(self, model: HodgkinHuxley, *, tau_s_ms: Any = 5.0, input: Any = 0.0) -> Group:
        """Add Hodgkin–Huxley neurons, with the parameters that the model has."""
        if model.config.step_ms != self.step_ms:
            raise EngramError(f"The neurons have a step of {model.config.step_ms} ms, the network of {self.step_ms}.")
        given = {"tau_m_ms": 1.0, "tau_ref_ms": 0.0, "tau_s_ms": tau_s_ms, "input": input}
        group = self._add(model.config.neurons, given, positive=("tau_s_ms",))
        self._hh.append(model)
        return group

    def _add(self, count: int, given: dict[str, Any], positive: tuple[str, ...]) -> Group:
        if count < 1:
            raise EngramError(f"A group has at least one neuron, not {count}.")
        rows = {}
        for name, value in given.items():
            row = np.asarray(value, np.float64)
            if row.shape not in ((), (count,)):
                raise EngramError(f"{name} must be one number or {count}, not of shape {row.shape}.")
            if not np.isfinite(row).all() or (name in positive and (row <= 0).any()):
                raise EngramError(f"{name} must be finite{' and greater than 0' if name in positive else ''}.")
            if name == "tau_ref_ms" and (row < 0).any():
                raise EngramError("tau_ref_ms must not be negative.")
            rows[name] = np.broadcast_to(row, count).copy()
        group = Group(self.neurons, count)
        self.groups.append(group)
        self._rows.append(rows)
        self._built = None
        return group

    def connect(
        self,
        source: Group,
        target: Group,
        *,
        weight: Any,
        probability: float | None = None,
        delay_ms: float = 0.0,
        generator: torch.Generator | None = None,
        to_itself: bool = False,
    ) -> None:
        """Connect two groups.

        `weight` is a matrix source × target (dense, or sparse of torch's or SciPy's: zeros are no synapses), or one
        number for all pairs, of which each exists with `probability`. Without `to_itself` no neuron is connected to
        itself.
        """
        if not 0 <= delay_ms < math.inf:
            raise EngramError(f"delay_ms must be at least 0, not {delay_ms}.")
        delay, own = round(delay_ms / self.step_ms), source == target and not to_itself
        if isinstance(weight, Tensor) or np.ndim(weight) or hasattr(weight, "tocoo"):
            if probability is not None:
                raise EngramError("A matrix of weights says itself which synapses there are: leave probability out.")
            row, column, value = from_matrix(weight, source.count, target.count)
        else:
            if not math.isfinite(weight):
                raise EngramError(f"weight must be finite, not {weight}.")
            row, column = drawn_pairs(source.count, target.count, probability, generator)
            value = np.full(len(row), float(weight))
        kept = row != column if own else np.ones(len(row), bool)
        projection = self._projections.setdefault(delay, Projection(delay))
        projection.source.append(row[kept] + source.first)
        projection.target.append(column[kept] + target.first)
        projection.weight.append(value[kept])
        self._built = None

    def poisson(self, target: Group, *, rate_hz: float, weight: float) -> None:
        """Let each neuron of a group hear spikes of its own that come at random."""
        if not 0 <= rate_hz < math.inf:
            raise EngramError(f"rate_hz must be at least 0, not {rate_hz}.")
        if not math.isfinite(weight):
            raise EngramError(f"weight must be finite, not {weight}.")
        self._poisson.append((target, rate_hz, weight))
        self._built = None

    @property
    def synapses(self) -> int:
        return sum(len(weight) for projection in self._projections.values() for weight in projection.weight)

    def weights(self, source: Group, target: Group) -> Tensor:
        """The weights from one group to another, of all delays together, source × target."""
        matrix = torch.zeros(source.count, target.count, dtype=torch.float64)
        for projection in self._projections.values():
            for row, column, value in zip(projection.source, projection.target, projection.weight, strict=True):
                here = (row >= source.first) & (row < source.first + source.count)
                here &= (column >= target.first) & (column < target.first + target.count)
                place = torch.from_numpy(row[here] - source.first), torch.from_numpy(column[here] - target.first)
                matrix.index_put_(place, torch.from_numpy(value[here]), accumulate=True)
        return matrix

    def rest(self, generator: torch.Generator | None = None) -> State:
        """Silence; the generator is for Poisson spikes."""
        N, longest = self.neurons, max(self._projections, default=0)
        hh_4H = np.concatenate([model.rest().numpy() for model in self._hh], 1) if self._hh else np.zeros((4, 0))
        v_N = np.concatenate([np.zeros(N - hh_4H.shape[1]), hh_4H[0]])
        seed = torch.randint(2**62, (1,), generator=generator).numpy().astype(np.uint64)
        return State(
            v_N, np.zeros(N), np.zeros(N, np.int64), hh_4H, 0, np.zeros(0, np.int64), np.zeros(longest, np.int64), seed
        )

    def step(
        self, state: State, steps: int, *, input_TN: Tensor | None = None, record: Any = ()
    ) -> tuple[State, Recording]:
        """Advance by `steps`; `input_TN` comes on top of the groups' own, `record` names neurons to watch.

        Times begin with 0 at the first of these steps.
        """
        N, longest = self.neurons, max(self._projections, default=0)
        if steps < 0:
            raise EngramError(f"steps must not be negative, and is {steps}.")
        if len(state.v_N) != N or len(state.recent_count) != longest:
            raise EngramError("The state is of another network, or of this one before it grew: begin with rest().")
        input_TN = None if input_TN is None else torch.as_tensor(input_TN)
        if input_TN is not None and tuple(input_TN.shape) != (steps, N):
            raise EngramError(f"The input must be of shape {steps}×{N}, not {tuple(input_TN.shape)}.")
        watched = np.asarray(list(record), np.int64)
        if len(watched) and not 0 <= watched.min() <= watched.max() < N:
            raise EngramError(f"Neurons to record are numbered from 0 to {N - 1}.")
        extra_TN = np.zeros((0, N)) if input_TN is None else input_TN.double().contiguous().numpy()
        seen = Watched(watched, np.empty((steps, len(watched))), np.empty((steps, len(watched))))
        new = State(
            state.v_N.copy(), state.s_N.copy(), state.wait_N.copy(), state.hh_4H.copy(), state.passed + steps,
            state.recent, state.recent_count, state.random.copy(),
        )  # fmt: skip
        fired, count_T = advance(new, self._build(), extra_TN, steps, seen)
        everyone = np.concatenate([state.recent, fired])
        new.recent_count = np.concatenate([state.recent_count, count_T])[steps:] if longest else state.recent_count
        new.recent = everyone[len(everyone) - new.recent_count.sum() :]
        time_ms = np.repeat(np.arange(1, steps + 1) * self.step_ms, count_T)
        recording = Recording(
            by_neuron(time_ms, fired, N), torch.from_numpy(seen.v_TR), torch.from_numpy(seen.s_TR), steps * self.step_ms
        )
        return new, recording

    def _build(self) -> Circuit:
        """What the kernel reads, made when it is first needed."""
        if self._built is None:
            if not self.groups:
                raise EngramError("The network has no neurons yet.")
            rows = {name: np.concatenate([row[name] for row in self._rows]) for name in LIF_ROWS}
            self._built = Circuit(
                **constants(rows, self.step_ms, self.neurons - sum(model.config.neurons for model in self._hh)),
                **self._synapses(rows["tau_s_ms"]),
                **self._noise(),
                hh_8H=hh_parameters(self._hh),
                step_ms=self.step_ms,
                threshold_mV=THRESHOLD_MV,
            )
        return self._built

    def _synapses(self, tau_s_N: Array) -> dict[str, Any]:
        """By delay: where each source's synapses begin, whom they reach, and by how much s rises there."""
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

    def _noise(self) -> dict[str, Any]:
        groups = [(group.first, group.count) for group, _, _ in self._poisson]
        per_step = [group.count * rate * self.step_ms / 1000 for group, rate, _ in self._poisson]
        return {
            "noisy_Q2": np.array(groups, np.int64).reshape(-1, 2),
            "per_step_Q": np.array(per_step, np.float64),
            "noise_weight_Q": np.array([weight for _, _, weight in self._poisson], np.float64),
        }


def constants(rows: dict[str, Array], step_ms: float, lif: int) -> dict[str, Any]:
    """The factors of (5) and (6) for each neuron, the first `lif` of which are LIF, and which blocks are alike."""
    tau_m, tau_s = rows["tau_m_ms"], rows["tau_s_ms"]
    e_m, e_s = np.exp(-step_ms / tau_m), np.exp(-step_ms / tau_s)
    alike = np.isclose(tau_m, tau_s, rtol=1e-9)
    apart = np.where(alike, 1.0, tau_s - tau_m)
    from_s = np.where(alike, step_ms / tau_m * e_m, tau_s * (e_s - e_m) / apart)  # (5), and its limit
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
        "hold_N": np.round(rows["tau_ref_ms"] / step_ms).astype(np.int64),
        "edge_B": edges,
        "alike_B": np.array([bool(np.ptp(m) == 0 and np.ptp(s) == 0) for m, s in blocks], bool),
    }


def hh_parameters(models: list[HodgkinHuxley]) -> Array:
    if not models:
        return np.zeros((8, 0))
    return torch.cat([model.parameters_8N for model in models], 1).numpy()


def from_matrix(weight: Any, rows: int, columns: int) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
    """The synapses of a matrix."""
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


def drawn_pairs(
    rows: int, columns: int, probability: float | None, generator: torch.Generator | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs, each with the same probability: the distance from one to the next is geometric, so only they are drawn."""
    pairs = rows * columns
    if pairs * (1 if probability is None else probability) > MOST_SYNAPSES:
        raise EngramError(
            f"{rows:,} × {columns:,} pairs with a probability of {probability or 1} are more than {MOST_SYNAPSES:,} "
            "synapses, for which there is hardly memory: take fewer neurons or a lower probability."
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
