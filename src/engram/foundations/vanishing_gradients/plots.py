"""Figures of vanishing gradients: gradient norms by layer, and by depth and activation function."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram.plots.figure import COLORS, Figure, line, plot


def gradient_norms(norms: Mapping[str, Sequence[float]], title: str) -> Figure:
    """Relative gradient norm of every layer, one line for each architecture."""
    traces = [
        line(
            range(1, len(values) + 1),
            np.maximum(values, 1e-30),
            name,
            mode="lines+markers",
            line={"color": COLORS[i]},
        )
        for i, (name, values) in enumerate(norms.items())
    ]
    figure = plot(*traces, xaxis_title="layer (1 is nearest to the input)", yaxis_title="gradient norm / weight norm")
    figure.update_yaxes(type="log")
    caption = "Gradients that fall toward the input vanish; those that rise toward it explode."
    return Figure(title, caption, figure)


def gradient_ratios(
    ratios: Mapping[str, Sequence[Sequence[float]]], activations: Sequence[str], depths: Sequence[int]
) -> Figure:
    """Heatmaps of the gradient norm of the first layer over that of the last, one for each architecture."""
    parts = make_subplots(2, 2, subplot_titles=list(ratios), horizontal_spacing=0.12, vertical_spacing=0.18)
    for i, table in enumerate(ratios.values()):
        z = np.log10(np.maximum(np.nan_to_num(np.array(table), nan=1e30, posinf=1e30), 1e-30)).clip(-30, 30)
        heat = go.Heatmap(
            x=[str(depth) for depth in depths], y=list(activations), z=z, zmid=0, zmin=-6, zmax=6, colorscale="RdBu",
            reversescale=True, text=[[f"{v:.1f}" for v in row] for row in z], texttemplate="%{text}", showscale=False,
        )  # fmt: skip
        parts.add_trace(heat, i // 2 + 1, i % 2 + 1)
    figure = go.Figure(parts).update_layout(plot(height=620).layout).update_layout(margin_t=60)
    figure.update_xaxes(type="category")
    figure.update_yaxes(automargin=True)
    caption = (
        "Before training: log₁₀ of the first layer's gradient norm over the last one's, by depth (x axis) and "
        "activation. Blue vanishes, red explodes, white is preserved."
    )
    return Figure("Gradient ratio by depth and activation", caption, figure)
