"""Embeddings in two dimensions by principal components.   V tokens, N points, E width"""

from collections.abc import Sequence

import plotly.graph_objects as go
import torch
from torch import Tensor

from engram.metrics.pca import pca
from engram.plots.figure import COLORS, Figure, plot
from engram.plots.tokens import format_token


def principal_components(x_NE: Tensor) -> tuple[Tensor, float]:
    """First two principal components, N × 2, with positive largest value, and their share of the variance."""
    components = pca(x_NE)
    scores = components.scores(2)
    xy_N2 = torch.zeros(len(x_NE), 2)
    xy_N2[:, : scores.shape[1]] = scores
    largest = xy_N2.gather(0, xy_N2.abs().argmax(0, keepdim=True))
    return torch.where(largest < 0, -xy_N2, xy_N2), components.explained(2)


def embeddings(E_VE: Tensor, names: Sequence[str], most: int = 200) -> Figure:
    """Embeddings of the first tokens on their first two principal components."""
    x_NE = E_VE[:most].detach().float()
    xy_N2, share = principal_components(x_NE)
    points = go.Scatter(
        x=xy_N2[:, 0].tolist(),
        y=xy_N2[:, 1].tolist(),
        text=[format_token(name) for name in names[: len(x_NE)]],
        mode="markers+text",
        textposition="top center",
        textfont={"size": 11 if len(x_NE) <= 100 else 9},
        marker={"size": 4, "color": COLORS[0]},
        hovertemplate="%{text}<extra></extra>",
    )
    figure = plot(points, height=620)
    figure.update_yaxes(scaleanchor="x")
    left = f" Only the first {most} of {len(E_VE):,} are shown." if len(E_VE) > most else ""
    caption = (
        f"Token embeddings on their first two principal components ({share:.0%} of the variance): tokens that the "
        f"model treats alike lie close together.{left}"
    )
    return Figure("Embeddings", caption, figure)
