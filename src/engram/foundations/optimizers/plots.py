"""Paths of optimizers on a surface."""

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from engram.plots.figure import COLORS, Figure, line, plot

SIDE = 120
MARGIN = 0.3


def paths(model: Any, path_TR2: Tensor, names: Sequence[str]) -> Figure:
    """Plot the paths of the optimizers on a contour map of the surface."""
    bounded = path_TR2[(path_TR2.abs() < 50).all(-1)]
    low, high = bounded.amin(0), bounded.amax(0)
    margin = (high - low).clamp(min=1.0) * MARGIN
    x, y = (torch.linspace(float(a), float(b), SIDE) for a, b in zip(low - margin, high + margin, strict=True))
    z = model(torch.cartesian_prod(x, y)).view(SIDE, SIDE).T
    level = (z - z.min()).clamp(min=0).sqrt()  # resolves valleys beside steep walls
    contour = go.Contour(
        x=x.numpy(), y=y.numpy(), z=level.numpy(), customdata=z.numpy(),
        colorscale="Greys", reversescale=True, showscale=False, ncontours=30,
        line={"width": 0.5}, hovertemplate="%{x:.3g}, %{y:.3g}: %{customdata:.4g}<extra></extra>",
    )  # fmt: skip
    traces = [contour]
    for i, name in enumerate(names):
        path_T2 = path_TR2[:, i]
        traces.append(line(path_T2[:, 0], path_T2[:, 1], name, line={"color": COLORS[i], "width": 2}))
        last = {"size": 11, "color": COLORS[i], "line": {"color": "white", "width": 1}}
        traces.append(
            go.Scatter(
                x=path_T2[-1:, 0].numpy(),
                y=path_T2[-1:, 1].numpy(),
                mode="markers",
                marker=last,
                name=name,
                showlegend=False,
            )
        )
    figure = plot(*traces, height=560, xaxis_title="x", yaxis_title="y")
    figure.update_xaxes(range=[float(x[0]), float(x[-1])])
    figure.update_yaxes(range=[float(y[0]), float(y[-1])])
    caption = f"E = {model.config.surface}, dark where it is low. Discs mark the last positions."
    return Figure("Optimizer trajectories", caption, figure)


def convergence(model: Any, path_TR2: Tensor, names: Sequence[str]) -> Figure:
    """Plot the value reached by each optimizer over steps."""
    T = len(path_TR2)
    value_TR = model(path_TR2.flatten(0, 1)).view(T, -1)
    value_TR = value_TR - value_TR[value_TR.isfinite()].min() + 1e-8
    traces = [line(range(T), value_TR[:, i], name, line={"color": COLORS[i]}) for i, name in enumerate(names)]
    figure = plot(*traces, xaxis_title="step", yaxis_title="E above the lowest value found", yaxis_type="log")
    return Figure(
        "Convergence", "Straight lines are exponential convergence; flat noisy ones are at the noise floor.", figure
    )


def step_lengths(path_TR2: Tensor, names: Sequence[str]) -> Figure:
    """Plot the step length of each optimizer."""
    step_TR = path_TR2.diff(dim=0).norm(dim=-1)
    traces = [
        line(range(1, len(path_TR2)), step_TR[:, i], name, line={"color": COLORS[i]}) for i, name in enumerate(names)
    ]
    figure = plot(*traces, xaxis_title="step", yaxis_title="step length", yaxis_type="log")
    caption = "Gradient descent takes long steps where the surface is steep; adaptive optimizers normalize them."
    return Figure("Step length", caption, figure)
