"""Synapses: what one spike leaves, and what a train becomes."""

import numpy as np
import torch
from torch import Tensor

from engram.figures.figure import COLOURS, Figure, line, plot
from engram.neurons.synapse import response

MOST_POINTS = 4000


def responses(tau_ms: float, order: int) -> Figure:
    """h for several orders; the one that is used is drawn thick."""
    t_ms = torch.linspace(-0.5 * tau_ms, (order + 6) * tau_ms, 600, dtype=torch.float64)
    orders = sorted({0, 1, 2, 3, order})
    traces = [line(t_ms, response(t_ms, tau_ms, n), f"n = {n}", line={"width": 3 if n == order else 1}) for n in orders]
    figure = plot(*traces, xaxis_title="time since the spike, ms", yaxis_title="h, per ms")
    return Figure(
        "Response to one spike", "Every curve has the area 1; the higher n, the later and the smoother.", figure
    )


def filtered(spike_ms: np.ndarray, s_T: Tensor, step_ms: float) -> Figure:
    """A train, and the input that it becomes."""
    thin = max(1, len(s_T) // MOST_POINTS)
    t_ms = (torch.arange(1, len(s_T) + 1) * step_ms)[::thin]
    marker = {"symbol": "line-ns", "size": 10, "line": {"width": 1.2, "color": COLOURS[1]}}
    spikes = line(spike_ms, np.zeros_like(spike_ms), "spikes", mode="markers", marker=marker)
    figure = plot(line(t_ms, s_T[::thin], "s"), spikes, xaxis_title="time, ms", yaxis_title="s, per ms")
    caption = f"{len(spike_ms)} spikes in {len(s_T) * step_ms:g} ms, and their sum of responses."
    return Figure("A train, filtered", caption, figure)
