"""Gradients layer by layer, and how they depend on depth and activation."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engram.figures.figure import COLOURS, Figure, line, plot


def layers(found: Mapping[str, Sequence[float]], title: str) -> Figure:
    """The size of the gradient in every layer, one line for each kind of network."""
    traces = [
        line(range(1, len(sizes) + 1), np.maximum(sizes, 1e-30), kind, mode="lines+markers", line={"color": COLOURS[i]})
        for i, (kind, sizes) in enumerate(found.items())
    ]
    figure = plot(*traces, xaxis_title="layer, from the input to the output", yaxis_title="|gradient| / |weights|")
    figure.update_yaxes(type="log")
    caption = "Lines that fall towards the input are gradients that vanish on their way back; those that rise explode."
    return Figure(title, caption, figure)


def grid(found: Mapping[str, Sequence[Sequence[float]]], activations: Sequence[str], depths: Sequence[int]) -> Figure:
    """First layer over last, by depth and activation."""
    parts = make_subplots(2, 2, subplot_titles=list(found), horizontal_spacing=0.12, vertical_spacing=0.18)
    for i, table in enumerate(found.values()):
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
        "Before learning: log₁₀ of the first layer's gradient over the last one's, by depth (across) and activation. "
        "Blue vanishes, red explodes, white passes."
    )
    return Figure("Depth and activation", caption, figure)
