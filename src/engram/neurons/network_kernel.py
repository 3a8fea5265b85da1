"""The time loop of spiking networks. Numbers in brackets are the equations of `network`.

N neurons, of which the last H are Hodgkin–Huxley's, in groups of L lanes; P delays, M synapses, Q Poisson inputs,
R recorded neurons. The log holds who fired, step by step, beginning with the steps that delays still look back on.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engram.neurons.kernels import LANES, aim_gates, below, compiled, inlined, relax_gates, relax_voltage

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


WIDE = 64
"""LIF neurons of a block: as soon as one of them fires, all of them are looked at"""
LINE = 64
"""bytes of a cache line"""
SYNAPSE = np.dtype([("target", np.uint64), ("jump", np.float64)])
"""side by side, since they are needed together and come from far"""
BELOW_1 = float(np.nextafter(1.0, 0.0))


class Circuit(NamedTuple):
    """All that does not change: constants by neuron, and for each delay the synapses by source."""

    e_m_N: Array
    e_s_N: Array
    from_s_N: Array
    gain_N: Array
    """what an input adds to v in a step: 1 - e_m; for Hodgkin–Huxley neurons 1, where it is a current"""
    base_N: Array
    """the input of its own times that"""
    hold_N: Integers
    """steps that a LIF neuron waits after a spike"""
    edge_B: Integers
    """first LIF neuron of each block, and the end"""
    alike_B: NDArray[np.bool_]
    """whether all neurons of a block have the same e_m, e_s and from_s"""
    tau_s_N: Array
    delay_P: Integers
    """in steps"""
    begin_PN: Integers
    """where the synapses of each source begin"""
    synapse_M: NDArray[Any]
    """whom each reaches, and by how much s rises there"""
    noisy_Q2: Integers
    """first neuron and number of neurons that hear Poisson spikes"""
    per_step_Q: Array
    """how many of these come in a step, on average and in all"""
    noise_weight_Q: Array
    hh_8H: Array
    """parameters of Hodgkin–Huxley neurons"""
    step_ms: float
    threshold_mV: float


class Lanes(NamedTuple):
    """Hodgkin–Huxley neurons side by side as their kernel wants them, the last lanes idle, and where their gates go."""

    x_G4L: Array
    p_G8L: Array
    inf_G3L: Array
    kept_G3L: Array


class Waiting(NamedTuple):
    """Who is let go in which step: the first one of each of R steps, more than anyone waits, and after each the next.

    R is a power of two, by which a remainder is quick to take.

    Meanwhile v is minus infinity, which no input moves: nobody has to ask who waits.
    """

    until_N: Integers
    """the step in which a neuron is let go, or was"""
    first_R: Integers
    """-1 where there is none"""
    next_N: Integers


class Watched(NamedTuple):
    """Recorded neurons, their v and their s."""

    neuron_R: Integers
    v_TR: Array
    s_TR: Array


def advance(state: Any, circuit: Circuit, extra_TN: Array, steps: int, watched: Watched) -> tuple[Integers, Integers]:
    """Advance the state in place; who fired, in order of time, and how many in each step."""
    N, before = len(state.v_N), len(state.recent_count)
    begin = np.zeros(before + steps + 1, np.int64)
    begin[1 : before + 1] = np.cumsum(state.recent_count)
    log = np.concatenate([state.recent, np.empty(max(4 * N, 1024), np.int64)])
    hh = lanes(state.hh_4H, circuit.hh_8H, circuit.step_ms)
    v_N, s_N = aligned(state.v_N), aligned(state.s_N)
    waiting = who_waits(v_N, state.wait_N, circuit)
    changing = v_N, s_N, waiting, state.random
    done = 0
    while done < steps:
        if len(log) < begin[before + done] + N:
            log = np.concatenate([log, np.empty(len(log), np.int64)])
        done = _advance(*changing, circuit, hh, extra_TN, watched, log, begin, before, done, steps)
    state.wait_N[:] = np.maximum(waiting.until_N - steps, 0)
    state.v_N[:], state.s_N[:] = np.where(v_N == -np.inf, 0, v_N), s_N
    state.hh_4H[:] = hh.x_G4L.transpose(1, 0, 2).reshape(4, -1)[:, : state.hh_4H.shape[1]]
    return log[begin[before] : begin[-1]].copy(), np.diff(begin[before:])


def aligned(values: Array) -> Array:
    """A copy that begins with a cache line: reading eight numbers that lie in two lines takes twice as long."""
    room = np.empty(values.nbytes + LINE, np.uint8)
    copy = room[-room.ctypes.data % LINE :][: values.nbytes].view(values.dtype)
    copy[:] = values
    return copy


def who_waits(v_N: Array, wait_N: Integers, circuit: Circuit) -> Waiting:
    """Those who wait already are held."""
    N, longest = len(v_N), int(max(circuit.hold_N.max(), wait_N.max(), 1))
    waiting = Waiting(np.zeros(N, np.int64), np.full(2 ** longest.bit_length(), -1), np.full(N, -1))
    for neuron in np.nonzero(wait_N)[0].tolist():
        _hold(v_N, waiting, neuron, wait_N[neuron])
    return waiting


@compiled
def _hold(v_N: Array, waiting: Waiting, neuron: int, until: int) -> None:
    """Let nothing happen to a neuron before step `until`."""
    slot = until & (len(waiting.first_R) - 1)
    waiting.until_N[neuron], waiting.next_N[neuron] = until, waiting.first_R[slot]
    waiting.first_R[slot], v_N[neuron] = neuron, -np.inf


@inlined
def _let_go(v_N: Array, waiting: Waiting, t: int) -> None:
    """Those whose time it is begin at 0."""
    slot = t & (len(waiting.first_R) - 1)
    neuron = waiting.first_R[slot]
    waiting.first_R[slot] = -1
    while neuron >= 0:
        v_N[neuron] = 0.0
        neuron = waiting.next_N[neuron]


def lanes(hh_4H: Array, hh_8H: Array, step_ms: float) -> Lanes:
    H = hh_4H.shape[1]
    G = -(-H // LANES)

    def by_lanes(rows: Array, idle: float) -> Array:
        filled = np.full((len(rows), G * LANES), idle)
        filled[:, :H] = rows
        return np.ascontiguousarray(filled.reshape(len(rows), G, LANES).transpose(1, 0, 2))

    made = Lanes(by_lanes(hh_4H, 0.0), by_lanes(hh_8H, 1.0), np.empty((G, 3, LANES)), np.empty((G, 3, LANES)))
    for g in range(G):
        _aim(made.x_G4L[g], made.p_G8L[g], step_ms, made.inf_G3L[g], made.kept_G3L[g])
    return made


@compiled
def _aim(x_4L: Array, p_8L: Array, step_ms: float, inf_3L: Array, kept_3L: Array) -> None:
    aim_gates(x_4L, p_8L, step_ms / 2, inf_3L, kept_3L)


@compiled
def _advance(
    v_N: Array, s_N: Array, waiting: Waiting, random: NDArray[np.uint64], circuit: Circuit, hh: Lanes,
    extra_TN: Array, watched: Watched, log: Integers, begin: Integers, before: int, first: int, steps: int,
) -> int:  # fmt: skip
    """Advance as far as there is room in the log; the step that was reached."""
    N, H = len(v_N), circuit.hh_8H.shape[1]
    for t in range(first, steps):
        now = before + t
        if len(log) - begin[now] < N:
            return t
        drive_N = circuit.base_N if len(extra_TN) == 0 else circuit.base_N + circuit.gain_N * extra_TN[t]
        _let_go(v_N, waiting, t)
        count = _lif_step(v_N, s_N, waiting, circuit, drive_N, t, log[begin[now] :])
        if H:
            count += _hh_step(v_N, s_N, hh, circuit, drive_N, N - H, log[begin[now] + count :])
        begin[now + 1] = begin[now] + count
        for p in range(len(circuit.delay_P)):
            then = now - circuit.delay_P[p]
            if then >= 0:
                _deliver(s_N, circuit, p, log[begin[then] : begin[then + 1]])
        for q in range(len(circuit.per_step_Q)):
            _poisson(s_N, random, circuit, q)
        for r in range(len(watched.neuron_R)):
            v, s = v_N[watched.neuron_R[r]], s_N[watched.neuron_R[r]]
            watched.v_TR[t, r], watched.s_TR[t, r] = 0.0 if v == -np.inf else v, s
    return steps


@inlined
def _deliver(s_N: Array, circuit: Circuit, p: int, fired: Integers) -> None:
    """What some neurons' spikes do through the synapses of one delay."""
    begin_N, synapse_M = circuit.begin_PN[p], circuit.synapse_M
    for j in fired:
        for m in range(begin_N[j], begin_N[j + 1]):
            s_N[synapse_M[m].target] += synapse_M[m].jump  # (4)


