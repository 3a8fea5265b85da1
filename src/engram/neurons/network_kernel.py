"""The time loop of spiking networks. Numbers in brackets are the equations of `network`.

Nobody hears a spike before the shortest delay is over. So what arrives in that many steps is written down first, and
then neurons are taken through them block by block, each while it is in the cache.

N neurons, the last H of which are Hodgkin–Huxley's, in groups of L lanes; B blocks, C steps at once, D delays, M
synapses, Q Poisson inputs, R recorded neurons. The log holds who fired, step by step, beginning with the steps that
delays still look back on.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engram.neurons.kernels import LANES, aim_gates, compiled, inlined, relax_gates, relax_voltage

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
WIDE = 256
"""neurons of a block: all that is known of them fits into the cache"""
AT_ONCE = 16
"""steps at once at most (C)"""
BELOW_1 = float(np.nextafter(1.0, 0.0))


class Circuit(NamedTuple):
    """All that does not change: constants by neuron, and for each delay the synapses by source."""

    e_m_N: Array
    e_s_N: Array
    from_s_N: Array
    base_N: Array
    """what the input of its own adds to v in a step; for Hodgkin–Huxley neurons that input itself"""
    hold_N: Integers
    """steps that a LIF neuron waits after a spike"""
    tau_s_N: Array
    edge_B: Integers
    """first neuron of each block, and the end"""
    delay_D: Integers
    """in steps"""
    begin_DN: Integers
    """where the synapses of each source begin, and where those of the last one end"""
    target_M: NDArray[np.int32]
    jump_M: Array
    """by how much s rises there"""
    noisy_Q2: Integers
    """first neuron, and the one after the last, that hear Poisson spikes"""
    per_step_Q: Array
    """how many of these a neuron hears in a step, on average"""
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


class Watched(NamedTuple):
    """Recorded neurons, their v and their s."""

    neuron_R: Integers
    v_TR: Array
    s_TR: Array


class Held(NamedTuple):
    """The constants of LIF neurons, which are 0 while one waits: so it stays where it is, and nobody has to ask.

    Who is let go in which step is written down by block: the first one's place, and after each one's the next one's.
    """

    e_m_N: Array
    from_s_N: Array
    base_N: Array
    gain_N: Array
    """what becomes of an input from outside"""
    until_N: Integers
    """the step in which a neuron is let go"""
    first_BR: Integers
    """-1 where there is none; R is longer than anyone waits"""
    next_N: Integers


class Fired(NamedTuple):
    """Who fired, and when, in the steps that are taken at once, block by block; and how many in each step."""

    neuron: Integers
    step: Integers
    count_C: Integers


def edges(neurons: int, lif: int) -> Integers:
    """Where blocks begin, and where the last one ends; no block has neurons of both kinds."""
    return np.array([*range(0, lif, WIDE), *range(lif, neurons, WIDE), neurons], np.int64)


def advance(state: Any, circuit: Circuit, extra_TN: Array, steps: int, watched: Watched) -> tuple[Integers, Integers]:
    """Advance the state in place; who fired, in order of time, and how many in each step."""
    N, before = len(state.v_N), len(state.recent_count)
    begin = np.zeros(before + steps + 1, np.int64)
    begin[1 : before + 1] = np.cumsum(state.recent_count)
    at_once = min(AT_ONCE, int(circuit.delay_D.min(initial=AT_ONCE)) + 1)
    log = np.concatenate([state.recent, np.empty(2 * N * at_once, np.int64)])
    fired = Fired(np.empty(N * at_once, np.int64), np.empty(N * at_once, np.int64), np.zeros(at_once, np.int64))
    hh = lanes(state.hh_4H, circuit.hh_8H, circuit.step_ms)
    jump_CN, held = np.zeros((at_once, N)), holding(state.wait_N, circuit)
    done = 0
    while done < steps:
        if len(log) < begin[before + done] + N * at_once:
            log = np.concatenate([log, np.empty(len(log), np.int64)])
        stretch = Stretch(extra_TN, watched, fired, log, begin, jump_CN, before)
        done = _advance(state.v_N, state.s_N, held, state.random_B, circuit, hh, stretch, done, steps)
    state.wait_N[:] = np.maximum(held.until_N - steps, 0)
    state.hh_4H[:] = hh.x_G4L.transpose(1, 0, 2).reshape(4, -1)[:, : state.hh_4H.shape[1]]
    return log[begin[before] : begin[-1]].copy(), np.diff(begin[before:])


def holding(wait_N: Integers, circuit: Circuit) -> Held:
    """The constants, in which those who wait are held already."""
    N, B, R = len(wait_N), len(circuit.edge_B) - 1, int(max(circuit.hold_N.max(), wait_N.max())) + 1
    held = Held(
        circuit.e_m_N.copy(), circuit.from_s_N.copy(), circuit.base_N.copy(), 1 - circuit.e_m_N,
        np.zeros(N, np.int64), np.full((B, R), -1), np.full(N, -1),
    )  # fmt: skip
    for neuron in np.nonzero(wait_N)[0]:
        _hold(held, np.searchsorted(circuit.edge_B, neuron, "right") - 1, neuron, wait_N[neuron])
    return held


@compiled
def _hold(held: Held, b: int, neuron: int, until: int) -> None:
    """Let nothing happen to a neuron of block b before step `until`."""
    held.e_m_N[neuron] = held.from_s_N[neuron] = held.base_N[neuron] = held.gain_N[neuron] = 0.0
    held.until_N[neuron] = until
    slot = until % held.first_BR.shape[1]
    held.next_N[neuron] = held.first_BR[b, slot]
    held.first_BR[b, slot] = neuron


@inlined
def _let_go(held: Held, circuit: Circuit, b: int, t: int) -> None:
    """Give back their constants to those whose time it is."""
    slot = t % held.first_BR.shape[1]
    neuron = held.first_BR[b, slot]
    held.first_BR[b, slot] = -1
    while neuron >= 0:
        held.e_m_N[neuron], held.from_s_N[neuron] = circuit.e_m_N[neuron], circuit.from_s_N[neuron]
        held.base_N[neuron], held.gain_N[neuron] = circuit.base_N[neuron], 1 - circuit.e_m_N[neuron]
        neuron = held.next_N[neuron]


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


class Stretch(NamedTuple):
    """What happens besides: what was before, and what is to be written down."""

    extra_TN: Array
    """what comes on top of the neurons' own input, if anything"""
    watched: Watched
    fired: Fired
    log: Integers
    begin: Integers
    """where each step begins in the log"""
    jump_CN: Array
    """by how much s rises in each of the steps that are taken at once"""
    before: int
    """steps of the log that are past"""


