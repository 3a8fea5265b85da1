"""Memories: what was stored, what it became of, and how much a network holds."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from torch import Tensor

from engram.figures.figure import COLOURS, Figure, line, plot
from engram.figures.heat import DIVERGING
from engram.figures.pictures import sheet


def recalled(rows: Tensor, names: Sequence[str] = ()) -> Figure:
    """Stored, corrupted, recalled: three rows of pictures from -1 to 1, 3 × B × C × H × W."""
    caption = "Above what was stored, below it what was given, and at the bottom what the network made of it."
    count = rows.shape[1]
    labels = [*[""] * 2 * count, *names] if names else ()
    return Figure("Corrupted and recalled", caption, sheet(0.5 + 0.4 * rows.flatten(0, 1), count, labels))


def energies(energy_BS: Tensor, most: int = 12) -> Figure:
    """How the energy of states falls, sweep by sweep."""
    traces = [
        line(np.arange(len(one)), one, f"state {i}", showlegend=False, mode="lines+markers", opacity=0.7)
        for i, one in enumerate(energy_BS[:most])
    ]
    caption = "The energy of each state, before the first sweep and after each: it never rises."
    return Figure("Energy", caption, plot(*traces, xaxis_title="sweep", yaxis_title="energy", xaxis_dtick=1))


def weights(W_NN: Tensor) -> Figure:
    extent = W_NN.abs().max().clamp(min=1e-12).item()
    heat = go.Heatmap(z=W_NN.numpy(), colorscale=DIVERGING, zmin=-extent, zmax=extent, colorbar_thickness=12)
    figure = plot(heat, height=520)
    figure.update_yaxes(autorange="reversed", scaleanchor="x")
    return Figure("Weights", "Who pulls whom: blue to the same side, orange to the opposite one.", figure)


def shares(title: str, caption: str, x: Sequence[float], curves: Mapping[str, Sequence[float]], axis: str) -> Figure:
    """Parts from 0 to 1 against something."""
    traces = [
        line(x, y, name, mode="lines+markers", line={"color": COLOURS[i % len(COLOURS)]})
        for i, (name, y) in enumerate(curves.items())
    ]
    return Figure(title, caption, plot(*traces, xaxis_title=axis, yaxis={"range": [-0.02, 1.05], "tickformat": ".0%"}))


def ends(counts: Mapping[str, int]) -> Figure:
    """Where random states end."""
    total = max(1, sum(counts.values()))
    bars = go.Bar(
        x=[count / total for count in counts.values()], y=list(counts), orientation="h", marker_color=COLOURS[0],
        text=[f"{count / total:.0%}" for count in counts.values()],
    )  # fmt: skip
    caption = (
        "Where states end that begin at random: in a pattern that was stored, in its opposite, which has the same "
        "energy, in a mixture of several, or elsewhere: memories that nobody put there."
    )
    return Figure("Spurious states", caption, plot(bars, height=240, xaxis={"tickformat": ".0%"}))
