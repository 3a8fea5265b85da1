"""Figures of spiking networks: raster, population rates, interspike intervals, membrane potentials."""

import math

import numpy as np
import plotly.graph_objects as go
from torch import Tensor

from engram.neurons.spikes import Spikes
from engram.plots.figure import COLORS, Figure, line, plot

MAX_NEURONS, LAST_MS, BIN_MS = 150, 500.0, 5.0


def plot_raster(spikes: Spikes, first: int, end_ms: float) -> Figure:
    """Raster of the last spikes of some excitatory and inhibitory neurons; the latter begin at `first`."""
    recent, traces = spikes.time_ms > end_ms - LAST_MS, []
    for k, (name, begin) in enumerate((("excitatory", 0), ("inhibitory", first))):
        stop = min(begin + MAX_NEURONS, first) if begin == 0 else begin + MAX_NEURONS // 4
        shown = recent & (spikes.neuron >= begin) & (spikes.neuron < stop)
        row = spikes.neuron[shown] - begin + (min(MAX_NEURONS, first) + 10 if begin else 0)
        marker = {"symbol": "line-ns", "size": 3, "line": {"width": 1.2, "color": COLORS[k]}}
        traces.append(line(spikes.time_ms[shown], row, name, mode="markers", marker=marker))
    figure = plot(*traces, height=460, xaxis_title="time (ms)", yaxis_title="neuron")
    return Figure("Raster", f"The last {min(LAST_MS, end_ms):g} ms of some neurons of each group.", figure)


def plot_rates(spikes: Spikes, first: int, neurons: int, end_ms: float) -> Figure:
    """Population firing rates over time."""
    edges = np.arange(0, end_ms + BIN_MS / 2, BIN_MS)
    traces = []
    for name, begin, stop in (("excitatory", 0, first), ("inhibitory", first, neurons)):
        inside = (spikes.neuron >= begin) & (spikes.neuron < stop)
        count, _ = np.histogram(spikes.time_ms[inside], edges)
        traces.append(line(edges[1:], count / (stop - begin) / BIN_MS * 1000, name))
    figure = plot(*traces, xaxis_title="time (ms)", yaxis_title="firing rate (Hz)")
    return Figure("Population rates", f"Mean firing rate of each group in bins of {BIN_MS:g} ms.", figure)


def plot_isi_cv(cv: Tensor) -> Figure:
    """Histogram of the ISI coefficient of variation (CV) over neurons."""
    figure = plot(
        go.Histogram(x=cv.numpy(), nbinsx=60, marker={"color": COLORS[0]}),
        xaxis_title="coefficient of variation of the interspike intervals",
        yaxis_title="neurons",
    )
    mean = cv.mean() if len(cv) else float("nan")
    return Figure("ISI variability", f"Mean CV {mean:.2f}: 0 is regular firing, 1 a Poisson process.", figure)


def plot_intervals(spikes: Spikes) -> Figure:
    """Histogram of the interspike intervals (ISI) of all neurons."""
    same = spikes.neuron[1:] == spikes.neuron[:-1]
    intervals_ms = np.diff(spikes.time_ms)[same]
    figure = plot(
        go.Histogram(x=intervals_ms, nbinsx=100, marker={"color": COLORS[2]}),
        xaxis_title="interspike interval (ms)",
        yaxis={"type": "log", "title": "count"},
    )
    return Figure("Interspike intervals", f"{len(intervals_ms):,} intervals of all neurons.", figure)


def plot_voltages(v_TR: Tensor, step_ms: float) -> Figure:
    """Membrane potentials of the recorded neurons at the end, offset vertically."""
    last = v_TR[-round(LAST_MS / step_ms) :]
    t = (len(v_TR) - len(last) + np.arange(1, len(last) + 1)) * step_ms
    lowest = min(0.0, last.min().item()) if len(last) else 0.0
    offset = math.ceil(2 * (1 - lowest)) / 2
    traces = [line(t, v_T + offset * r, f"neuron {r}", line={"width": 1}) for r, v_T in enumerate(last.T)]
    title = f"v, offset by {offset:g} per neuron"
    figure = plot(*traces, height=120 + 80 * len(traces), xaxis_title="time (ms)", yaxis_title=title)
    caption = "Subthreshold fluctuations around the offset of each neuron; the threshold is 1 above it."
    return Figure("Membrane potentials", caption, figure)
