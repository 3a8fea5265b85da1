"""Numba kernel of NEF networks: the time loop. "network (n)" is equation (n) of `network`.

N neurons, P ensembles, C connections, U input dimensions, R probe dimensions. The filtered values of all connections
are concatenated in `y`; `unfiltered` are the same before the synapse.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engram.neurons.kernels import compiled, inlined

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
SMALL = 0.1
"""bound of |x| within which the series of e^x - 1 and ln(1 + x) are exact"""


class Circuit(NamedTuple):
    """Constants of the network."""

    encoder_DN: Array
    """encoders times gain over radius, zero-padded to the most dimensions"""
    bias_N: Array
    tau_P: Array
    tau_ref_P: Array
    first_P: Integers
    """first neuron of each ensemble"""
    offset_P: Integers
    """offset of its vector among all represented values"""
    dimensions_P: Integers
    source_C: Integers
    """presynaptic ensemble, or -1 for an input node"""
    from_C: Integers
    to_C: Integers
    rows_C: Integers
    dimensions_C: Integers
    begin_C: Integers
    weights: Array
    decay_C: Array
    immediate_C: NDArray[np.bool_]
    probe_offset: int
    """offset of the probes among all values"""
    values: int
    step_ms: float
    small: bool
    """whether a time step is short enough for the series"""


@compiled
def run_steps(
    v_N: Array, refractory_N: Array, y: Array, circuit: Circuit, u_TU: Array, probe_TR: Array, fired: Integers,
    fired_ms: Array, first: int, spiking: bool,
) -> tuple[int, int]:  # fmt: skip
    """Advance until the spike buffer is full: the time step reached, and the number of spikes."""
    x, unfiltered, J_N, count = np.zeros(circuit.values), np.zeros(len(y)), np.empty_like(v_N), 0
    all_neurons = np.arange(len(v_N))
    for t in range(first, len(u_TU)):
        if spiking and len(fired) - count < len(v_N):
            return t, count
        x[:] = 0
        unfiltered[:] = 0
        _inputs(circuit, u_TU[t], unfiltered)
        _gather(circuit, y, unfiltered, x)
        for p in range(len(circuit.offset_P)):
            _encode(circuit, p, x, J_N)
            if spiking:
                before = count
                count = _integrate_ensemble(circuit, p, v_N, refractory_N, J_N, fired, fired_ms, count, t)
                _decode(circuit, p, fired[before:count], J_N, True, unfiltered)
            else:
                _rates(circuit, p, J_N, J_N)
                _decode(circuit, p, all_neurons[circuit.first_P[p] : circuit.first_P[p + 1]], J_N, False, unfiltered)
        k = 0
        for c in range(len(circuit.decay_C)):
            for _ in range(circuit.dimensions_C[c]):
                y[k] = circuit.decay_C[c] * y[k] + (1 - circuit.decay_C[c]) * unfiltered[k]  # network (4)
                k += 1
        x[:] = 0
        _gather(circuit, y, y, x)
        for r in range(circuit.values - circuit.probe_offset):
            probe_TR[t, r] = x[circuit.probe_offset + r]
    return len(u_TU), count


@inlined
def _inputs(circuit: Circuit, u_U: Array, unfiltered: Array) -> None:
    """Values of connections from input nodes."""
    k = 0
    for c in range(len(circuit.source_C)):
        width = circuit.dimensions_C[c]
        if circuit.source_C[c] < 0:
            for row in range(circuit.rows_C[c]):
                for j in range(width):
                    unfiltered[k + j] += (
                        circuit.weights[circuit.begin_C[c] + row * width + j] * u_U[circuit.from_C[c] + row]
                    )
        k += width


@inlined
def _gather(circuit: Circuit, y: Array, unfiltered: Array, x: Array) -> None:
    """Sum of connections into each ensemble and probe; those without a synapse are unfiltered."""
    k = 0
    for c in range(len(circuit.to_C)):
        for j in range(circuit.dimensions_C[c]):
            x[circuit.to_C[c] + j] += unfiltered[k] if circuit.immediate_C[c] else y[k]
            k += 1


@inlined
def _integrate_ensemble(
    circuit: Circuit,
    p: int,
    v_N: Array,
    refractory_N: Array,
    J_N: Array,
    fired: Integers,
    fired_ms: Array,
    count: int,
    t: int,
) -> int:
    """One time step of spiking neurons: subthreshold integration, then spikes with their exact times."""
    step, tau, first, last = circuit.step_ms, circuit.tau_P[p], circuit.first_P[p], circuit.first_P[p + 1]
    v, refractory, J, speed = v_N[first:last], refractory_N[first:last], J_N[first:last], 1 / tau
    if circuit.small:
        for i in range(len(v)):
            v[i] = max(v[i] - (J[i] - v[i]) * _expm1_series(min(refractory[i] - step, 0.0) * speed), 0.0)
            refractory[i] = max(refractory[i] - step, 0.0)
    else:
        for i in range(len(v)):
            v[i] = max(v[i] - (J[i] - v[i]) * math.expm1(min(refractory[i] - step, 0.0) * speed), 0.0)
            refractory[i] = max(refractory[i] - step, 0.0)
    found = count
    for i in range(len(v)):  # branch-free: entries of neurons that do not fire are overwritten
        fired[found] = first + i
        found += v[i] > 1
    early = fired_ms[count:found]  # spike time relative to the end of the step, negative
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
        v[i], refractory[i] = 0.0, circuit.tau_ref_P[p] + early[k]
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
    """Firing rates as activities, for networks without spikes."""
    for i in range(circuit.first_P[p], circuit.first_P[p + 1]):
        silent = J_N[i] <= 1
        rate_N[i] = 0.0 if silent else 1000 / (circuit.tau_ref_P[p] - circuit.tau_P[p] * math.log1p(-1 / J_N[i]))


@inlined
def _encode(circuit: Circuit, p: int, x: Array, J_N: Array) -> None:
    """Input of every neuron of an ensemble."""
    here = slice(circuit.first_P[p], circuit.first_P[p + 1])
    J, bias = J_N[here], circuit.bias_N[here]
    for i in range(len(J)):
        J[i] = bias[i]
    for d in range(circuit.dimensions_P[p]):
        E, value = circuit.encoder_DN[d, here], x[circuit.offset_P[p] + d]
        for i in range(len(J)):
            J[i] += E[i] * value  # network (2)


@inlined
def _decode(circuit: Circuit, p: int, active: Integers, activity_N: Array, spiking: bool, unfiltered: Array) -> None:
    """Add decoded activities of some neurons to every connection from their ensemble."""
    k, spike = 0, 1000 / circuit.step_ms
    for c in range(len(circuit.source_C)):
        width = circuit.dimensions_C[c]
        if circuit.source_C[c] == p:
            for i in active:
                at = circuit.begin_C[c] + (i - circuit.first_P[p]) * width
                for j in range(width):
                    unfiltered[k + j] += circuit.weights[at + j] * (spike if spiking else activity_N[i])
        k += width
