"""Attention weights as arcs between the tokens of a text.

An arc from a query token to a key token is as wide as the attention weight: above the text if the key comes before the
query, below it if after. A dot is the attention of a token to itself.   H heads, T tokens
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
from engram.plots.figure import COLORS, Figure
from engram.plots.tokens import PAGE_WIDTH, by_layer, menu_plot, visible_tokens

MIN_WEIGHT = 0.03
"""smallest weight that is drawn"""
ARCS_PER_TOKEN = 4
"""largest number of arcs, per token on average"""
FLATNESS = 0.6
"""height of an arc relative to half its width"""
ARC_POINTS = 28


@dataclass(frozen=True)
class TokenRow:
    """Layout of the tokens in a row, one unit apart."""

    labels: list[str]
    rotated: bool
    """whether labels are rotated because they would overlap"""
    offset: float
    """distance of the arcs' ends from the middle of the labels"""
    max_width: float
    """width of an arc of weight one"""

    @classmethod
    def of(cls, labels: list[str]) -> "TokenRow":
        unit = PAGE_WIDTH / max(len(labels), 4)  # pixels
        longest = max(map(len, labels)) * 8 + 8
        rotated = longest > unit
        return cls(labels, rotated, (longest if rotated else 22) / 2 / unit, min(1.0, 16 / unit))


def attention_arcs(weights: Mapping[str, Tensor], tokens: Sequence[str], layer: int | None = None) -> Figure:
    """Attention arcs with a menu: the mean over heads of each layer, or each head of one layer."""
    labels, left = visible_tokens(tokens)
    found = by_layer(weights)
    if layer is None:
        options = {f"{name}, mean of heads": w_HTT.mean(0) for name, w_HTT in found.items()}
    elif f"layer {layer}" in found:
        options = {f"layer {layer}, head {h}": w_TT for h, w_TT in enumerate(found[f"layer {layer}"])}
    else:
        raise EngramError(f"There is no layer {layer} among {', '.join(found)}.")
    row = TokenRow.of(labels)
    T = len(labels)
    traces = {name: [*arc_traces(w_TT[:T, :T], row), self_dots(w_TT[:T, :T], row)] for name, w_TT in options.items()}
    caption = (
        "The width of an arc is the attention weight between two tokens, above if the key comes before the query, "
        "below if after; a dot is attention to itself. "
        f"The largest weights are shown, about {ARCS_PER_TOKEN} per token, and none below {MIN_WEIGHT:.0%}.{left}"
    )
    return Figure("Attention arcs", caption, arc_plot(traces, [w_TT[:T, :T] for w_TT in options.values()], row))


def arc_plot(traces: Mapping[str, Sequence[go.Scatter]], weights: Sequence[Tensor], row: TokenRow) -> go.Figure:
    """The plot of the arcs, as high as the longest arcs need, with equal units on both axes."""
    T, heights = len(row.labels), [0.3, 0.3]
    for weights_TT in weights:
        for m, t, _ in strongest_pairs(weights_TT):
            heights[m < t] = max(heights[m < t], FLATNESS * abs(m - t) / 2 + 0.3)
    above, below = (row.offset + height for height in heights)
    figure = menu_plot(traces, height=round((above + below) * PAGE_WIDTH / max(T, 4)) + 90, showlegend=False)
    padding = max(T, 4) - T
    figure.update_xaxes(visible=False, range=[-0.5 - padding / 2, T - 0.5 + padding / 2], constrain="domain")
    figure.update_yaxes(visible=False, range=[-below, above], scaleanchor="x", constrain="domain")
    for x, label in enumerate(row.labels):
        figure.add_annotation(x=x, y=0, text=label, showarrow=False, textangle=-90 if row.rotated else 0)
    figure.update_layout(margin={"l": 10, "r": 10, "b": 10})
    return figure


def strongest_pairs(weights_TT: Tensor) -> list[tuple[int, int, float]]:
    """Query, key and weight of the largest weights between different tokens, in descending order."""
    others_TT = weights_TT * (1 - torch.eye(len(weights_TT)))
    weight, place = others_TT.flatten().sort(descending=True)
    count = min(ARCS_PER_TOKEN * len(weights_TT), int((weight >= MIN_WEIGHT).sum()))
    pairs = (divmod(i, len(weights_TT)) for i in place[:count].tolist())
    return [(m, t, w) for (m, t), w in zip(pairs, weight[:count].tolist(), strict=True)]


def arc_traces(weights_TT: Tensor, row: TokenRow) -> list[go.Scatter]:
    """Arcs above and below the text as filled outlines, and invisible points on them with the hover texts."""
    found = strongest_pairs(weights_TT)
    traces = []
    for after, color in ((False, COLORS[0]), (True, COLORS[1])):
        outlines = [arc_outline(m, t, w * row.max_width, row.offset) for m, t, w in found if (t > m) == after]
        outline = np.concatenate(outlines or [np.full((1, 2), np.nan)])
        fill = {"fill": "toself", "fillcolor": color, "line": {"width": 0}, "mode": "lines", "opacity": 0.75}
        traces.append(go.Scatter(x=outline[:, 0], y=outline[:, 1], hoverinfo="skip", **fill))
    tops = [((m + t) / 2, math.copysign(row.offset + FLATNESS * abs(m - t) / 2, m - t)) for m, t, _ in found]
    traces.append(
        go.Scatter(
            x=[x for x, _ in tops],
            y=[y for _, y in tops],
            text=[f'"{row.labels[m]}" attends to "{row.labels[t]}": {w:.1%}' for m, t, w in found],
            hovertemplate="%{text}<extra></extra>",
            mode="markers",
            marker={"size": 10, "opacity": 0},
        )
    )
    return traces


def arc_outline(m: int, t: int, width: float, offset: float) -> NDArray[np.float32]:
    """Outline of the arc from query m to key t as points × 2, followed by a gap."""
    angle = np.linspace(0, np.pi, ARC_POINTS)
    radius, side = abs(m - t) / 2, 1 if t < m else -1
    edges = []
    for half, turn in ((width / 2, angle), (-width / 2, angle[::-1])):
        x = (m + t) / 2 + (radius + half) * np.cos(turn)
        y = side * (offset + (FLATNESS * radius + half) * np.sin(turn))
        edges.append(np.stack([x, y], 1))
    return np.concatenate([*edges, edges[0][:1], np.full((1, 2), np.nan)]).astype(np.float32)


def self_dots(weights_TT: Tensor, row: TokenRow) -> go.Scatter:
    """Attention of each token to itself, as a dot whose area is the weight."""
    self_T = weights_TT.diagonal()
    return go.Scatter(
        x=list(range(len(self_T))),
        y=[row.offset] * len(self_T),
        text=[f'"{label}" attends to itself: {w:.1%}' for label, w in zip(row.labels, self_T.tolist(), strict=True)],
        hovertemplate="%{text}<extra></extra>",
        mode="markers",
        marker={"color": COLORS[2], "size": (14 * self_T.sqrt()).tolist(), "line": {"width": 0}},
    )
