"""Spikes of many neurons: raster, rate over time, intervals and how irregular they are."""

import math

import numpy as np
import plotly.graph_objects as go
from torch import Tensor

from engram.figures.figure import COLOURS, Figure, line, plot
from engram.neurons.lif import Spikes

MOST_NEURONS, LAST_MS, BIN_MS = 150, 500.0, 5.0


def two_rasters(spikes: Spikes, first: int, end_ms: float) -> Figure:
    """The last spikes of some neurons of two groups, the second of which begins at `first`."""
    recent, traces = spikes.time_ms > end_ms - LAST_MS, []
    for k, (name, begin) in enumerate((("excitatory", 0), ("inhibitory", first))):
        stop = min(begin + MOST_NEURONS, first) if begin == 0 else begin + MOST_NEURONS // 4
        shown = recent & (spikes.neuron >= begin) & (spikes.neuron < stop)
        place = spikes.neuron[shown] - begin + (min(MOST_NEURONS, first) + 10 if begin else 0)
        marker = {"symbol": "line-ns", "size": 3, "line": {"width": 1.2, "color": COLOURS[k]}}
        traces.append(line(spikes.time_ms[shown], place, name, mode="markers", marker=marker))
    figure = plot(*traces, height=460, xaxis_title="time, ms", yaxis_title="neuron")
    return Figure("Raster", f"The last {min(LAST_MS, end_ms):g} ms of some neurons of each group.", figure)


def rates_over_time(spikes: Spikes, first: int, neurons: int, end_ms: float) -> Figure:
    """How many fire, in bins of a few milliseconds."""
    edges = np.arange(0, end_ms + BIN_MS / 2, BIN_MS)
    traces = []
    for name, begin, stop in (("excitatory", 0, first), ("inhibitory", first, neurons)):
        inside = (spikes.neuron >= begin) & (spikes.neuron < stop)
        count, _ = np.histogram(spikes.time_ms[inside], edges)
        traces.append(line(edges[1:], count / (stop - begin) / BIN_MS * 1000, name))
    figure = plot(*traces, xaxis_title="time, ms", yaxis_title="rate, Hz")
    return Figure("Rates", f"Mean rate of each group in bins of {BIN_MS:g} ms.", figure)


def irregularities(cv: Tensor) -> Figure:
    """Whether neurons fire like clocks or like dice."""
    figure = plot(
        go.Histogram(x=cv.numpy(), nbinsx=60, marker={"color": COLOURS[0]}),
        xaxis_title="standard deviation of a neuron's intervals over their mean",
        yaxis_title="neurons",
    )
    mean = cv.mean() if len(cv) else float("nan")
    return Figure("Irregularity", f"{mean:.2f} on average: 0 is a clock, 1 is chance.", figure)


def interval_histogram(spikes: Spikes) -> Figure:
    """How long neurons wait from one spike to the next."""
    same = spikes.neuron[1:] == spikes.neuron[:-1]
    gaps_ms = np.diff(spikes.time_ms)[same]
    figure = plot(
        go.Histogram(x=gaps_ms, nbinsx=100, marker={"color": COLOURS[2]}),
        xaxis_title="interval between spikes, ms",
        yaxis={"type": "log", "title": "how many"},
    )
    return Figure("Intervals between spikes", f"{len(gaps_ms):,} intervals of all neurons.", figure)


def voltages(v_TR: Tensor, step_ms: float) -> Figure:
    """Some neurons' voltages at the end, one above the other."""
    last = v_TR[-round(LAST_MS / step_ms) :]
    t = (len(v_TR) - len(last) + np.arange(1, len(last) + 1)) * step_ms
    lowest = min(0.0, last.min().item()) if len(last) else 0.0
    apart = math.ceil(2 * (1 - lowest)) / 2
    traces = [line(t, v_T + apart * r, f"neuron {r}", line={"width": 1}) for r, v_T in enumerate(last.T)]
    title = f"v, each {apart:g} above the one before"
    figure = plot(*traces, height=120 + 80 * len(traces), xaxis_title="time, ms", yaxis_title=title)
    caption = "They wander below the threshold, 1 above their own line, and reach it by chance."
    return Figure("Voltages", caption, figure)
