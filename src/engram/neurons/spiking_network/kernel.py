"""Numba kernel of spiking networks: the time loop. "network (n)" is equation (n) of `network`.

N neurons, of which the last H are Hodgkin–Huxley neurons in groups of L lanes; P delays, M synapses, Q Poisson inputs,
R recorded neurons. The spike log lists the neurons that fired, step by step, from the longest delay before the start.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engram.neurons.kernels import LANES, below, compiled, inlined, relax_gates, relax_voltage, update_gate_targets

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


WIDE = 64
"""LIF neurons per block: the threshold is checked block by block"""
LINE = 64
"""bytes of a cache line"""
SYNAPSE = np.dtype([("target", np.uint64), ("jump", np.float64)])
"""postsynaptic neuron and jump of s, interleaved for one cache miss"""
BELOW_1 = float(np.nextafter(1.0, 0.0))


class Circuit(NamedTuple):
    """Constants of the network: factors per neuron, and synapses per delay and presynaptic neuron."""

    e_m_N: Array
    e_s_N: Array
    from_s_N: Array
    gain_N: Array
    """factor of the input in a time step: 1 - e_m; 1 for Hodgkin–Huxley neurons"""
    base_N: Array
    """constant input times gain"""
    refractory_steps_N: Integers
    """refractory period of LIF neurons, in time steps"""
    edge_B: Integers
    """first LIF neuron of each block, and the end of the last"""
    uniform_B: NDArray[np.bool_]
    """whether e_m, e_s and from_s are equal within a block"""
    tau_s_N: Array
    delay_P: Integers
    """delays in time steps"""
    begin_PN: Integers
    """offset of the synapses of each presynaptic neuron"""
    synapse_M: NDArray[Any]
    """postsynaptic neuron and jump of s"""
    poisson_group_Q2: Integers
    """first neuron and number of neurons of each Poisson input"""
    poisson_per_step_Q: Array
    """expected Poisson spikes per time step, all neurons together"""
    poisson_weight_Q: Array
    hh_8H: Array
    """parameters of Hodgkin–Huxley neurons"""
    step_ms: float
    threshold_mV: float


class Lanes(NamedTuple):
    """Hodgkin–Huxley neurons in groups of lanes (padded), with the targets of their gates."""

    x_G4L: Array
    p_G8L: Array
    inf_G3L: Array
    decay_G3L: Array


class RefractoryQueue(NamedTuple):
    """Refractory neurons by the time step in which their refractory period ends: a ring of R linked lists.

    R is a power of two above the longest period. v of a refractory neuron is -inf, which no input changes.
    """

    until_N: Integers
    """time step in which the refractory period ends or ended"""
    first_R: Integers
    """first neuron of each list, -1 if empty"""
    next_N: Integers


class Monitor(NamedTuple):
    """Recorded neurons with their v and s."""

    neuron_R: Integers
    v_TR: Array
    s_TR: Array


def run_steps(state: Any, circuit: Circuit, extra_TN: Array, steps: int, monitor: Monitor) -> tuple[Integers, Integers]:
    """Advance the state in place; neurons that fired, in order of time, and their number per step."""
    N, before = len(state.v_N), len(state.recent_count)
    begin = np.zeros(before + steps + 1, np.int64)
    begin[1 : before + 1] = np.cumsum(state.recent_count)
    log = np.concatenate([state.recent, np.empty(max(4 * N, 1024), np.int64)])
    hh = split_lanes(state.hh_4H, circuit.hh_8H, circuit.step_ms)
    v_N, s_N = aligned(state.v_N), aligned(state.s_N)
    waiting = init_refractory_queue(v_N, state.refractory_N, circuit)
    changing = v_N, s_N, waiting, state.random
    done = 0
    while done < steps:
        if len(log) < begin[before + done] + N:
            log = np.concatenate([log, np.empty(len(log), np.int64)])
        done = _advance(*changing, circuit, hh, extra_TN, monitor, log, begin, before, done, steps)
    state.refractory_N[:] = np.maximum(waiting.until_N - steps, 0)
    state.v_N[:], state.s_N[:] = np.where(v_N == -np.inf, 0, v_N), s_N
    state.hh_4H[:] = hh.x_G4L.transpose(1, 0, 2).reshape(4, -1)[:, : state.hh_4H.shape[1]]
    return log[begin[before] : begin[-1]].copy(), np.diff(begin[before:])


def aligned(values: Array) -> Array:
    """A copy aligned to cache lines."""
    room = np.empty(values.nbytes + LINE, np.uint8)
    copy = room[-room.ctypes.data % LINE :][: values.nbytes].view(values.dtype)
    copy[:] = values
    return copy


def init_refractory_queue(v_N: Array, refractory_N: Integers, circuit: Circuit) -> RefractoryQueue:
    """The queue of neurons that are refractory at the start."""
    N, longest = len(v_N), int(max(circuit.refractory_steps_N.max(), refractory_N.max(), 1))
    waiting = RefractoryQueue(np.zeros(N, np.int64), np.full(2 ** longest.bit_length(), -1), np.full(N, -1))
    for neuron in np.nonzero(refractory_N)[0].tolist():
        _start_refractory(v_N, waiting, neuron, refractory_N[neuron])
    return waiting


@compiled
def _start_refractory(v_N: Array, waiting: RefractoryQueue, neuron: int, until: int) -> None:
    """Make a neuron refractory until a time step."""
    slot = until & (len(waiting.first_R) - 1)
    waiting.until_N[neuron], waiting.next_N[neuron] = until, waiting.first_R[slot]
    waiting.first_R[slot], v_N[neuron] = neuron, -np.inf


@inlined
def _end_refractory(v_N: Array, waiting: RefractoryQueue, t: int) -> None:
    """Reset the voltage of neurons whose refractory period has ended."""
    slot = t & (len(waiting.first_R) - 1)
    neuron = waiting.first_R[slot]
    waiting.first_R[slot] = -1
    while neuron >= 0:
        v_N[neuron] = 0.0
        neuron = waiting.next_N[neuron]


def split_lanes(hh_4H: Array, hh_8H: Array, step_ms: float) -> Lanes:
    """Hodgkin–Huxley neurons in groups of lanes."""
    H = hh_4H.shape[1]
    G = -(-H // LANES)

    def group(rows: Array, padding: float) -> Array:
        filled = np.full((len(rows), G * LANES), padding)
        filled[:, :H] = rows
        return np.ascontiguousarray(filled.reshape(len(rows), G, LANES).transpose(1, 0, 2))

    grouped = Lanes(group(hh_4H, 0.0), group(hh_8H, 1.0), np.empty((G, 3, LANES)), np.empty((G, 3, LANES)))
    for g in range(G):
        _aim(grouped.x_G4L[g], grouped.p_G8L[g], step_ms, grouped.inf_G3L[g], grouped.decay_G3L[g])
    return grouped


@compiled
def _aim(x_4L: Array, p_8L: Array, step_ms: float, inf_3L: Array, decay_3L: Array) -> None:
    update_gate_targets(x_4L, p_8L, step_ms / 2, inf_3L, decay_3L)


@compiled
def _advance(
    v_N: Array, s_N: Array, waiting: RefractoryQueue, random: NDArray[np.uint64], circuit: Circuit, hh: Lanes,
    extra_TN: Array, monitor: Monitor, log: Integers, begin: Integers, before: int, first: int, steps: int,
) -> int:  # fmt: skip
    """Advance until the log is full; returns the time step reached."""
    N, H = len(v_N), circuit.hh_8H.shape[1]
    for t in range(first, steps):
        now = before + t
        if len(log) - begin[now] < N:
            return t
        input_N = circuit.base_N if len(extra_TN) == 0 else circuit.base_N + circuit.gain_N * extra_TN[t]
        _end_refractory(v_N, waiting, t)
        count = _lif_step(v_N, s_N, waiting, circuit, input_N, t, log[begin[now] :])
        if H:
            count += _hh_step(v_N, s_N, hh, circuit, input_N, N - H, log[begin[now] + count :])
        begin[now + 1] = begin[now] + count
        for p in range(len(circuit.delay_P)):
            then = now - circuit.delay_P[p]
            if then >= 0:
                _deliver(s_N, circuit, p, log[begin[then] : begin[then + 1]])
        for q in range(len(circuit.poisson_per_step_Q)):
            _poisson(s_N, random, circuit, q)
        for r in range(len(monitor.neuron_R)):
            v, s = v_N[monitor.neuron_R[r]], s_N[monitor.neuron_R[r]]
            monitor.v_TR[t, r], monitor.s_TR[t, r] = 0.0 if v == -np.inf else v, s
    return steps


@inlined
def _deliver(s_N: Array, circuit: Circuit, p: int, fired: Integers) -> None:
    """Deliver spikes through the synapses of one delay."""
    begin_N, synapse_M = circuit.begin_PN[p], circuit.synapse_M
    for j in fired:
        for m in range(begin_N[j], begin_N[j + 1]):
            s_N[synapse_M[m].target] += synapse_M[m].jump  # network (4)


@inlined
def _lif_step(
    v_N: Array, s_N: Array, waiting: RefractoryQueue, circuit: Circuit, input_N: Array, t: int, fired: Integers
) -> int:
    """Integrate all LIF neurons block by block, network (5) and (6), and list those that fire."""
    found, e_m_N, e_s_N, from_s_N = 0, circuit.e_m_N, circuit.e_s_N, circuit.from_s_N
    for b in range(len(circuit.edge_B) - 1):
        first, last = np.uint64(circuit.edge_B[b]), np.uint64(circuit.edge_B[b + 1])  # not negative, as numba can see
        over = np.int64(0)
        if circuit.uniform_B[b]:
            e_m, e_s, from_s = e_m_N[first], e_s_N[first], from_s_N[first]
            for i in range(first, last):
                v_N[i], s_N[i] = v_N[i] * e_m + input_N[i] + s_N[i] * from_s, s_N[i] * e_s
                over |= below(BELOW_1, v_N[i])
        else:
            for i in range(first, last):
                v_N[i], s_N[i] = v_N[i] * e_m_N[i] + input_N[i] + s_N[i] * from_s_N[i], s_N[i] * e_s_N[i]
                over |= below(BELOW_1, v_N[i])
        if over < 0:
            before = found
            for i in range(first, last):
                fired[found] = i
                found += v_N[i] >= 1
            for k in range(before, found):
                i = fired[k]
                v_N[i] = 0.0
                if circuit.refractory_steps_N[i] > 0:
                    _start_refractory(v_N, waiting, i, t + 1 + circuit.refractory_steps_N[i])
    return found


@inlined
def _hh_step(v_N: Array, s_N: Array, hh: Lanes, circuit: Circuit, input_N: Array, first: int, fired: Integers) -> int:
    """Integrate the Hodgkin–Huxley neurons of network (2), and list those whose V crosses the threshold."""
    found, J_L, step_ms = 0, np.zeros(LANES), circuit.step_ms
    for g in range(len(hh.x_G4L)):
        x_4L, p_8L, inf_3L, decay_3L, i = hh.x_G4L[g], hh.p_G8L[g], hh.inf_G3L[g], hh.decay_G3L[g], first + g * LANES
        count = min(LANES, len(v_N) - i)
        for lane in range(count):
            J_L[lane] = s_N[i + lane] + input_N[i + lane]
        relax_gates(x_4L, inf_3L, decay_3L)
        relax_voltage(x_4L, p_8L, step_ms, J_L)
        update_gate_targets(x_4L, p_8L, step_ms / 2, inf_3L, decay_3L)
        relax_gates(x_4L, inf_3L, decay_3L)
        for lane in range(count):
            if v_N[i + lane] < circuit.threshold_mV <= x_4L[0, lane]:
                fired[found] = i + lane
                found += 1
            v_N[i + lane] = x_4L[0, lane]
            s_N[i + lane] *= circuit.e_s_N[i + lane]  # network (6)
    return found


@compiled
def _uniform(random: NDArray[np.uint64]) -> float:
    """Next uniform random number in (0, 1) (splitmix64, Steele et al. 2014)."""
    random[0] += np.uint64(0x9E3779B97F4A7C15)
    z = random[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (np.float64(z >> np.uint64(11)) + 0.5) * 2.0**-53


@inlined
def _poisson(s_N: Array, random: NDArray[np.uint64], circuit: Circuit, q: int) -> None:
    """Poisson input of one time step: exponential intervals, each spike to a random neuron of the group."""
    rate, first, count = circuit.poisson_per_step_Q[q], circuit.poisson_group_Q2[q, 0], circuit.poisson_group_Q2[q, 1]
    if rate == 0:
        return
    time = -math.log(_uniform(random)) / rate
    while time < 1:
        i = first + int(_uniform(random) * count)
        s_N[i] += circuit.poisson_weight_Q[q] / circuit.tau_s_N[i]
        time -= math.log(_uniform(random)) / rate
