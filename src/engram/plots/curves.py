"""Curves of a run: metrics of training and validation by step, and gradient norms of each layer."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram.plots.figure import AXIS, COLORS, SEQUENTIAL, Figure, line, plot

GRADIENT = "valid_gradient."
SPLITS = {"": "training", "valid": "validation", "test": "test"}
SIMULATION_SPLITS = {"": "since last evaluation", "valid": "so far", "test": "whole run"}
"""labels for simulations, which learn nothing"""


def curves(metrics: Sequence[Mapping[str, Any]], learns: bool = True) -> Iterator[Figure]:
    """Learning curves, or curves of a simulation, then the gradient flow if it was recorded."""
    names = list(dict.fromkeys(name for row in metrics for name in row if name not in ("step", "seconds")))
    plain = [name for name in names if "." not in name]
    repeated = {quantity for split, quantity in map(split_of, plain) if split != "test"}
    plain = [name for name in plain if split_of(name)[1] in repeated] or plain  # a single final value is no curve
    if plain:
        yield learning_curves(metrics, plain, SPLITS if learns else SIMULATION_SPLITS)
    if layers := [name for name in names if name.startswith(GRADIENT)]:
        yield gradient_flow(metrics, layers)


def learning_curves(
    metrics: Sequence[Mapping[str, Any]], names: Sequence[str], labels: Mapping[str, str] = SPLITS
) -> Figure:
    """One plot for each metric, with its curves on all splits."""
    quantities = list(dict.fromkeys(split_of(name)[1] for name in names))
    columns = min(2, len(quantities))
    rows = -(-len(quantities) // columns)
    grid = make_subplots(
        rows, columns, subplot_titles=[name.replace("_", " ") for name in quantities], vertical_spacing=0.3 / rows
    )
    labeled: set[str] = set()
    for name in names:
        split, quantity = split_of(name)
        label, color = labels[split], COLORS[list(SPLITS).index(split)]
        x, y = series(metrics, name)
        place = divmod(quantities.index(quantity), columns)
        style = {"mode": "markers", "marker": {"size": 11, "symbol": "star"}} if len(x) == 1 else {"mode": "lines"}
        trace = line(x, y, label, legendgroup=label, showlegend=label not in labeled, line={"color": color}, **style)
        trace.marker.color = color
        grid.add_trace(trace, place[0] + 1, place[1] + 1)
        labeled.add(label)
    style = plot(height=80 + 280 * rows, legend={"orientation": "h", "yanchor": "bottom", "y": 1 + 0.13 / rows}).layout
    figure = go.Figure(grid).update_layout(style).update_layout(margin_t=70)
    figure.update_xaxes(AXIS)
    figure.update_yaxes(AXIS)
    figure.update_xaxes(title="step", row=rows)
    caption = "Metrics during the run."
    if {"loss", "valid_loss"} <= set(names):
        caption += " Where the validation loss rises above the training loss, the model overfits."
    return Figure("Learning curves" if labels is SPLITS else "Curves", caption, figure)


def gradient_flow(metrics: Sequence[Mapping[str, Any]], layers: Sequence[str]) -> Figure:
    """Relative gradient norm of each layer, from the input (bottom) to the output (top), over training."""
    x, _ = series(metrics, layers[0])
    z = np.log10(np.maximum([series(metrics, name)[1] for name in layers], 1e-12))
    labels = [name.removeprefix(GRADIENT) for name in layers]
    cells = go.Heatmap(x=x, y=labels, z=z, colorscale=SEQUENTIAL, colorbar={"title": "log₁₀"}, xgap=1, ygap=1)
    caption = (
        "Gradient norm of each layer's weights divided by the norm of the weights. Gradients that shrink toward the "
        "input vanish, those that grow explode."
    )
    figure = plot(cells, height=160 + 28 * len(layers), xaxis_title="step", yaxis_automargin=True)
    figure.update_xaxes(type="category")
    return Figure("Gradient flow", caption, figure)


def split_of(name: str) -> tuple[str, str]:
    """Split and quantity of a metric: valid_loss -> (valid, loss); loss -> ("", loss)."""
    head, _, tail = name.partition("_")
    return (head, tail) if head in SPLITS and tail else ("", name)


def series(metrics: Sequence[Mapping[str, Any]], name: str) -> tuple[list[int], list[float]]:
    """Steps and values of a metric."""
    rows = [row for row in metrics if name in row]
    return [row["step"] for row in rows], [row[name] for row in rows]
