"""The meeting of note 001 as arcs: words in a row, and whoever asks is tied to whoever answers.

An arc is as wide as the weight A_{m -> t} with which m asks t: above the words when the answer stands before, below
them when it stands after. A dot is what a word asks of itself.   H heads, T tokens, N arcs
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
import torch
from numpy.typing import NDArray
from torch import Tensor

from engram.core.errors import EngramError
from engram.figures.figure import COLOURS, Figure
from engram.figures.tokens import PAGE, choice, first, layers

FAINTEST = 0.03
MOST_ARCS = 4
"""for each word, on the average"""
FLATNESS = 0.6
"""height of an arc, as a part of half its width"""
CORNERS = 28


@dataclass(frozen=True)
class Row:
    """How the words stand: one unit apart."""

    labels: list[str]
    upright: bool
    """whether the words are turned, because they would not fit side by side"""
    room: float
    """from the middle of the words to where arcs begin"""
    thickest: float
    """width of an arc of weight one"""

    @classmethod
    def of(cls, labels: list[str]) -> "Row":
        unit = PAGE / max(len(labels), 4)  # pixels
        longest = max(map(len, labels)) * 8 + 8
        upright = longest > unit
        return cls(labels, upright, (longest if upright else 22) / 2 / unit, min(1.0, 16 / unit))


def arcs(weights: Mapping[str, Tensor], tokens: Sequence[str], layer: int | None = None) -> Figure:
    """Who asks whom: the mean over heads of each layer, or, of one layer, each head."""
    labels, left = first(tokens)
    found = layers(weights)
    if layer is None:
        options = {f"{name}, mean of heads": w_HTT.mean(0) for name, w_HTT in found.items()}
    elif f"layer {layer}" in found:
        options = {f"layer {layer}, head {h}": w_TT for h, w_TT in enumerate(found[f"layer {layer}"])}
    else:
        raise EngramError(f"There is no layer {layer} among {', '.join(found)}.")
    row = Row.of(labels)
    T = len(labels)
    traces = {name: [*meeting(w_TT[:T, :T], row), itself(w_TT[:T, :T], row)] for name, w_TT in options.items()}
    caption = (
        "Who asks whom: an arc is as wide as the attention of the word that asks to the one that answers, above if the "
        "answer stands before it, below if after; a dot is attention to itself. "
        f"The strongest are drawn, about {MOST_ARCS} for each word, and none under {FAINTEST:.0%}.{left}"
    )
    return Figure("Who asks whom", caption, spread(traces, [w_TT[:T, :T] for w_TT in options.values()], row))


def spread(traces: Mapping[str, Sequence[go.Scatter]], weights: Sequence[Tensor], row: Row) -> go.Figure:
    """The plot, as high as its longest arcs need; a unit is as long upwards as along the row."""
    T, reach = len(row.labels), [0.3, 0.3]
    for weights_TT in weights:
        for m, t, _ in strongest(weights_TT):
            reach[m < t] = max(reach[m < t], FLATNESS * abs(m - t) / 2 + 0.3)
    above, below = (row.room + part for part in reach)
    figure = choice(traces, height=round((above + below) * PAGE / max(T, 4)) + 90, showlegend=False)
    wide = max(T, 4) - T
    figure.update_xaxes(visible=False, range=[-0.5 - wide / 2, T - 0.5 + wide / 2], constrain="domain")
    figure.update_yaxes(visible=False, range=[-below, above], scaleanchor="x", constrain="domain")
    for x, label in enumerate(row.labels):
        figure.add_annotation(x=x, y=0, text=label, showarrow=False, textangle=-90 if row.upright else 0)
    figure.update_layout(margin={"l": 10, "r": 10, "b": 10})
    return figure


def strongest(weights_TT: Tensor) -> list[tuple[int, int, float]]:
    """Who asks, who answers, how much: of words that ask others, the strongest first."""
    others_TT = weights_TT * (1 - torch.eye(len(weights_TT)))
    weight, place = others_TT.flatten().sort(descending=True)
    count = min(MOST_ARCS * len(weights_TT), int((weight >= FAINTEST).sum()))
    pairs = (divmod(i, len(weights_TT)) for i in place[:count].tolist())
    return [(m, t, w) for (m, t), w in zip(pairs, weight[:count].tolist(), strict=True)]


def meeting(weights_TT: Tensor, row: Row) -> list[go.Scatter]:
    """Arcs above and below as filled bands, and on each a point that says in words what it shows."""
    found = strongest(weights_TT)
    traces = []
    for after, colour in ((False, COLOURS[0]), (True, COLOURS[1])):
        bands = [band(m, t, w * row.thickest, row.room) for m, t, w in found if (t > m) == after]
        outline = np.concatenate(bands or [np.full((1, 2), np.nan)])
        fill = {"fill": "toself", "fillcolor": colour, "line": {"width": 0}, "mode": "lines", "opacity": 0.75}
        traces.append(go.Scatter(x=outline[:, 0], y=outline[:, 1], hoverinfo="skip", **fill))
    tops = [((m + t) / 2, math.copysign(row.room + FLATNESS * abs(m - t) / 2, m - t)) for m, t, _ in found]
    traces.append(
        go.Scatter(
            x=[x for x, _ in tops],
            y=[y for _, y in tops],
            text=[f"«{row.labels[m]}» asks «{row.labels[t]}»: {w:.1%}" for m, t, w in found],
            hovertemplate="%{text}<extra></extra>",
            mode="markers",
            marker={"size": 10, "opacity": 0},
        )
    )
    return traces


def band(m: int, t: int, width: float, room: float) -> NDArray[np.float32]:
    """The outline of an arc from m to t, as corners × 2, and a gap after it."""
    angle = np.linspace(0, np.pi, CORNERS)
    radius, side = abs(m - t) / 2, 1 if t < m else -1
    edges = []
    for half, turn in ((width / 2, angle), (-width / 2, angle[::-1])):
        x = (m + t) / 2 + (radius + half) * np.cos(turn)
        y = side * (room + (FLATNESS * radius + half) * np.sin(turn))
        edges.append(np.stack([x, y], 1))
    return np.concatenate([*edges, edges[0][:1], np.full((1, 2), np.nan)]).astype(np.float32)


def itself(weights_TT: Tensor, row: Row) -> go.Scatter:
    """What each word asks of itself, as a dot whose area is the weight."""
    own_T = weights_TT.diagonal()
    return go.Scatter(
        x=list(range(len(own_T))),
        y=[row.room] * len(own_T),
        text=[f"«{label}» asks itself: {w:.1%}" for label, w in zip(row.labels, own_T.tolist(), strict=True)],
        hovertemplate="%{text}<extra></extra>",
        mode="markers",
        marker={"color": COLOURS[2], "size": (14 * own_T.sqrt()).tolist(), "line": {"width": 0}},
    )
