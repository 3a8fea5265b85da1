"""How a run went: every metric against the step, training and validation side by side; gradients layer by layer."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram.figures.figure import AXIS, COLOURS, SEQUENTIAL, Figure, line, plot

GRADIENT = "valid_gradient."
SPLITS = {"": "training", "valid": "validation", "test": "test"}
SPANS = {"": "in this stretch", "valid": "so far", "test": "in the end"}
"""the same where nothing is learnt and time passes"""


def curves(metrics: Sequence[Mapping[str, Any]], learns: bool = True) -> Iterator[Figure]:
    """The learning curves, or those of what passes, then the flow of the gradient if it was measured."""
    names = list(dict.fromkeys(name for row in metrics for name in row if name not in ("step", "seconds")))
    plain = [name for name in names if "." not in name]
    moving = {quantity for split, quantity in map(split_of, plain) if split != "test"}
    plain = [name for name in plain if split_of(name)[1] in moving] or plain  # one value in the end is no curve
    if plain:
        yield learning_curves(metrics, plain, SPLITS if learns else SPANS)
    if layers := [name for name in names if name.startswith(GRADIENT)]:
        yield gradient_flow(metrics, layers)


def learning_curves(
    metrics: Sequence[Mapping[str, Any]], names: Sequence[str], labels: Mapping[str, str] = SPLITS
) -> Figure:
    quantities = list(dict.fromkeys(split_of(name)[1] for name in names))
    columns = min(2, len(quantities))
    rows = -(-len(quantities) // columns)
    grid = make_subplots(
        rows, columns, subplot_titles=[name.replace("_", " ") for name in quantities], vertical_spacing=0.3 / rows
    )
    labelled: set[str] = set()
    for name in names:
        split, quantity = split_of(name)
        label, colour = labels[split], COLOURS[list(SPLITS).index(split)]
        x, y = series(metrics, name)
        place = divmod(quantities.index(quantity), columns)
        style = {"mode": "markers", "marker": {"size": 11, "symbol": "star"}} if len(x) == 1 else {"mode": "lines"}
        trace = line(x, y, label, legendgroup=label, showlegend=label not in labelled, line={"color": colour}, **style)
        trace.marker.color = colour
        grid.add_trace(trace, place[0] + 1, place[1] + 1)
        labelled.add(label)
    style = plot(height=80 + 280 * rows, legend={"orientation": "h", "yanchor": "bottom", "y": 1 + 0.13 / rows}).layout
    figure = go.Figure(grid).update_layout(style).update_layout(margin_t=70)
    figure.update_xaxes(AXIS)
    figure.update_yaxes(AXIS)
    figure.update_xaxes(title="step", row=rows)
    caption = "What was measured on the way."
    if {"loss", "valid_loss"} <= set(names):
        caption += " Where validation leaves training behind, the model is overfitting."
    return Figure("Curves", caption, figure)


def gradient_flow(metrics: Sequence[Mapping[str, Any]], layers: Sequence[str]) -> Figure:
    """Layer by layer from the input (bottom) to the output (top), over the whole of learning."""
    x, _ = series(metrics, layers[0])
    z = np.log10(np.maximum([series(metrics, name)[1] for name in layers], 1e-12))
    labels = [name.removeprefix(GRADIENT) for name in layers]
    heat = go.Heatmap(x=x, y=labels, z=z, colorscale=SEQUENTIAL, colorbar={"title": "log₁₀"}, xgap=1, ygap=1)
    caption = (
        "Size of the gradient in each layer's weights, relative to the weights. Layers that grow dark towards the "
        "input are vanishing gradients, layers that grow bright are exploding ones."
    )
    figure = plot(heat, height=160 + 28 * len(layers), xaxis_title="step", yaxis_automargin=True)
    figure.update_xaxes(type="category")
    return Figure("Gradient flow", caption, figure)


def split_of(name: str) -> tuple[str, str]:
    """valid_loss -> (valid, loss); loss -> ('', loss)"""
    head, _, tail = name.partition("_")
    return (head, tail) if head in SPLITS and tail else ("", name)


def series(metrics: Sequence[Mapping[str, Any]], name: str) -> tuple[list[int], list[float]]:
    rows = [row for row in metrics if name in row]
    return [row["step"] for row in rows], [row[name] for row in rows]
