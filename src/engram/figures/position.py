"""The geometry of positions (note 004): how alike they are, and the path they take through their space.

T positions, E width, D width of a head

    sinusoidal   P_p . P_r = sum_i cos((p - r) w_i)               a matrix of diagonals: only the distance counts    (1)
    rotary       mean over q of (R_p q) . (R_r q) / |q|^2 = (2 / D) sum_i cos((p - r) w_i)                           (2)
"""

import plotly.graph_objects as go
import torch
from torch import Tensor
from torch.nn import functional as F

from engram.figures.embedding import principal
from engram.figures.figure import COLOURS, GRID, SEQUENTIAL, Figure, line, plot
from engram.figures.heat import tinted
from engram.figures.pictures import sheet
from engram.layers.position import angles


def positions(P_TE: Tensor) -> Figure:
    """Positions that are learned or sinusoidal: how alike they are (left), and their path in two dimensions (right)."""
    P_TE = P_TE.detach().float()
    alike_TT = alikeness(P_TE)
    xy_T2, share = principal(P_TE)
    order = list(range(len(P_TE)))
    hover = "positions %{y} and %{x}: %{z:.2f}<extra></extra>"
    heat = go.Heatmap(
        z=alike_TT.numpy(), colorscale=SEQUENTIAL, hovertemplate=hover, colorbar={"x": 0.44, "thickness": 10}
    )
    path = go.Scatter(
        x=xy_T2[:, 0].tolist(),
        y=xy_T2[:, 1].tolist(),
        text=order,
        hovertemplate="position %{text}<extra></extra>",
        mode="lines+markers",
        line={"color": "rgba(128,128,128,0.5)", "width": 1},
        marker={"color": order, "colorscale": SEQUENTIAL, "size": 7},
        xaxis="x2",
        yaxis="y2",
    )
    figure = plot(heat, path, height=430, showlegend=False)
    figure.update_layout(
        xaxis={"domain": [0, 0.42], "title": "position", "constrain": "domain"},
        yaxis={"autorange": "reversed", "title": "position", "scaleanchor": "x", "constrain": "domain"},
        xaxis2={"domain": [0.58, 1], "anchor": "y2", "gridcolor": GRID, "zerolinecolor": GRID},
        yaxis2={"anchor": "x2", "gridcolor": GRID, "zerolinecolor": GRID},
    )
    caption = (
        "Left: cosine between positions; diagonals mean that only the distance counts. Right: their path through the "
        f"two directions in which they differ most ({share:.0%} of the variance), from dark to bright."
    )
    return Figure("Positions", caption, figure)


def alikeness(P_TE: Tensor) -> Tensor:
    """Cosine of each with each."""
    unit_TE = F.normalize(P_TE, dim=-1)
    return unit_TE @ unit_TE.T


def patch_positions(P_TE: Tensor, grid: tuple[int, int]) -> Figure:
    """Learned positions of patches: which others each is like, as a picture (Dosovitskiy et al. 2021, figure 7)."""
    alike_MM = alikeness(P_TE.detach().float()[-grid[0] * grid[1] :])
    low, high = alike_MM.min(), alike_MM.masked_fill(torch.eye(len(alike_MM)) > 0, -1).max()
    maps_M3RC = tinted(((alike_MM - low) / (high - low).clamp(min=1e-12)).view(-1, *grid))
    caption = (
        "One small picture for each patch, in its place: bright where the position of another patch is like its own. "
        "Before learning there is only the patch itself; after, near ones shine too, often a row and a column, though "
        "nobody told which patches are neighbours."
    )
    return Figure("Positions of patches", caption, sheet(maps_M3RC, grid[1]))


def rotary_kernel(size: int, length: int, base: float = 10_000.0) -> Tensor:
    """How alike a query and itself are, on the average over queries, at each distance from 0 to length - 1."""
    return angles(length, size, base).cos().mean(1).float()  # (2)


def rotary(size: int, length: int, base: float = 10_000.0) -> Figure:
    """Rotary positions: the kernel of distance, and a few of the pairs of coordinates that it is the mean of."""
    turn_TD = angles(length, size, base)
    distance = list(range(length))
    some = sorted({round(i * (turn_TD.shape[1] - 1) / 3) for i in range(4)})
    pairs = [
        line(distance, turn_TD[:, i].cos(), f"pair {i}", line={"color": COLOURS[1 + n], "width": 1}, opacity=0.6)
        for n, i in enumerate(some)
    ]
    mean = line(distance, rotary_kernel(size, length, base), "mean", line={"color": COLOURS[0], "width": 3})
    figure = plot(*pairs, mean, xaxis_title="distance in tokens", yaxis_title="q · k, turned")
    caption = (
        f"What turning does to the product of a query with itself at a distance: each of the {turn_TD.shape[1]} pairs "
        "of coordinates is a clock hand, the first quick, the last slow. Their mean is high near by and falls away."
    )
    return Figure("Rotary positions", caption, figure)
