"""Figures of generative models: samples, trajectories, latents, fields over the plane, sample quality."""

from collections.abc import Callable, Sequence

import numpy as np
import plotly.graph_objects as go
import torch
from torch import Tensor

from engram.metrics.pca import pca
from engram.plots.embedding import principal_components
from engram.plots.figure import COLORS, GRID, Figure, line, plot
from engram.plots.heatmap import DIVERGING, apply_colormap
from engram.plots.images import sheet

MAX_POINTS = 2000
SIDE = 160
"""width of a density image of points, in pixels"""


def samples_figure(x: Tensor, real: Tensor, caption: str, labels: Sequence[str] = ()) -> Figure:
    """Generated samples; points with real ones behind them."""
    if x.ndim == 4:
        return Figure("Samples", caption, sheet(x[:64], 16 if not labels else 10, labels[:64]))
    return Figure("Samples", caption, scatter({"real": real, "generated": x}))


def scatter(clouds: dict[str, Tensor], **layout: object) -> go.Figure:
    """Scatter plot of point clouds, the first two coordinates of each."""
    traces = [
        go.Scatter(
            x=np.asarray(x[:MAX_POINTS, 0]), y=np.asarray(x[:MAX_POINTS, min(1, x.shape[1] - 1)]),
            mode="markers", name=name, hoverinfo="skip",
            marker={"size": 4, "opacity": 0.5, "color": "#8c8c8c" if name == "real" else COLORS[i]},
        )
        for i, (name, x) in enumerate(clouds.items())
    ]  # fmt: skip
    figure = plot(*traces, height=520, **layout)
    figure.update_yaxes(scaleanchor="x")
    return figure


def density(x_N2: Tensor) -> Tensor:
    """Density of points as an RGBA image, height × width × 4."""
    low, high = x_N2.amin(0), x_N2.amax(0)
    pixel = ((x_N2 - low) / (high - low).clamp(min=1e-12) * (SIDE - 1)).round().long()
    row, column = SIDE - 1 - pixel[:, min(1, x_N2.shape[1] - 1)], pixel[:, 0]
    count = torch.zeros(SIDE * SIDE).index_add_(0, row * SIDE + column, torch.ones(len(x_N2)))
    color_3HW = apply_colormap((count / count.max()).sqrt().view(SIDE, SIDE))
    opaque = torch.full((1, SIDE, SIDE), 255, dtype=torch.uint8)
    return torch.cat([(color_3HW * 255).round().to(torch.uint8), opaque]).permute(1, 2, 0)


def nearest_training_images(x: Tensor, near: Tensor) -> Figure:
    """Generated images above, their nearest training images below."""
    count = min(16, len(x))
    caption = "Generated images above, the nearest training image of each below: new images or copies?"
    return Figure("Nearest training images", caption, sheet(torch.cat([x[:count], near[:count]]), count))


def filmstrip(rows: Tensor, names: Sequence[str], title: str, caption: str) -> Figure:
    """R trajectories of S images each (R × S × C × H × W) with labels below.

    Of points, one cloud per step.
    """
    if rows.ndim == 5:
        labels = [*[""] * (rows.shape[0] - 1) * rows.shape[1], *names] if names else []
        return Figure(title, caption, sheet(rows.flatten(0, 1), rows.shape[1], labels))
    return Figure(title, caption, point_clouds(rows, names))