@compiled
def _advance(
    v_N: Array, s_N: Array, held: Held, random_B: NDArray[np.uint64], circuit: Circuit, hh: Lanes, stretch: Stretch,
    first: int, steps: int,
) -> int:  # fmt: skip
    """Advance as far as there is room in the log; the step that was reached."""
    fired, log, begin = stretch.fired, stretch.log, stretch.begin
    N, H, t = len(v_N), circuit.hh_8H.shape[1], first
    while t < steps:
        count, now = min(len(fired.count_C), steps - t), stretch.before + t
        if len(log) - begin[now] < N * count:
            return t
        for c in range(count - 1):  # what arrives in the last step may be spikes of the first
            _arrive(stretch.jump_CN[c], circuit, stretch, t + c)
        fired.count_C[:] = 0
        found = 0
        for b in range(len(circuit.edge_B) - 1):
            if circuit.edge_B[b] < N - H:
                found = _lif(v_N, s_N, held, random_B, circuit, b, stretch, t, count, found)
            else:
                found = _hodgkin_huxley(v_N, s_N, random_B, circuit, hh, b, stretch, t, count, found)
        _write_down(fired, found, log, begin, now, count)
        t += count
        _arrive(stretch.jump_CN[count - 1], circuit, stretch, t - 1)
        for b in range(len(circuit.edge_B) - 1):
            for i in range(circuit.edge_B[b], circuit.edge_B[b + 1]):
                s_N[i] += stretch.jump_CN[count - 1, i]  # (4)
                stretch.jump_CN[count - 1, i] = 0.0
            _poisson(s_N, random_B, circuit, b)
            _record(stretch.watched, v_N, s_N, circuit, b, t - 1)
    return steps


@inlined
def _arrive(s_N: Array, circuit: Circuit, stretch: Stretch, t: int) -> None:
    """What all spikes do whose delay is over at a step."""
    target_M, jump_M, log = circuit.target_M, circuit.jump_M, stretch.log
    for d in range(len(circuit.delay_D)):
        then, begin_N = stretch.before + t - circuit.delay_D[d], circuit.begin_DN[d]
        if then >= 0:
            for k in range(stretch.begin[then], stretch.begin[then + 1]):
                for m in range(begin_N[log[k]], begin_N[log[k] + 1]):
                    s_N[target_M[m]] += jump_M[m]  # (4)


@inlined
def _record(watched: Watched, v_N: Array, s_N: Array, circuit: Circuit, b: int, t: int) -> None:
    for r in range(len(watched.neuron_R)):
        i = watched.neuron_R[r]
        if circuit.edge_B[b] <= i < circuit.edge_B[b + 1]:
            watched.v_TR[t, r], watched.s_TR[t, r] = v_N[i], s_N[i]


@inlined
def _write_down(fired: Fired, found: int, log: Integers, begin: Integers, now: int, count: int) -> None:
    """Put the spikes into the log, step by step."""
    for c in range(count):
        begin[now + c + 1] = begin[now + c] + fired.count_C[c]
        fired.count_C[c] = begin[now + c]
    for k in range(found):
        c = fired.step[k]
        log[fired.count_C[c]] = fired.neuron[k]
        fired.count_C[c] += 1


