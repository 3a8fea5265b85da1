"""Networks that learnt the same pictures, with and without remedies against learning them by heart."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
import torch
from torch import Tensor

from engram.figures.figure import COLOURS, Figure, line, plot


def gaps(names: Sequence[str], seen: Tensor, unseen: Tensor) -> Figure:
    """Accuracy on what was learnt from, and on what was not."""
    bars = [
        go.Bar(x=list(names), y=values.tolist(), name=label, texttemplate="%{y:.1%}")
        for values, label in ((seen, "learnt from"), (unseen, "test"))
    ]
    caption = "What was learnt by heart is right on the left and wrong on the right: the gap is overfitting."
    return Figure("Learnt from and unseen", caption, plot(*bars, barmode="group", yaxis_title="accuracy"))


def losses(names: Sequence[str], seen: Tensor, unseen: Tensor) -> Figure:
    """The same in losses, where being wrong and sure costs most."""
    bars = [
        go.Bar(x=list(names), y=values.tolist(), name=label)
        for values, label in ((seen.clamp(min=1e-6), "learnt from"), (unseen, "test"))
    ]
    figure = plot(*bars, barmode="group", yaxis_title="cross-entropy", yaxis_type="log")
    caption = "A network that overfits is sure of its mistakes: its loss grows while its accuracy stays."
    return Figure("Sure and wrong", caption, figure)


def weights(found: Mapping[str, Tensor]) -> Figure:
    """How large weights are."""
    traces = []
    for i, (name, weight) in enumerate(found.items()):
        size = weight.abs().flatten().sort().values
        part = torch.linspace(0, 1, 200)
        traces.append(line(size[(part * (len(size) - 1)).long()], part, name, line={"color": COLOURS[i]}))
    figure = plot(*traces, xaxis_title="size of a weight of the first layer", yaxis_title="part that is smaller")
    return Figure("Weights", "Weight decay keeps them small; learning by heart makes them grow.", figure)
