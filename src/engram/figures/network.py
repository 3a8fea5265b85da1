"""What is inside a model while it works, from its taps."""

from collections.abc import Iterator, Mapping

import plotly.graph_objects as go
import torch
from torch import Tensor, nn

from engram.core.tap import watch
from engram.figures.figure import COLOURS, SEQUENTIAL, Figure, line, plot
from engram.figures.pictures import sheet

MOST_UNITS = 4096


def activation_maps(model: nn.Module, image_1CHW: Tensor, most: int = 32) -> Figure:
    """Where in one picture the kernels of the first convolution find what they look for."""
    with torch.no_grad(), watch(model) as seen:
        model(image_1CHW)
    name, value = next(((n, v) for n, v in seen.items() if v.ndim == 4), next(iter(seen.items())))
    if value.ndim != 4:
        bars = unit_bars(name, value[0])
        return Figure("Activations", f"One test picture in «{name}», {bars.caption}", bars.plot)
    maps = value[0, :most, None]
    maps = maps / maps.amax((2, 3), keepdim=True).clamp(min=1e-12)
    shown = torch.cat([torch.nn.functional.interpolate(image_1CHW.mean(1, keepdim=True), maps.shape[2:]), maps])
    which = f"the first {len(maps)} of {value.shape[1]} maps of «{name}»"
    caption = f"One test picture, and {which}: bright where a kernel finds what it looks for."
    return Figure("Activation maps", caption, sheet(shown, 11))


def inside(seen: Mapping[str, Tensor]) -> Iterator[Figure]:
    """One figure for each tap, drawn by its shape."""
    for name, value in seen.items():
        first = value[0] if value.ndim > 1 and value.shape[0] == 1 else value
        if first.ndim == 3:
            maps = first[:64, None] - first.amin()
            yield Figure(name, describe(value), sheet(maps / maps.amax().clamp(min=1e-12), 16))
        elif first.ndim == 2:
            yield series(name, first)
        else:
            yield unit_bars(name, first.flatten()[:MOST_UNITS])


def unit_bars(name: str, value_D: Tensor) -> Figure:
    bars = go.Bar(y=value_D.flatten().tolist(), marker={"color": COLOURS[0], "line": {"width": 0}})
    figure = plot(bars, height=240, xaxis_title="unit", bargap=0.1)
    return Figure(name, describe(value_D), figure)


def series(name: str, value_TD: Tensor) -> Figure:
    """Time on the first dimension: a few units as lines, many as a heat map."""
    if value_TD.shape[1] <= 8:
        lines = [line(list(range(len(value_TD))), column.tolist(), f"{i}") for i, column in enumerate(value_TD.T)]
        return Figure(name, describe(value_TD), plot(*lines, height=280, xaxis_title="step", showlegend=len(lines) > 1))
    heat = go.Heatmap(z=value_TD.T.tolist(), colorscale=SEQUENTIAL)
    return Figure(name, describe(value_TD), plot(heat, height=380, xaxis_title="step", yaxis_title="unit"))


def describe(value: Tensor) -> str:
    shape = " × ".join(str(size) for size in value.shape)
    value = value.double()
    silent = (value == 0).double().mean().item()
    return f"{shape}: mean {value.mean():.3g}, from {value.min():.3g} to {value.max():.3g}, {silent:.0%} exactly zero."
