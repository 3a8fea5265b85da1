"""A function, the network that was built for it, and the steps that it is made of."""

from typing import Any

import numpy as np
import plotly.graph_objects as go
from torch import Tensor

from engram.figures.figure import COLOURS, SEQUENTIAL, Figure, line, plot

NAMES = ("function", "network")
SHOWN = 2000
"""points of a curve"""


def beside(x_ND: Tensor, truth: Tensor, made: Tensor, bound: float, eps: float) -> Figure:
    """The function and the network."""
    said = "within" if bound <= eps else "not yet within"
    caption = f"The network is certain to be at most {bound:.4g} away, {said} the {eps:g} that were asked for."
    if x_ND.shape[1] == 1:
        some = slice(None, None, max(1, len(x_ND) // SHOWN))
        x, f, g = x_ND[some, 0], truth[some], made[some]
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
            line(x, f, "function", line={"color": COLOURS[0]}),
            line(x, g, "network", line={"color": COLOURS[1]}),
        ]
        return Figure("Function and network", caption, plot(*traces, xaxis_title="x"))
    side = round(len(x_ND) ** 0.5)
    axis = x_ND[::side, 0].numpy()
    surfaces = [
        go.Surface(x=axis, y=axis, z=f.view(side, side).T.numpy(), showscale=False, opacity=o, colorscale=c)
        for f, o, c in ((truth, 0.5, "Greys"), (made, 1.0, SEQUENTIAL))
    ]
    return Figure("Function and network", f"{caption} The function is grey.", plot(*surfaces, height=560))


def errors(x_ND: Tensor, truth: Tensor, made: Tensor, bound: float) -> Figure:
    """How far the network is from the function, and how far it can be."""
    away = (made - truth).abs()
    caption = f"At most {away.max():.4g} was found; {bound:.4g} cannot be exceeded anywhere."
    if x_ND.shape[1] == 1:
        some = slice(None, None, max(1, len(x_ND) // SHOWN))
        figure = plot(line(x_ND[some, 0], away[some], "error"), xaxis_title="x", yaxis_title="|network − function|")
        figure.add_hline(y=bound, line={"dash": "dot"}, annotation_text="guarantee")
        return Figure("Error", caption, figure)
    side = round(len(x_ND) ** 0.5)
    axis = x_ND[::side, 0].numpy()
    heat = go.Heatmap(x=axis, y=axis, z=away.view(side, side).T.numpy(), colorscale=SEQUENTIAL)
    return Figure("Error", caption, plot(heat, height=460, xaxis_title="x", yaxis_title="y"))


def steps(model: Any) -> Figure:
    """Where the network steps, and how high."""
    n = int(model.used[0])
    jump = model.d[1:n].sum(1) if model.d.ndim == 2 else model.d[1:n]
    bars = go.Bar(x=model.b[0, 1:n].numpy(), y=jump.numpy(), width=0.002, marker={"color": COLOURS[2]})
    caption = "Each hidden unit is a logistic step: where it is, and by how much it raises or lowers the network."
    return Figure("Steps", caption, plot(bars, xaxis_title="x", yaxis_title="height of the step"))
