"""Spiking layers over time: who fires when, how often, and what the output makes of it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from engram.figures.figure import COLOURS, Figure, line, plot

MOST_NEURONS = 200


def layer_raster(s_TN: Tensor, name: str) -> Figure:
    """The spikes of a layer while it sees one picture."""
    shown_TN = s_TN[:, :MOST_NEURONS]
    t, neuron = shown_TN.nonzero(as_tuple=True)
    marker = {"symbol": "line-ns", "size": 5, "line": {"width": 1.5, "color": COLOURS[0]}}
    figure = plot(
        line(t + 1, neuron, "spikes", mode="markers", marker=marker), xaxis_title="time step", yaxis_title="neuron"
    )
    silent = (s_TN.sum(0) == 0).double().mean()
    active, whole = s_TN.double().mean(), f"the first {shown_TN.shape[1]} of {s_TN.shape[1]} neurons"
    caption = f"Here {whole}; they fire in {active:.1%} of all steps, and {silent:.0%} of them never."
    return Figure(f"Spikes, {name}", caption, figure)


def membranes(u_TK: Tensor, classes: Sequence[str], truth: str) -> Figure:
    """The outputs' voltages, whose mean over time decides."""
    T = torch.arange(1, len(u_TK) + 1)
    best = int(u_TK.mean(0).argmax())
    traces = [
        line(T, u_T, name, line={"width": 3 if k == best else 1.2, "dash": "dot" if k >= len(COLOURS) else "solid"})
        for k, (name, u_T) in enumerate(zip(classes, u_TK.T, strict=True))
    ]
    figure = plot(*traces, xaxis_title="time step", yaxis_title="membrane")
    return Figure("Outputs over time", f"The picture is «{truth}», and is taken for «{classes[best]}».", figure)