def point_clouds(cloud_SN2: Tensor, names: Sequence[str]) -> go.Figure:
    """Point clouds of S steps (S × N × 2) side by side."""
    S, gap = len(cloud_SN2), 1.15 * (cloud_SN2[..., 0].max() - cloud_SN2[..., 0].min()).item()
    traces = [
        go.Scatter(
            x=np.asarray(cloud[:800, 0] + i * gap), y=np.asarray(cloud[:800, -1]), mode="markers", showlegend=False,
            hoverinfo="skip", marker={"size": 2.5, "opacity": 0.6, "color": COLORS[0]},
        )
        for i, cloud in enumerate(cloud_SN2)
    ]  # fmt: skip
    figure = plot(*traces, height=max(200, 1000 // S))
    for i, name in enumerate(names):
        figure.add_annotation(x=i * gap, y=1.06, yref="paper", text=name, showarrow=False)
    figure.update_yaxes(scaleanchor="x", visible=False)
    figure.update_xaxes(visible=False)
    return figure


def latent_map(z_NZ: Tensor, label_N: Tensor | None, classes: Sequence[str]) -> Figure:
    """Latents in the plane, colored by class.

    Of more than two dimensions, the first two principal components.
    """
    xy_N2, share = (z_NZ, 1.0) if z_NZ.shape[1] == 2 else principal_components(z_NZ)
    label_N = torch.zeros(len(z_NZ), dtype=torch.long) if label_N is None else label_N
    traces = [
        go.Scatter(
            x=np.asarray(xy_N2[label_N == k, 0]), y=np.asarray(xy_N2[label_N == k, 1]), mode="markers",
            name=classes[k] if classes else "samples", marker={"size": 4, "color": COLORS[k % len(COLORS)]},
        )
        for k in label_N.unique().tolist()
    ]  # fmt: skip
    figure = plot(*traces, height=600)
    figure.update_yaxes(scaleanchor="x")
    shown = "" if share == 1 else f" The first two principal components hold {share:.0%} of the variance."
    return Figure("Latent map", f"Latents of test samples.{shown} Similar samples lie close together.", figure)


def decode_plane(decode: Callable[[Tensor], Tensor], z_NZ: Tensor, side: int) -> Tensor:
    """Decode side × side latents on the plane of their first two principal components, from the top."""
    components = pca(z_NZ)
    mean, axes = components.mean_E, components.axes(2)
    steps = torch.linspace(-2, 2, side)
    rows, columns = torch.meshgrid(-steps, steps, indexing="ij")
    grid_NZ = mean + columns.reshape(-1, 1) * axes[0] + (rows.reshape(-1, 1) * axes[1] if len(axes) > 1 else 0)
    return decode(grid_NZ)


def latent_plane(decode: Callable[[Tensor], Tensor], z_NZ: Tensor, side: int = 15) -> Figure:
    """Decoded latents on the plane of their first two principal components."""
    caption = (
        "Decoded latents on the plane of the first two principal components, two standard deviations in each direction."
    )
    return Figure("Latent plane", caption, sheet(decode_plane(decode, z_NZ, side), side))


def scalar_field(function: Callable[[Tensor], Tensor], real: Tensor, x: Tensor, title: str, caption: str) -> Figure:
    """Heatmap of a function over the plane, with real and generated points."""
    grid_N2, xs, ys = plane_grid(torch.cat([real, x]))
    value = function(grid_N2).view(len(ys), len(xs))
    extent = value.abs().max().clamp(min=1e-6).item()
    cells = go.Heatmap(
        x=np.asarray(xs), y=np.asarray(ys), z=np.asarray(value), colorscale=DIVERGING, zmin=-extent, zmax=extent,
        colorbar_thickness=12, zsmooth="best",
    )  # fmt: skip
    figure = scatter({"real": real, "generated": x})
    figure.add_trace(cells)
    figure.data = (figure.data[-1], *figure.data[:-1])
    return Figure(title, caption, figure)


def vector_field(function: Callable[[Tensor], Tensor], real: Tensor, title: str, caption: str) -> Figure:
    """Arrows of a vector function over the plane, with real points."""
    grid_N2, xs, _ = plane_grid(real, 24)
    vector_N2 = function(grid_N2)
    longest = vector_N2.norm(dim=1).quantile(0.95).clamp(min=1e-12)
    unit = (xs[1] - xs[0]) * 0.9
    end_N2 = grid_N2 + vector_N2 / longest * unit
    x, y = (torch.stack([grid_N2[:, i], end_N2[:, i], torch.full((len(grid_N2),), torch.nan)], 1) for i in (0, 1))
    figure = scatter({"real": real})
    figure.add_trace(line(x.flatten(), y.flatten(), "score", line={"color": COLORS[1], "width": 1.5}))
    heads = {"mode": "markers", "showlegend": False, "marker": {"size": 4, "color": COLORS[1]}}
    figure.add_trace(line(end_N2[:, 0], end_N2[:, 1], "heads", **heads))
    return Figure(title, caption, figure)


def plane_grid(x_N2: Tensor, side: int = 80) -> tuple[Tensor, Tensor, Tensor]:
    """Grid over the range of points with a margin: its points, and the coordinates of columns and rows."""
    low, high = x_N2.amin(0), x_N2.amax(0)
    margin = 0.15 * (high - low)
    xs, ys = (torch.linspace((low - margin)[i].item(), (high + margin)[i].item(), side) for i in (0, 1))
    rows, columns = torch.meshgrid(ys, xs, indexing="ij")
    return torch.stack([columns.flatten(), rows.flatten()], 1), xs, ys


def quality_figure(metrics: dict[str, float]) -> Figure:
    """Fréchet distance of generated samples beside that of real ones, with precision, recall and novelty."""
    names = {"frechet_distance": "generated vs. test", "frechet_distance_real": "test vs. test (lower bound)"}
    bars = go.Bar(
        x=[metrics[name] for name in names], y=list(names.values()), orientation="h",
        marker_color=[COLORS[0], "#8c8c8c"], text=[f"{metrics[name]:.3g}" for name in names],
    )  # fmt: skip
    caption = (
        f"Fréchet distance between features of generated samples and of test samples, and between two halves of the "
        f"test samples, the lower bound. Precision {metrics['precision']:.0%}: generated samples within the real "
        f"distribution. Recall {metrics['recall']:.0%}: real samples within the generated distribution. "
        f"Novelty {metrics['novelty']:.2f}: 1 is as far from the training data as test samples, 0 would be copies."
    )
    axis = {"gridcolor": GRID, "title": "Fréchet distance"}
    return Figure("Sample quality", caption, plot(bars, height=200, xaxis=axis))
