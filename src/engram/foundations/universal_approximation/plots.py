"""Figures of an approximation: function, network, error and hidden units."""

from typing import Any

import numpy as np
import plotly.graph_objects as go
from torch import Tensor

from engram.plots.figure import COLORS, SEQUENTIAL, Figure, line, plot

CURVE_POINTS = 2000
"""points of a curve"""


def function_and_network(x_ND: Tensor, target: Tensor, output: Tensor, bound: float, eps: float) -> Figure:
    """Plot the function and the network."""
    relation = "within" if bound <= eps else "not yet within"
    caption = f"Guaranteed error: at most {bound:.4g}, {relation} eps = {eps:g}."
    if x_ND.shape[1] == 1:
        some = slice(None, None, max(1, len(x_ND) // CURVE_POINTS))
        x, f, g = x_ND[some, 0], target[some], output[some]
        band = go.Scatter(
            x=np.concatenate([x, x.flip(0)]),
            y=np.concatenate([f + eps, (f - eps).flip(0)]),
            fill="toself",
            fillcolor="rgba(128,128,128,0.2)",
            line={"width": 0},
            name="± eps",
        )
        traces = [
            band,
            line(x, f, "function", line={"color": COLORS[0]}),
            line(x, g, "network", line={"color": COLORS[1]}),
        ]
        return Figure("Function and network", caption, plot(*traces, xaxis_title="x"))
    side = round(len(x_ND) ** 0.5)
    axis = x_ND[::side, 0].numpy()
    surfaces = [
        go.Surface(x=axis, y=axis, z=f.view(side, side).T.numpy(), showscale=False, opacity=o, colorscale=c)
        for f, o, c in ((target, 0.5, "Greys"), (output, 1.0, SEQUENTIAL))
    ]
    return Figure("Function and network", f"{caption} The function is gray.", plot(*surfaces, height=560))


def errors(x_ND: Tensor, target: Tensor, output: Tensor, bound: float) -> Figure:
    """Plot the error of the network and its bound."""
    error = (output - target).abs()
    caption = f"Largest measured error: {error.max():.4g}. Guaranteed bound: {bound:.4g}."
    if x_ND.shape[1] == 1:
        some = slice(None, None, max(1, len(x_ND) // CURVE_POINTS))
        figure = plot(line(x_ND[some, 0], error[some], "error"), xaxis_title="x", yaxis_title="|network − function|")
        figure.add_hline(y=bound, line={"dash": "dot"}, annotation_text="guarantee")
        return Figure("Error", caption, figure)
    side = round(len(x_ND) ** 0.5)
    axis = x_ND[::side, 0].numpy()
    heatmap = go.Heatmap(x=axis, y=axis, z=error.view(side, side).T.numpy(), colorscale=SEQUENTIAL)
    return Figure("Error", caption, plot(heatmap, height=460, xaxis_title="x", yaxis_title="y"))


def steps(model: Any) -> Figure:
    """Plot position and height of the steps."""
    n = int(model.used[0])
    jump = model.d[1:n].sum(1) if model.d.ndim == 2 else model.d[1:n]
    bars = go.Bar(x=model.b[0, 1:n].numpy(), y=jump.numpy(), width=0.002, marker={"color": COLORS[2]})
    caption = "Each hidden unit is a logistic step: its position, and its weight in the output."
    return Figure("Steps", caption, plot(bars, xaxis_title="x", yaxis_title="height of the step"))
