"""What recurrent networks remember: how far gradients reach back, what states do, what is said at the end."""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from torch import Tensor

from engram.figures.figure import COLOURS, SEQUENTIAL, Figure, line, plot

MOST_UNITS, MOST_SHOWN = 64, 24


def reach(gradient_by_cell: Mapping[str, Tensor], learnt: str) -> Figure:
    """The size of dh_T / dx_t against T - t, cell by cell; `learnt` names the one that has learnt."""
    traces = [
        line(
            range(len(size_T)), size_T.clamp(min=1e-12), name,
            line={"width": 3.5 if name == learnt else 1.5, "color": COLOURS[i % len(COLOURS)],
                  "dash": "solid" if name == learnt or i < len(COLOURS) else "dot"},
        )
        for i, (name, size_T) in enumerate(gradient_by_cell.items())
    ]  # fmt: skip
    caption = (
        "How much the state at the end depends on the input of so many steps before. The thick line is the first cell "
        "of this network as it has learnt, the others are fresh cells of 32 units on the same noise, whose gates begin "
        "with memories of all lengths. In a plain cell every step multiplies by the same matrix and a slope below 1, "
        "so the past fades; a gate that is nearly shut passes it on as it is."
    )
    figure = plot(*traces, height=420, xaxis_title="steps back", yaxis_title="|dh / dx|", yaxis_type="log")
    figure.update_yaxes(exponentformat="power")
    return Figure("How far the gradient reaches", caption, figure)


def over_time(seen: Mapping[str, Tensor], steps: Sequence[str]) -> Figure:
    """What the units of each tap do while a sequence passes; taps as T × H."""
    names = list(seen)
    heat = [
        go.Heatmap(
            z=seen[name].T[:MOST_UNITS].numpy(), colorscale=SEQUENTIAL, visible=i == 0, name=name,
            text=[list(steps)] * min(MOST_UNITS, seen[name].shape[1]),
            hovertemplate="step %{x} (%{text})<br>unit %{y}: %{z:.3f}<extra></extra>",
        )
        for i, name in enumerate(names)
    ]  # fmt: skip
    buttons = [
        {"label": name, "method": "update", "args": [{"visible": [j == i for j in range(len(names))]}]}
        for i, name in enumerate(names)
    ]
    figure = plot(*heat, height=440, xaxis_title="step", yaxis_title="unit")
    figure.update_layout(updatemenus=[{"buttons": buttons, "x": 0, "xanchor": "left", "y": 1.14, "yanchor": "bottom"}])
    figure.update_layout(margin_t=90)
    caption = "Choose a gate or a state: each row is a unit, from the first step on the left to the last on the right."
    return Figure("Inside, step by step", caption, figure)


def recalled(said_NL: Tensor, true_NL: Tensor) -> Figure:
    """Answers beside what was to be remembered: wrong ones are marked."""
    N = min(MOST_SHOWN, len(true_NL))
    right_NL = (said_NL == true_NL)[:N].int()
    text = [
        [f"{s}" if s == t else f"{s} ({t})" for s, t in zip(row, true, strict=True)]
        for row, true in zip(said_NL[:N].tolist(), true_NL[:N].tolist(), strict=True)
    ]
    heat = go.Heatmap(
        z=right_NL.numpy(), text=text, texttemplate="%{text}", zmin=0, zmax=1, showscale=False, xgap=2, ygap=2,
        colorscale=[[0, "rgba(213,94,0,0.55)"], [1, "rgba(0,158,115,0.35)"]], hoverinfo="skip",
    )  # fmt: skip
    figure = plot(heat, height=120 + 22 * N, xaxis_title="answer", yaxis_title="sequence")
    figure.update_yaxes(autorange="reversed")
    part = float((said_NL == true_NL).float().mean())
    caption = f"What was said; in brackets what was right. Of {true_NL.numel():,} answers {part:.1%} are right."
    return Figure("What it remembers", caption, figure)


def said_and_true(said_N: Tensor, true_N: Tensor) -> Figure:
    """Numbers that were said against those that were right."""
    low, high = float(true_N.min()), float(true_N.max())
    dots = line(true_N, said_N, "a sequence", mode="markers", marker={"size": 5, "opacity": 0.6})
    diagonal = line([low, high], [low, high], "right", line={"dash": "dot", "color": COLOURS[6]})
    figure = plot(dots, diagonal, height=420, xaxis_title="right answer", yaxis_title="what was said")
    return Figure("Answers", "A network that has understood is on the line; one that has not says the mean.", figure)


def forecast(true_TI: Tensor, said_TI: Tensor, alone_TI: Tensor) -> Figure:
    """The first channel: as it was, as foretold one step ahead, and as the network goes on by itself."""
    steps, begin = np.arange(1, len(true_TI) + 1), len(true_TI) - len(alone_TI)
    figure = plot(
        line(steps, true_TI[:, 0], "as it was"),
        line(steps, said_TI[:, 0], "one step ahead", line={"dash": "dot"}),
        line(steps[begin:], alone_TI[:, 0][: len(steps) - begin], "by itself", line={"width": 1.2}),
        height=400, xaxis_title="step of the test", yaxis_title="first channel",
    )  # fmt: skip
    caption = "Each step foretold from those before it; and from the middle on, from what it foretold itself."
    return Figure("What comes next", caption, figure)