@inlined
def _lif_step(
    v_N: Array, s_N: Array, waiting: Waiting, circuit: Circuit, drive_N: Array, t: int, fired: Integers
) -> int:
    """(5) and (6) for all LIF neurons, block by block, and who of them fires."""
    found, e_m_N, e_s_N, from_s_N = 0, circuit.e_m_N, circuit.e_s_N, circuit.from_s_N
    for b in range(len(circuit.edge_B) - 1):
        first, last = np.uint64(circuit.edge_B[b]), np.uint64(circuit.edge_B[b + 1])  # not negative, as numba can see
        over = np.int64(0)
        if circuit.alike_B[b]:
            e_m, e_s, from_s = e_m_N[first], e_s_N[first], from_s_N[first]
            for i in range(first, last):
                v_N[i], s_N[i] = v_N[i] * e_m + drive_N[i] + s_N[i] * from_s, s_N[i] * e_s
                over |= below(BELOW_1, v_N[i])
        else:
            for i in range(first, last):
                v_N[i], s_N[i] = v_N[i] * e_m_N[i] + drive_N[i] + s_N[i] * from_s_N[i], s_N[i] * e_s_N[i]
                over |= below(BELOW_1, v_N[i])
        if over < 0:
            so_far = found
            for i in range(first, last):
                fired[found] = i
                found += v_N[i] >= 1
            for k in range(so_far, found):
                i = fired[k]
                v_N[i] = 0.0
                if circuit.hold_N[i] > 0:
                    _hold(v_N, waiting, i, t + 1 + circuit.hold_N[i])
    return found


