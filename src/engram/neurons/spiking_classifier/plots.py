"""Figures of a spiking classifier: spike rasters of its layers and membranes of its output neurons."""

from collections.abc import Sequence

import torch
from torch import Tensor

from engram.plots.figure import COLORS, Figure, line, plot

MAX_NEURONS = 200
"""neurons shown in a raster"""


def layer_raster(s_TN: Tensor, name: str) -> Figure:
    """Spike raster of a layer for one image."""
    shown_TN = s_TN[:, :MAX_NEURONS]
    t, neuron = shown_TN.nonzero(as_tuple=True)
    marker = {"symbol": "line-ns", "size": 5, "line": {"width": 1.5, "color": COLORS[0]}}
    figure = plot(
        line(t + 1, neuron, "spikes", mode="markers", marker=marker), xaxis_title="time step", yaxis_title="neuron"
    )
    silent = (s_TN.sum(0) == 0).double().mean()
    caption = (
        f"The first {shown_TN.shape[1]} of {s_TN.shape[1]} neurons. A neuron of this layer spikes in "
        f"{s_TN.double().mean():.1%} of all time steps; {silent:.0%} of the neurons are silent."
    )
    return Figure(f"Spikes, {name}", caption, figure)


def membranes(u_TK: Tensor, classes: Sequence[str], truth: str) -> Figure:
    """Membrane potentials of the output neurons, whose means over time are the logits.

    `truth` is the class, or "".
    """
    T = torch.arange(1, len(u_TK) + 1)
    best = int(u_TK.mean(0).argmax())
    traces = [
        line(T, u_T, name, line={"width": 3 if k == best else 1.2, "dash": "dot" if k >= len(COLORS) else "solid"})
        for k, (name, u_T) in enumerate(zip(classes, u_TK.T, strict=True))
    ]
    figure = plot(*traces, xaxis_title="time step", yaxis_title="membrane potential")
    true = f"True class: {truth}. " if truth else ""
    return Figure("Outputs over time", f"{true}Predicted: {classes[best]}.", figure)
