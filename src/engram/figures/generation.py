"""What a model makes: pictures in sheets and strips, points in the plane, codes on a map."""

from collections.abc import Callable, Sequence

import numpy as np
import plotly.graph_objects as go
import torch
from torch import Tensor

from engram.figures.embedding import principal
from engram.figures.figure import COLOURS, GRID, Figure, line, plot
from engram.figures.heat import DIVERGING, tinted
from engram.figures.pictures import sheet

MOST_POINTS = 2000
SIDE = 160
"""pixels of a picture of points"""


def made(x: Tensor, real: Tensor, caption: str, labels: Sequence[str] = ()) -> Figure:
    """What was made; points with real ones behind them."""
    if x.ndim == 4:
        return Figure("Samples", caption, sheet(x[:64], 16 if not labels else 10, labels[:64]))
    return Figure("Samples", caption, scatter({"real": real, "made": x}))


def scatter(clouds: dict[str, Tensor], **layout: object) -> go.Figure:
    """Clouds of points in the plane, the first two coordinates of each."""
    traces = [
        go.Scatter(
            x=np.asarray(x[:MOST_POINTS, 0]), y=np.asarray(x[:MOST_POINTS, min(1, x.shape[1] - 1)]),
            mode="markers", name=name, hoverinfo="skip",
            marker={"size": 4, "opacity": 0.5, "color": "#8c8c8c" if name == "real" else COLOURS[i]},
        )
        for i, (name, x) in enumerate(clouds.items())
    ]  # fmt: skip
    figure = plot(*traces, height=520, **layout)
    figure.update_yaxes(scaleanchor="x")
    return figure


def density(x_N2: Tensor) -> Tensor:
    """Points as a picture, height × width × 4: the more of them, the brighter."""
    low, high = x_N2.amin(0), x_N2.amax(0)
    place = ((x_N2 - low) / (high - low).clamp(min=1e-12) * (SIDE - 1)).round().long()
    row, column = SIDE - 1 - place[:, min(1, x_N2.shape[1] - 1)], place[:, 0]
    count = torch.zeros(SIDE * SIDE).index_add_(0, row * SIDE + column, torch.ones(len(x_N2)))
    colour_3HW = tinted((count / count.max()).sqrt().view(SIDE, SIDE))
    opaque = torch.full((1, SIDE, SIDE), 255, dtype=torch.uint8)
    return torch.cat([(colour_3HW * 255).round().to(torch.uint8), opaque]).permute(1, 2, 0)


def neighbours(x: Tensor, near: Tensor) -> Figure:
    """What was made above, the nearest training picture below."""
    count = min(16, len(x))
    caption = "Above what the model makes, below the training picture that is nearest to it: is it new, or a copy?"
    return Figure("Nearest training pictures", caption, sheet(torch.cat([x[:count], near[:count]]), count))


def strip(rows: Tensor, names: Sequence[str], title: str, caption: str) -> Figure:
    """A film: R rows of S pictures each (R × S × C × H × W), named below; of points, a cloud for each moment."""
    if rows.ndim == 5:
        labels = [*[""] * (rows.shape[0] - 1) * rows.shape[1], *names] if names else []
        return Figure(title, caption, sheet(rows.flatten(0, 1), rows.shape[1], labels))
    figure = frames(rows, names)
    return Figure(title, caption, figure)


