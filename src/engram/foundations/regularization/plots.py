"""Figures that compare networks trained with and without regularization."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
import torch
from torch import Tensor

from engram.plots.figure import COLORS, Figure, line, plot


def accuracies(names: Sequence[str], train: Tensor, test: Tensor) -> Figure:
    """Plot training and test accuracy."""
    bars = [
        go.Bar(x=list(names), y=values.tolist(), name=label, texttemplate="%{y:.1%}")
        for values, label in ((train, "training"), (test, "test"))
    ]
    caption = "The gap between training and test accuracy is overfitting."
    return Figure("Training and test accuracy", caption, plot(*bars, barmode="group", yaxis_title="accuracy"))


def losses(names: Sequence[str], train: Tensor, test: Tensor) -> Figure:
    """Plot training and test loss."""
    bars = [
        go.Bar(x=list(names), y=values.tolist(), name=label)
        for values, label in ((train.clamp(min=1e-6), "training"), (test, "test"))
    ]
    figure = plot(*bars, barmode="group", yaxis_title="cross-entropy", yaxis_type="log")
    caption = "A network that overfits is confident in its errors: its test loss grows while its accuracy stays."
    return Figure("Training and test loss", caption, figure)


def weights(found: Mapping[str, Tensor]) -> Figure:
    """Plot the distribution of the weights of the first layer."""
    traces = []
    for i, (name, weight) in enumerate(found.items()):
        size = weight.abs().flatten().sort().values
        part = torch.linspace(0, 1, 200)
        traces.append(line(size[(part * (len(size) - 1)).long()], part, name, line={"color": COLORS[i]}))
    figure = plot(*traces, xaxis_title="|weight| of the first layer", yaxis_title="cumulative fraction")
    return Figure("Weights", "Weight decay keeps weights small; overfitting makes them grow.", figure)
