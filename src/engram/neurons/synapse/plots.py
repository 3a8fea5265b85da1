"""Figures of synapses: impulse responses and a filtered spike train."""

import numpy as np
import torch
from torch import Tensor

from engram.neurons.synapse.model import impulse_response
from engram.plots.figure import COLORS, Figure, line, plot

MAX_POINTS = 4000


def plot_impulse_responses(tau_ms: float, order: int) -> Figure:
    """Impulse responses of several orders; that of the model is drawn thick."""
    t_ms = torch.linspace(-0.5 * tau_ms, (order + 6) * tau_ms, 600, dtype=torch.float64)
    orders = sorted({0, 1, 2, 3, order})
    traces = [
        line(t_ms, impulse_response(t_ms, tau_ms, n), f"n = {n}", line={"width": 3 if n == order else 1})
        for n in orders
    ]
    figure = plot(*traces, xaxis_title="time since the spike (ms)", yaxis_title="h (1/ms)")
    return Figure("Impulse response", "Every curve has area 1; a higher order is later and smoother.", figure)


def plot_filtered_train(spike_ms: np.ndarray, s_T: Tensor, step_ms: float) -> Figure:
    """A presynaptic spike train and the postsynaptic current."""
    thin = max(1, len(s_T) // MAX_POINTS)
    t_ms = (torch.arange(1, len(s_T) + 1) * step_ms)[::thin]
    marker = {"symbol": "line-ns", "size": 10, "line": {"width": 1.2, "color": COLORS[1]}}
    spikes = line(spike_ms, np.zeros_like(spike_ms), "spikes", mode="markers", marker=marker)
    figure = plot(line(t_ms, s_T[::thin], "s"), spikes, xaxis_title="time (ms)", yaxis_title="s (1/ms)")
    caption = f"{len(spike_ms)} spikes in {len(s_T) * step_ms:g} ms, filtered by the synapse."
    return Figure("Filtered spike train", caption, figure)
