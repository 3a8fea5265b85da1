"""Figures of the activations at the taps of a model."""

from collections.abc import Iterator, Mapping

import plotly.graph_objects as go
import torch
from torch import Tensor, nn

from engram.core.tap import watch
from engram.plots.figure import COLORS, SEQUENTIAL, Figure, line, plot
from engram.plots.images import sheet

MAX_UNITS = 4096


def activation_maps(model: nn.Module, image_1CHW: Tensor, most: int = 32) -> Figure:
    """Activation maps of the first convolution for one image; of a dense network, its first activations."""
    with torch.no_grad(), watch(model) as activations:
        model(image_1CHW)
    name, value = next(((n, v) for n, v in activations.items() if v.ndim == 4), next(iter(activations.items())))
    if value.ndim != 4:
        bars = unit_bars(name, value[0])
        return Figure("Activations", f'One test image at tap "{name}": {bars.caption}', bars.plot)
    maps = value[0, :most, None]
    maps = maps / maps.amax((2, 3), keepdim=True).clamp(min=1e-12)
    images = torch.cat([torch.nn.functional.interpolate(image_1CHW.mean(1, keepdim=True), maps.shape[2:]), maps])
    caption = f'One test image, and the first {len(maps)} of {value.shape[1]} activation maps at tap "{name}".'
    return Figure("Activation maps", caption, sheet(images, 11))


def activation_figures(activations: Mapping[str, Tensor]) -> Iterator[Figure]:
    """One figure for each tap: images of maps, lines or a heatmap of sequences, bars of vectors."""
    for name, value in activations.items():
        first = value[0] if value.ndim > 1 and value.shape[0] == 1 else value
        if first.ndim == 3:
            maps = first[:64, None] - first.amin()
            yield Figure(name, describe(value), sheet(maps / maps.amax().clamp(min=1e-12), 16))
        elif first.ndim == 2:
            yield series(name, first)
        else:
            yield unit_bars(name, first.flatten()[:MAX_UNITS])


def unit_bars(name: str, value_D: Tensor) -> Figure:
    """Activation of each unit as a bar."""
    bars = go.Bar(y=value_D.flatten().tolist(), marker={"color": COLORS[0], "line": {"width": 0}})
    figure = plot(bars, height=240, xaxis_title="unit", bargap=0.1)
    return Figure(name, describe(value_D), figure)


def series(name: str, value_TD: Tensor) -> Figure:
    """Activations over time (first dimension): up to 8 units as lines, more as a heatmap."""
    if value_TD.shape[1] <= 8:
        lines = [line(list(range(len(value_TD))), column.tolist(), f"{i}") for i, column in enumerate(value_TD.T)]
        return Figure(name, describe(value_TD), plot(*lines, height=280, xaxis_title="step", showlegend=len(lines) > 1))
    cells = go.Heatmap(z=value_TD.T.tolist(), colorscale=SEQUENTIAL)
    return Figure(name, describe(value_TD), plot(cells, height=380, xaxis_title="step", yaxis_title="unit"))


def describe(value: Tensor) -> str:
    """Shape, mean, range and sparsity of an activation."""
    shape = " × ".join(str(size) for size in value.shape)
    value = value.double()
    zeros = (value == 0).double().mean().item()
    return f"{shape}: mean {value.mean():.3g}, from {value.min():.3g} to {value.max():.3g}, {zeros:.0%} exactly zero."