@compiled
def _lif(
    v_N: Array, s_N: Array, held: Held, random_B: NDArray[np.uint64], circuit: Circuit, b: int, stretch: Stretch,
    t: int, count: int, found: int,
) -> int:  # fmt: skip
    """(5) and (6) for a block of LIF neurons, and who of them fires: how many spikes there are now."""
    first, here, fired = circuit.edge_B[b], slice(circuit.edge_B[b], circuit.edge_B[b + 1]), stretch.fired
    v, s, base, e_s = v_N[here], s_N[here], held.base_N[here], circuit.e_s_N[here]
    e_m, from_s = held.e_m_N[here], held.from_s_N[here]
    for c in range(count):
        _let_go(held, circuit, b, t + c)
        if len(stretch.extra_TN):
            base = held.base_N[here] + held.gain_N[here] * stretch.extra_TN[t + c, here]
        jump, over = stretch.jump_CN[c, here], np.int64(0)
        for i in range(len(v)):
            risen = v[i] * e_m[i] + base[i] + s[i] * from_s[i]  # (5)
            v[i] = risen
            s[i] = s[i] * e_s[i] + jump[i]  # (6), (4)
            jump[i] = 0.0
            over |= np.float64(BELOW_1 - risen).view(np.int64)  # negative as soon as one of them is
        if over < 0:
            for i in range(len(v)):
                if v[i] >= 1:
                    v[i] = 0.0
                    if circuit.hold_N[first + i] > 0:
                        _hold(held, b, first + i, t + c + 1 + circuit.hold_N[first + i])
                    fired.neuron[found], fired.step[found] = first + i, c
                    fired.count_C[c] += 1
                    found += 1
        if c < count - 1:
            _poisson(s_N, random_B, circuit, b)
            _record(stretch.watched, v_N, s_N, circuit, b, t + c)
    return found


@compiled
def _hodgkin_huxley(
    v_N: Array, s_N: Array, random_B: NDArray[np.uint64], circuit: Circuit, hh: Lanes, b: int, stretch: Stretch, t: int,
    count: int, found: int,
) -> int:  # fmt: skip
    """The same for Hodgkin–Huxley neurons (2): one fires when its voltage rises through the threshold."""
    J_L, step_ms, fired = np.zeros(LANES), circuit.step_ms, stretch.fired
    for c in range(count):
        for first in range(circuit.edge_B[b], circuit.edge_B[b + 1], LANES):
            g = (first - len(v_N) + circuit.hh_8H.shape[1]) // LANES
            x_4L, p_8L, inf_3L, kept_3L = hh.x_G4L[g], hh.p_G8L[g], hh.inf_G3L[g], hh.kept_G3L[g]
            inside = min(LANES, circuit.edge_B[b + 1] - first)
            for i in range(inside):
                J_L[i] = s_N[first + i] + circuit.base_N[first + i]
                if len(stretch.extra_TN):
                    J_L[i] += stretch.extra_TN[t + c, first + i]
            relax_gates(x_4L, inf_3L, kept_3L)
            relax_voltage(x_4L, p_8L, step_ms, J_L)
            aim_gates(x_4L, p_8L, step_ms / 2, inf_3L, kept_3L)
            relax_gates(x_4L, inf_3L, kept_3L)
            for i in range(inside):
                if v_N[first + i] < circuit.threshold_mV <= x_4L[0, i]:
                    fired.neuron[found], fired.step[found] = first + i, c
                    fired.count_C[c] += 1
                    found += 1
                v_N[first + i] = x_4L[0, i]
                s_N[first + i] = s_N[first + i] * circuit.e_s_N[first + i] + stretch.jump_CN[c, first + i]  # (6), (4)
                stretch.jump_CN[c, first + i] = 0.0
        if c < count - 1:
            _poisson(s_N, random_B, circuit, b)
            _record(stretch.watched, v_N, s_N, circuit, b, t + c)
    return found


@compiled
def _uniform(random_B: NDArray[np.uint64], b: int) -> float:
    """The next number between 0 and 1 (splitmix64, Steele et al. 2014); never 0. Each block draws its own."""
    random_B[b] += np.uint64(0x9E3779B97F4A7C15)
    z = random_B[b]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (np.float64(z >> np.uint64(11)) + 0.5) * 2.0**-53


@inlined
def _poisson(s_N: Array, random_B: NDArray[np.uint64], circuit: Circuit, b: int) -> None:
    """Spikes from outside in one step: they come at intervals that are exponential, each to a neuron at random."""
    for q in range(len(circuit.per_step_Q)):
        first = max(circuit.noisy_Q2[q, 0], circuit.edge_B[b])
        count = min(circuit.noisy_Q2[q, 1], circuit.edge_B[b + 1]) - first
        per_step = count * circuit.per_step_Q[q]
        if per_step > 0:
            passed = -math.log(_uniform(random_B, b)) / per_step
            while passed < 1:
                i = first + int(_uniform(random_B, b) * count)
                s_N[i] += circuit.noise_weight_Q[q] / circuit.tau_s_N[i]
                passed -= math.log(_uniform(random_B, b)) / per_step