@inlined
def _hh_step(v_N: Array, s_N: Array, hh: Lanes, circuit: Circuit, drive_N: Array, first: int, fired: Integers) -> int:
    """One step of the Hodgkin–Huxley neurons (2), and whose voltage rises through the threshold."""
    found, J_L, step_ms = 0, np.zeros(LANES), circuit.step_ms
    for g in range(len(hh.x_G4L)):
        x_4L, p_8L, inf_3L, kept_3L, i = hh.x_G4L[g], hh.p_G8L[g], hh.inf_G3L[g], hh.kept_G3L[g], first + g * LANES
        count = min(LANES, len(v_N) - i)
        for lane in range(count):
            J_L[lane] = s_N[i + lane] + drive_N[i + lane]
        relax_gates(x_4L, inf_3L, kept_3L)
        relax_voltage(x_4L, p_8L, step_ms, J_L)
        aim_gates(x_4L, p_8L, step_ms / 2, inf_3L, kept_3L)
        relax_gates(x_4L, inf_3L, kept_3L)
        for lane in range(count):
            if v_N[i + lane] < circuit.threshold_mV <= x_4L[0, lane]:
                fired[found] = i + lane
                found += 1
            v_N[i + lane] = x_4L[0, lane]
            s_N[i + lane] *= circuit.e_s_N[i + lane]  # (6)
    return found


@compiled
def _uniform(random: NDArray[np.uint64]) -> float:
    """The next number between 0 and 1 (splitmix64, Steele et al. 2014); never 0."""
    random[0] += np.uint64(0x9E3779B97F4A7C15)
    z = random[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (np.float64(z >> np.uint64(11)) + 0.5) * 2.0**-53


@inlined
def _poisson(s_N: Array, random: NDArray[np.uint64], circuit: Circuit, q: int) -> None:
    """Spikes from outside in one step: they come at intervals that are exponential, each to a neuron at random."""
    per_step, first, count = circuit.per_step_Q[q], circuit.noisy_Q2[q, 0], circuit.noisy_Q2[q, 1]
    if per_step == 0:
        return
    passed = -math.log(_uniform(random)) / per_step
    while passed < 1:
        i = first + int(_uniform(random) * count)
        s_N[i] += circuit.noise_weight_Q[q] / circuit.tau_s_N[i]
        passed -= math.log(_uniform(random)) / per_step
