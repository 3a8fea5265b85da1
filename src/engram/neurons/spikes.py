"""Spike trains: times and neurons of spikes, and sorting them."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engram.neurons.kernels import compiled

Array = NDArray[np.float64]


class Spikes(NamedTuple):
    """Times and neurons of spikes, sorted by neuron and then by time."""

    time_ms: Array
    neuron: NDArray[np.int64]

    @classmethod
    def from_unsorted(cls, time_ms: Array, neuron: NDArray[np.int64]) -> "Spikes":
        """Sort spikes given in any order."""
        order = np.lexsort([time_ms, neuron])
        return cls(time_ms[order], neuron[order])

    def train(self, neuron: int) -> Array:
        """The spike train of one neuron."""
        return self.time_ms[np.searchsorted(self.neuron, neuron) : np.searchsorted(self.neuron, neuron + 1)]

    def sort_by_time(self) -> "Spikes":
        """The same spikes in order of time."""
        order = np.argsort(self.time_ms, kind="stable")
        return Spikes(self.time_ms[order], self.neuron[order])


def pack_spikes(time_ms: Array, first_N: NDArray[np.int64], count_N: NDArray[np.int64]) -> Spikes:
    """Spikes from a buffer with gaps: each neuron's `count_N` times begin at `first_N`."""
    neuron = np.repeat(np.arange(len(count_N)), count_N)
    index = np.arange(len(neuron)) - np.repeat(np.cumsum(count_N) - count_N, count_N)
    return Spikes(time_ms[first_N[neuron] + index], neuron)


def sort_by_neuron(time_ms: Array, neuron: NDArray[Any], neurons: int) -> Spikes:
    """Sort spikes in order of time by neuron, by counting sort."""
    return Spikes(*_sort_by_neuron(time_ms, neuron, neurons))


@compiled
def _sort_by_neuron(time_ms: Array, neuron: NDArray[Any], neurons: int) -> tuple[Array, NDArray[np.int64]]:
    next_N = np.zeros(neurons + 1, np.int64)
    for k in range(len(neuron)):
        next_N[neuron[k] + 1] += 1
    for i in range(neurons):
        next_N[i + 1] += next_N[i]
    sorted_ms, sorted_neuron = np.empty_like(time_ms), np.empty(len(neuron), np.int64)
    for i in range(neurons):
        sorted_neuron[next_N[i] : next_N[i + 1]] = i
    for k in range(len(time_ms)):
        sorted_ms[next_N[neuron[k]]] = time_ms[k]
        next_N[neuron[k]] += 1
    return sorted_ms, sorted_neuron
