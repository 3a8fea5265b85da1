"""Figures of recurrent networks: gradient norm by distance, gates and states over time, predictions."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from torch import Tensor

from engram.plots.figure import COLORS, SEQUENTIAL, Figure, line, plot

MAX_UNITS, MAX_SEQUENCES = 64, 24
"""largest number of units and of sequences that a figure shows"""


def gradient_by_distance(norm_by_cell: Mapping[str, Tensor], trained: str) -> Figure:
    """Plot the norm of dh_T / dx_t against T - t for each cell.

    `trained` names the one of the trained network.
    """
    traces = [
        line(
            range(len(norm_T)), norm_T.clamp(min=1e-12), name,
            line={"width": 3.5 if name == trained else 1.5, "color": COLORS[i % len(COLORS)],
                  "dash": "solid" if name == trained or i < len(COLORS) else "dot"},
        )
        for i, (name, norm_T) in enumerate(norm_by_cell.items())
    ]  # fmt: skip
    caption = (
        "Sensitivity of the last hidden state to the input of earlier steps. The thick line is the first cell of this "
        "network, trained; the others are untrained cells of 32 units on noise, with chrono initialization. In a plain "
        "RNN each step multiplies by the same matrix and a derivative below 1, so gradients vanish; a gate that is "
        "nearly closed preserves them."
    )
    figure = plot(*traces, height=420, xaxis_title="steps back", yaxis_title="‖∂h_T/∂x_t‖", yaxis_type="log")
    figure.update_yaxes(exponentformat="power")
    return Figure("Gradient norm by distance", caption, figure)


def cell_activations(activations: Mapping[str, Tensor], steps: Sequence[str]) -> Figure:
    """Plot gates and states over time as a heatmap, each T × H; `steps` names the time steps."""
    names = list(activations)
    heatmaps = [
        go.Heatmap(
            z=activations[name].T[:MAX_UNITS].numpy(), colorscale=SEQUENTIAL, visible=i == 0, name=name,
            text=[list(steps)] * min(MAX_UNITS, activations[name].shape[1]),
            hovertemplate="step %{x} (%{text})<br>unit %{y}: %{z:.3f}<extra></extra>",
        )
        for i, name in enumerate(names)
    ]  # fmt: skip
    buttons = [
        {"label": name, "method": "update", "args": [{"visible": [j == i for j in range(len(names))]}]}
        for i, name in enumerate(names)
    ]
    figure = plot(*heatmaps, height=440, xaxis_title="step", yaxis_title="unit")
    figure.update_layout(updatemenus=[{"buttons": buttons, "x": 0, "xanchor": "left", "y": 1.14, "yanchor": "bottom"}])
    figure.update_layout(margin_t=90)
    caption = "Choose a gate or a state: each row is a unit, from the first step on the left to the last on the right."
    return Figure("Gates and states over time", caption, figure)


def recall_table(predicted_NL: Tensor, target_NL: Tensor) -> Figure:
    """Plot the recalled tokens of each sequence, errors in another color."""
    N = min(MAX_SEQUENCES, len(target_NL))
    correct_NL = (predicted_NL == target_NL)[:N].int()
    text = [
        [f"{token}" if token == target else f"{token} ({target})" for token, target in zip(row, targets, strict=True)]
        for row, targets in zip(predicted_NL[:N].tolist(), target_NL[:N].tolist(), strict=True)
    ]
    heatmap = go.Heatmap(
        z=correct_NL.numpy(), text=text, texttemplate="%{text}", zmin=0, zmax=1, showscale=False, xgap=2, ygap=2,
        colorscale=[[0, "rgba(213,94,0,0.55)"], [1, "rgba(0,158,115,0.35)"]], hoverinfo="skip",
    )  # fmt: skip
    figure = plot(heatmap, height=120 + 22 * N, xaxis_title="position", yaxis_title="sequence")
    figure.update_yaxes(autorange="reversed")
    accuracy = float((predicted_NL == target_NL).float().mean())
    caption = (
        f"Predicted tokens; errors show the true token in parentheses. Accuracy {accuracy:.1%} on "
        f"{target_NL.numel():,} tokens."
    )
    return Figure("Recall", caption, figure)


def predicted_against_target(predicted_N: Tensor, target_N: Tensor) -> Figure:
    """Plot predicted numbers against their targets."""
    low, high = float(target_N.min()), float(target_N.max())
    dots = line(target_N, predicted_N, "test sequence", mode="markers", marker={"size": 5, "opacity": 0.6})
    diagonal = line([low, high], [low, high], "perfect", line={"dash": "dot", "color": COLORS[6]})
    figure = plot(dots, diagonal, height=420, xaxis_title="target", yaxis_title="prediction")
    caption = "Perfect predictions lie on the diagonal; a network that has learned nothing predicts the mean."
    return Figure("Predictions", caption, figure)


def forecast(true_TI: Tensor, one_step_TI: Tensor, free_run_TI: Tensor) -> Figure:
    """Plot the first channel of a series: true, predicted one step ahead, and generated in a free run."""
    steps, start = np.arange(1, len(true_TI) + 1), len(true_TI) - len(free_run_TI)
    figure = plot(
        line(steps, true_TI[:, 0], "true"),
        line(steps, one_step_TI[:, 0], "one step ahead", line={"dash": "dot"}),
        line(steps[start:], free_run_TI[:, 0][: len(steps) - start], "free run", line={"width": 1.2}),
        height=400, xaxis_title="time step (test split)", yaxis_title="first channel",
    )  # fmt: skip
    caption = "One step ahead: from all earlier values. Free run, from the middle on: from its own predictions."
    return Figure("Forecast", caption, figure)
