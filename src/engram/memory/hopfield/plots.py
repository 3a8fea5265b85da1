"""Figures of associative memories: recall, energy, weights, capacity, attractors."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from torch import Tensor

from engram.plots.figure import COLORS, Figure, line, plot
from engram.plots.heatmap import DIVERGING
from engram.plots.images import sheet


def recall_images(rows: Tensor, names: Sequence[str] = ()) -> Figure:
    """Three rows of images, stored, corrupted and recalled, from 3 × B × C × H × W of -1 to 1."""
    caption = "Rows: stored pattern, corrupted cue, recalled state."
    count = rows.shape[1]
    labels = [*[""] * 2 * count, *names] if names else ()
    return Figure("Associative recall", caption, sheet(0.5 + 0.4 * rows.flatten(0, 1), count, labels))


def energy_curves(energy_BS: Tensor, max_states: int = 12) -> Figure:
    """Energy of every state before the first sweep and after each."""
    traces = [
        line(np.arange(len(one)), one, f"state {i}", showlegend=False, mode="lines+markers", opacity=0.7)
        for i, one in enumerate(energy_BS[:max_states])
    ]
    caption = "Energy of each state before the first sweep and after each: asynchronous updates never raise it."
    return Figure("Energy", caption, plot(*traces, xaxis_title="sweep", yaxis_title="energy", xaxis_dtick=1))


def weight_matrix(W_NN: Tensor) -> Figure:
    """Heatmap of the weights."""
    extent = W_NN.abs().max().clamp(min=1e-12).item()
    heat = go.Heatmap(z=W_NN.numpy(), colorscale=DIVERGING, zmin=-extent, zmax=extent, colorbar_thickness=12)
    figure = plot(heat, height=520)
    figure.update_yaxes(autorange="reversed", scaleanchor="x")
    return Figure("Weights", "Weights between units: blue is positive, orange negative.", figure)


def fraction_curves(
    title: str, caption: str, x: Sequence[float], curves: Mapping[str, Sequence[float]], axis: str
) -> Figure:
    """Curves of fractions from 0 to 1."""
    traces = [
        line(x, y, name, mode="lines+markers", line={"color": COLORS[i % len(COLORS)]})
        for i, (name, y) in enumerate(curves.items())
    ]
    return Figure(title, caption, plot(*traces, xaxis_title=axis, yaxis={"range": [-0.02, 1.05], "tickformat": ".0%"}))


def attractors(counts: Mapping[str, int]) -> Figure:
    """Fractions of random states by the kind of attractor that they converge to."""
    total = max(1, sum(counts.values()))
    bars = go.Bar(
        x=[count / total for count in counts.values()], y=list(counts), orientation="h", marker_color=COLORS[0],
        text=[f"{count / total:.0%}" for count in counts.values()],
    )  # fmt: skip
    caption = (
        "Attractors that random states converge to: a stored pattern, its negative, which has the same energy, a "
        "mixture of several patterns, or another spurious state."
    )
    return Figure("Spurious states", caption, plot(bars, height=240, xaxis={"tickformat": ".0%"}))