def frames(cloud_SN2: Tensor, names: Sequence[str]) -> go.Figure:
    """Clouds of points, one for each moment, side by side: S × N × 2."""
    S, gap = len(cloud_SN2), 1.15 * (cloud_SN2[..., 0].max() - cloud_SN2[..., 0].min()).item()
    traces = [
        go.Scatter(
            x=np.asarray(cloud[:800, 0] + i * gap), y=np.asarray(cloud[:800, -1]), mode="markers", showlegend=False,
            hoverinfo="skip", marker={"size": 2.5, "opacity": 0.6, "color": COLOURS[0]},
        )
        for i, cloud in enumerate(cloud_SN2)
    ]  # fmt: skip
    figure = plot(*traces, height=max(200, 1000 // S))
    for i, name in enumerate(names):
        figure.add_annotation(x=i * gap, y=1.06, yref="paper", text=name, showarrow=False)
    figure.update_yaxes(scaleanchor="x", visible=False)
    figure.update_xaxes(visible=False)
    return figure


def code_map(z_NZ: Tensor, label_N: Tensor | None, classes: Sequence[str]) -> Figure:
    """Where things lie among the codes; of more than two dimensions, the two in which they differ most."""
    xy_N2, share = (z_NZ, 1.0) if z_NZ.shape[1] == 2 else principal(z_NZ)
    label_N = torch.zeros(len(z_NZ), dtype=torch.long) if label_N is None else label_N
    traces = [
        go.Scatter(
            x=np.asarray(xy_N2[label_N == k, 0]), y=np.asarray(xy_N2[label_N == k, 1]), mode="markers",
            name=classes[k] if classes else "things", marker={"size": 4, "color": COLOURS[k % len(COLOURS)]},
        )
        for k in label_N.unique().tolist()
    ]  # fmt: skip
    figure = plot(*traces, height=600)
    figure.update_yaxes(scaleanchor="x")
    seen = "" if share == 1 else f" Seen along the two directions that hold {share:.0%} of their variance."
    return Figure("Map of codes", f"Each test item at the place of its code.{seen} Like things lie together.", figure)


def walk(decode: Callable[[Tensor], Tensor], z_NZ: Tensor, side: int) -> Tensor:
    """What codes stand for, side × side of them on a plane through their middle where they differ most."""
    middle = z_NZ.mean(0)
    _, S, V = torch.linalg.svd(z_NZ - middle, full_matrices=False)
    axes = V[:2] * S[:2, None] / max(1, len(z_NZ) - 1) ** 0.5
    steps = torch.linspace(-2, 2, side)
    rows, columns = torch.meshgrid(-steps, steps, indexing="ij")
    place = middle + columns.reshape(-1, 1) * axes[0] + (rows.reshape(-1, 1) * axes[1] if len(axes) > 1 else 0)
    return decode(place)


def plane(decode: Callable[[Tensor], Tensor], z_NZ: Tensor, side: int = 15) -> Figure:
    caption = (
        "A walk through the codes: left to right and bottom to top along the two directions in which they differ most, "
        "two standard deviations either way."
    )
    return Figure("Latent plane", caption, sheet(walk(decode, z_NZ, side), side))


def field(score: Callable[[Tensor], Tensor], real: Tensor, x: Tensor, title: str, caption: str) -> Figure:
    """A number at every place of the plane, with what is real and what was made upon it."""
    place_N2, xs, ys = places(torch.cat([real, x]))
    value = score(place_N2).view(len(ys), len(xs))
    extent = value.abs().max().clamp(min=1e-6).item()
    heat = go.Heatmap(
        x=np.asarray(xs), y=np.asarray(ys), z=np.asarray(value), colorscale=DIVERGING, zmin=-extent, zmax=extent,
        colorbar_thickness=12, zsmooth="best",
    )  # fmt: skip
    figure = scatter({"real": real, "made": x})
    figure.add_trace(heat)
    figure.data = (figure.data[-1], *figure.data[:-1])
    return Figure(title, caption, figure)


def arrows(score: Callable[[Tensor], Tensor], real: Tensor, title: str, caption: str) -> Figure:
    """A direction at every place of the plane, and what is real."""
    place_N2, xs, _ = places(real, 24)
    way_N2 = score(place_N2)
    longest = way_N2.norm(dim=1).quantile(0.95).clamp(min=1e-12)
    unit = (xs[1] - xs[0]) * 0.9
    end_N2 = place_N2 + way_N2 / longest * unit
    x, y = (torch.stack([place_N2[:, i], end_N2[:, i], torch.full((len(place_N2),), torch.nan)], 1) for i in (0, 1))
    figure = scatter({"real": real})
    figure.add_trace(line(x.flatten(), y.flatten(), "score", line={"color": COLOURS[1], "width": 1.5}))
    heads = {"mode": "markers", "showlegend": False, "marker": {"size": 4, "color": COLOURS[1]}}
    figure.add_trace(line(end_N2[:, 0], end_N2[:, 1], "heads", **heads))
    return Figure(title, caption, figure)


def places(x_N2: Tensor, side: int = 80) -> tuple[Tensor, Tensor, Tensor]:
    """A grid over where points are, with some room around."""
    low, high = x_N2.amin(0), x_N2.amax(0)
    room = 0.15 * (high - low)
    xs, ys = (torch.linspace((low - room)[i].item(), (high + room)[i].item(), side) for i in (0, 1))
    rows, columns = torch.meshgrid(ys, xs, indexing="ij")
    return torch.stack([columns.flatten(), rows.flatten()], 1), xs, ys


def marks(measured: dict[str, float]) -> Figure:
    """Fréchet's distance beside that of real things, and how much is covered."""
    names = {"frechet": "made and real", "frechet_real": "real and real"}
    bars = go.Bar(
        x=[measured[name] for name in names], y=list(names.values()), orientation="h",
        marker_color=[COLOURS[0], "#8c8c8c"], text=[f"{measured[name]:.3g}" for name in names],
    )  # fmt: skip
    caption = (
        f"Fréchet's distance between features of what is made and of real test items, and between two halves of the "
        f"real ones, below which no model can honestly come. Precision {measured['precision']:.0%}: so much of what is "
        f"made lies among the real. Recall {measured['recall']:.0%}: so much of the real lies among what is made. "
        f"Novelty {measured['novelty']:.2f}: 1 is as far from the training data as unseen items are, 0 would be copies."
    )
    return Figure("How good it is", caption, plot(bars, height=200, xaxis={"gridcolor": GRID}))
