"""What attacks do: accuracy against the size of the ball, the pictures themselves, and which classes fall."""

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from engram.figures.classification import arrow
from engram.figures.figure import Figure, line, plot
from engram.figures.pictures import sheet

NORMS = {"linf": "largest change of a pixel", "l2": "length of the change"}
AMPLIFIED = 10


def curve(found: Mapping[str, Any], threat: Any) -> Figure:
    """Robust accuracy against eps, one line for each model or attack."""
    traces = [line(one.eps, one.accuracy, name, mode="lines+markers") for name, one in found.items()]
    figure = plot(*traces, xaxis_title=f"eps: {NORMS[threat.norm]}", yaxis_title="accuracy", yaxis_range=[0, 1.02])
    figure.add_vline(x=threat.eps, line={"dash": "dot", "color": "rgba(128,128,128,0.8)"})
    caption = "Part of the test pictures for which no attack was found. A network that was not taught falls at once."
    return Figure("Accuracy under attack", caption, figure)


def gallery(found: Any, classes: Sequence[str], most: int = 12) -> Figure:
    """Pictures, what the attack made of them, and the difference."""
    right = found.before == found.label
    fooled = (right & (found.after != found.label)).nonzero()[:, 0]
    rest = (right & (found.after == found.label)).nonzero()[:, 0]
    index = torch.cat([fooled, rest])[:most]
    x, moved = found.x[index], found.moved[index]
    difference = (0.5 + AMPLIFIED / 2 * (moved - x) / max(1.0, AMPLIFIED * (moved - x).abs().max().item())).clamp(0, 1)
    pairs = zip(found.label[index].tolist(), found.after[index].tolist(), strict=True)
    names = [arrow(classes[a], classes[b]) for a, b in pairs]
    caption = (
        f"Above, pictures; in the middle, what the attack made of them and what they are taken for; below, the "
        f"difference, amplified. {len(fooled)} of {int(right.sum())} were fooled."
    )
    labels = [""] * len(index) + names + [""] * len(index)
    return Figure("Attacked pictures", caption, sheet(torch.cat([x, moved, difference]), len(index), labels))


def classes(found: Any, names: Sequence[str]) -> Figure:
    """Accuracy of each class, as pictures are and under attack."""
    bars = []
    for label, answer in (("as they are", found.before), ("under attack", found.after)):
        share = [
            (answer[found.label == k] == k).double().mean().item() if (found.label == k).any() else 0.0
            for k in range(len(names))
        ]
        bars.append(go.Bar(x=list(names), y=share, name=label))
    figure = plot(*bars, yaxis_title="accuracy", barmode="group")
    figure.update_xaxes(type="category")
    return Figure("Class by class", "Which classes fall first.", figure)


def distances(size_N: Tensor, norm: str) -> Figure:
    """How far away the nearest picture is that is taken for something else."""
    bars = go.Histogram(x=size_N[size_N.isfinite()].tolist(), nbinsx=30)
    figure = plot(bars, xaxis_title=NORMS[norm], yaxis_title="pictures")
    caption = (
        f"The smallest change that was found for each picture: {size_N.median():.3g} in the middle. 0 is a picture "
        "that is mistaken as it is."
    )
    return Figure("Smallest changes", caption, figure)
