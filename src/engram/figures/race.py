"""Paths of optimisers on a surface."""

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from engram.figures.figure import COLOURS, Figure, line, plot

SIDE = 120
MARGIN = 0.3


def paths(model: Any, path_TR2: Tensor, names: Sequence[str]) -> Figure:
    """The surface from above, and everybody's way."""
    sane = path_TR2[(path_TR2.abs() < 50).all(-1)]
    low, high = sane.amin(0), sane.amax(0)
    room = (high - low).clamp(min=1.0) * MARGIN
    x, y = (torch.linspace(float(a), float(b), SIDE) for a, b in zip(low - room, high + room, strict=True))
    z = model(torch.cartesian_prod(x, y)).view(SIDE, SIDE).T
    level = (z - z.min()).clamp(min=0).sqrt()  # so that valleys are seen beside walls
    contour = go.Contour(
        x=x.numpy(), y=y.numpy(), z=level.numpy(), customdata=z.numpy(),
        colorscale="Greys", reversescale=True, showscale=False, ncontours=30,
        line={"width": 0.5}, hovertemplate="%{x:.3g}, %{y:.3g}: %{customdata:.4g}<extra></extra>",
    )  # fmt: skip
    traces = [contour]
    for i, name in enumerate(names):
        way = path_TR2[:, i]
        traces.append(line(way[:, 0], way[:, 1], name, line={"color": COLOURS[i], "width": 2}))
        last = {"size": 11, "color": COLOURS[i], "line": {"color": "white", "width": 1}}
        traces.append(
            go.Scatter(
                x=way[-1:, 0].numpy(), y=way[-1:, 1].numpy(), mode="markers", marker=last, name=name, showlegend=False
            )
        )
    figure = plot(*traces, height=560, xaxis_title="x", yaxis_title="y")
    figure.update_xaxes(range=[float(x[0]), float(x[-1])])
    figure.update_yaxes(range=[float(y[0]), float(y[-1])])
    caption = f"E = {model.config.surface}, dark where it is low. All start at one place; discs are where they ended."
    return Figure("Paths", caption, figure)


def descent(model: Any, path_TR2: Tensor, names: Sequence[str]) -> Figure:
    """How low everybody is, step by step."""
    T = len(path_TR2)
    height_TR = model(path_TR2.flatten(0, 1)).view(T, -1)
    height_TR = height_TR - height_TR[height_TR.isfinite()].min() + 1e-8
    traces = [line(range(T), height_TR[:, i], name, line={"color": COLOURS[i]}) for i, name in enumerate(names)]
    figure = plot(*traces, xaxis_title="step", yaxis_title="above the lowest place that any found", yaxis_type="log")
    return Figure(
        "Height", "Straight lines are exponential descent; flat noisy ones are as low as noise lets them.", figure
    )


def lengths(path_TR2: Tensor, names: Sequence[str]) -> Figure:
    """How long the steps are."""
    step_TR = path_TR2.diff(dim=0).norm(dim=-1)
    traces = [
        line(range(1, len(path_TR2)), step_TR[:, i], name, line={"color": COLOURS[i]}) for i, name in enumerate(names)
    ]
    figure = plot(*traces, xaxis_title="step", yaxis_title="length of the step", yaxis_type="log")
    caption = "Gradient descent goes fast where it is steep; adaptive ones go at a pace of their own."
    return Figure("Steps", caption, figure)
