r"""Position embeddings: their similarity, and their path through the embedding space.

    P_p \cdot P_r = \sum_i \cos((p - r) w_i)                        sinusoidal: a function of the distance     (1)
    \frac{2}{D} \sum_i \cos((p - r) w_i)                            rotary: mean product (R_p q) (R_r q)       (2)
    R_{h,p,r} = W_{b(p - r),\, h}                                    relative: bias of the attention scores    (3)

    Symbols:
        P_p         sinusoidal embedding of position p
        R_p         rotation of a query by position p
        q           query of length 1; the mean is over all directions
        w_i         frequencies
        W, b        learned bias of head h, and the bucket of a distance
        T, E, D     positions, model width, head width

Sinusoidal: Vaswani et al. 2017; rotary: Su et al. 2021; relative: Raffel et al. 2020.
"""

import plotly.graph_objects as go
import torch
from torch import Tensor
from torch.nn import functional as F

from engram.nn.position import RelativePositionBias, angles
from engram.plots.embedding import principal_components
from engram.plots.figure import COLORS, GRID, SEQUENTIAL, Figure, line, plot
from engram.plots.heatmap import apply_colormap
from engram.plots.images import sheet


def positions(P_TE: Tensor) -> Figure:
    """Learned or sinusoidal positions: cosine similarity (left), and two principal components (right)."""
    P_TE = P_TE.detach().float()
    similarity_TT = cosine_similarities(P_TE)
    xy_T2, share = principal_components(P_TE)
    order = list(range(len(P_TE)))
    hover = "positions %{y} and %{x}: %{z:.2f}<extra></extra>"
    cells = go.Heatmap(
        z=similarity_TT.numpy(), colorscale=SEQUENTIAL, hovertemplate=hover, colorbar={"x": 0.44, "thickness": 10}
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
    figure = plot(cells, path, height=430, showlegend=False)
    figure.update_layout(
        xaxis={"domain": [0, 0.42], "title": "position", "constrain": "domain"},
        yaxis={"autorange": "reversed", "title": "position", "scaleanchor": "x", "constrain": "domain"},
        xaxis2={"domain": [0.58, 1], "anchor": "y2", "gridcolor": GRID, "zerolinecolor": GRID},
        yaxis2={"anchor": "x2", "gridcolor": GRID, "zerolinecolor": GRID},
    )
    caption = (
        "Left: cosine similarity of positions; constant diagonals mean that only the distance counts. Right: their "
        f"first two principal components ({share:.0%} of the variance), from dark to bright."
    )
    return Figure("Position embeddings", caption, figure)


def cosine_similarities(P_TE: Tensor) -> Tensor:
    """Cosine similarity of all pairs of rows, T × T."""
    unit_TE = F.normalize(P_TE, dim=-1)
    return unit_TE @ unit_TE.T


def patch_positions(P_TE: Tensor, grid: tuple[int, int]) -> Figure:
    """Cosine similarities of the positions of patches, as images (Dosovitskiy et al. 2021, figure 7)."""
    similarity_MM = cosine_similarities(P_TE.detach().float()[-grid[0] * grid[1] :])
    low, high = similarity_MM.min(), similarity_MM.masked_fill(torch.eye(len(similarity_MM)) > 0, -1).max()
    maps_M3RC = apply_colormap(((similarity_MM - low) / (high - low).clamp(min=1e-12)).view(-1, *grid))
    caption = (
        "One small image per patch, at its place: bright where the position of another patch is similar. Before "
        "training only the patch itself is bright; after it, near patches too, often a row and a column, although "
        "the model gets no information about which patches are neighbors."
    )
    return Figure("Positions of patches", caption, sheet(maps_M3RC, grid[1]))


def rotary_kernel(size: int, length: int, base: float = 10_000.0) -> Tensor:
    """Mean product of a rotated query with itself at distances 0 … length - 1."""
    return angles(length, size, base).cos().mean(1).float()  # (2)


def rotary(size: int, length: int, base: float = 10_000.0) -> Figure:
    """Rotary positions (RoPE): mean product against the distance, and that of some pairs of coordinates."""
    angle_TD = angles(length, size, base)
    distance = list(range(length))
    some = sorted({round(i * (angle_TD.shape[1] - 1) / 3) for i in range(4)})
    pairs = [
        line(distance, angle_TD[:, i].cos(), f"pair {i}", line={"color": COLORS[1 + n], "width": 1}, opacity=0.6)
        for n, i in enumerate(some)
    ]
    mean = line(distance, rotary_kernel(size, length, base), "mean", line={"color": COLORS[0], "width": 3})
    figure = plot(*pairs, mean, xaxis_title="distance in tokens", yaxis_title="q · k, rotated")
    caption = (
        f"Product of a query with itself after rotation by the distance: each of the {angle_TD.shape[1]} pairs of "
        "coordinates rotates at its own frequency, the first fastest. Their mean decays with the distance."
    )
    return Figure("Rotary positions", caption, figure)


def relative_bias(bias: RelativePositionBias, length: int) -> Figure:
    """Relative position bias: what each head adds to its attention scores, by the position of the key."""
    last = min(length - 1, bias.relative.max_distance)
    offset = list(range(-last, last + 1 if bias.bidirectional else 1))
    bias_HS = bias(len(offset), len(offset))[:, last].detach()  # (3)
    heads = [line(offset, bias_S, f"head {h}") for h, bias_S in enumerate(bias_HS)]
    figure = plot(*heads, xaxis_title="position of the key relative to the query", yaxis_title="bias of the score")
    caption = (
        "Learned number that each head adds to its attention scores, the same in all layers: high where it looks. Near "
        "positions have a number each, far ones share one in buckets of growing size."
    )
    return Figure("Relative position bias", caption, figure)
