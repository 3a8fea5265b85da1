"""The time loop of populations. Numbers in brackets are the equations of `dynamics`.

N neurons, P populations, C connections, U numbers of the inputs, R of the probes. What connections carry stands one
after the other in `y`; `fresh` is the same before the synapse.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engram.neurons.kernels import compiled, inlined

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
SMALL = 0.1
"""up to which the series for e^x - 1 and ln(1 + x) are exact; if -x is at most this, so is 1 - e^x"""


class Circuit(NamedTuple):
    """All that does not change."""

    encoder_DN: Array
    """times gain, by radius, and filled up with zeros to the widest population"""
    bias_N: Array
    tau_P: Array
    wait_P: Array
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
def advance(
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
    circuit: Circuit,
    p: int,
    v_N: Array,
    wait_N: Array,
    J_N: Array,
    fired: Integers,
    when: Array,
    count: int,
    t: int,
) -> int:
    """One step of spiking neurons: all at once through the time in which they do not wait, then those that fire."""
    step, tau, first, last = circuit.step_ms, circuit.tau_P[p], circuit.first_P[p], circuit.first_P[p + 1]
    v, wait, J, speed = v_N[first:last], wait_N[first:last], J_N[first:last], 1 / tau
    if circuit.small:
        for i in range(len(v)):
            v[i] = max(v[i] - (J[i] - v[i]) * _expm1_series(min(wait[i] - step, 0.0) * speed), 0.0)
            wait[i] = max(wait[i] - step, 0.0)
    else:
        for i in range(len(v)):
            v[i] = max(v[i] - (J[i] - v[i]) * math.expm1(min(wait[i] - step, 0.0) * speed), 0.0)
            wait[i] = max(wait[i] - step, 0.0)
    found = count
    for i in range(len(v)):  # everyone is written down, and those who do not fire are written over: no branch to guess
        fired[found] = first + i
        found += v[i] > 1
    early = when[count:found]  # how long before the end of the step, negative
    for k in range(len(early)):
        i = fired[count + k] - first
        early[k] = (1 - v[i]) / (J[i] - 1)
    if circuit.small:
        for k in range(len(early)):
            early[k] = tau * _log1p_series(early[k])
    else:
        for k in range(len(early)):
            early[k] = tau * math.log1p(early[k])
    for k in range(len(early)):
        i = fired[count + k] - first
        v[i], wait[i] = 0.0, circuit.wait_P[p] + early[k]
        early[k] += (t + 1) * step
    return found


@inlined
def _expm1_series(x: float) -> float:
    """e^x - 1 for |x| <= SMALL."""
    series = 1 / 5040 + x * (1 / 40320 + x * (1 / 362880 + x * (1 / 3628800)))
    return x * (1 + x * (1 / 2 + x * (1 / 6 + x * (1 / 24 + x * (1 / 120 + x * (1 / 720 + x * series))))))


@inlined
def _log1p_series(x: float) -> float:
    """ln(1 + x) for |x| <= SMALL, by the series of artanh."""
    z = x / (2 + x)
    q = z * z
    return 2 * z * (1 + q * (1 / 3 + q * (1 / 5 + q * (1 / 7 + q * (1 / 9 + q * (1 / 11 + q * (1 / 13)))))))


@inlined
def _rates(circuit: Circuit, p: int, J_N: Array, rate_N: Array) -> None:
    """Activities of neurons that are their rates."""
    for i in range(circuit.first_P[p], circuit.first_P[p + 1]):
        silent = J_N[i] <= 1
        rate_N[i] = 0.0 if silent else 1000 / (circuit.wait_P[p] - circuit.tau_P[p] * math.log1p(-1 / J_N[i]))


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
