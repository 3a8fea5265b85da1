"""Tokens as labels, and a menu to choose between plots: what the views of Transformers share."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from torch import Tensor

from engram.core.errors import EngramError
from engram.figures.figure import plot

MOST_TOKENS = 64
LONGEST_LABEL = 12
PAGE = 900
"""pixels that a plot is wide on a page, about"""

Names = Callable[[int], str] | Sequence[str]
"""what each token is called: a function such as `tokeniser.token`, or a list"""


def named(names: Names, i: int) -> str:
    return shown(names(i) if callable(names) else names[i])


def shown(token: str, longest: int = LONGEST_LABEL) -> str:
    """A token as a label: white space can be seen, nothing is taken for a tag, and what is long is cut."""
    for white, sign in (("\n", "⏎"), ("\t", "⇥"), (" ", "·")):
        token = token.replace(white, sign)
    return plain(token if len(token) <= longest else token[: longest - 1] + "…") or "∅"


def plain(text: str) -> str:
    """A text that plotly does not take for HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def first(tokens: Sequence[str], most: int = MOST_TOKENS) -> tuple[list[str], str]:
    """The labels of the tokens that are drawn, and what a caption says of the others."""
    left = f" Only the first {most} of {len(tokens)} tokens are drawn." if len(tokens) > most else ""
    return [shown(token) for token in tokens[:most]], left


def layers(seen: Mapping[str, Tensor], part: str = "attention.weights") -> dict[str, Tensor]:
    """What was tapped as `part`, of the first item of the batch, by layer: «layer 0», «layer 1» …"""
    found = {name: value[0].detach().float() for name, value in seen.items() if name.endswith(part)}
    if not found:
        raise EngramError(f"Nothing here is called «{part}». Record it with watch(model, '*{part}') around the model.")
    numbers = {name: "".join(c for c in name.removesuffix(part).split(".")[-2] if c.isdigit()) for name in found}
    if len(set(numbers.values())) < len(found):
        several = ", ".join(sorted({name.split(".")[0] for name in found}))
        raise EngramError(
            f"These are layers of more than one stack ({several}). Watch one of them, as '{several.split(', ')[0]}.*'."
        )
    return {f"layer {numbers[name]}": value for name, value in found.items()}


def ticks(labels: Sequence[str]) -> dict[str, Any]:
    """An axis with a label at 0, 1, 2 …; tokens that are equal stay apart, which they would not as categories."""
    size = 12 if len(labels) <= 24 else 10 if len(labels) <= 40 else 8
    return {
        "tickmode": "array",
        "tickvals": list(range(len(labels))),
        "ticktext": list(labels),
        "tickfont": {"size": size},
        "showgrid": False,
        "zeroline": False,
        "automargin": True,
    }


def choice(options: Mapping[str, Sequence[Any]], height: int = 380, **layout: Any) -> go.Figure:
    """One plot with a menu: each option shows its own traces, and the first is shown at the start."""
    traces = [(name, trace) for name, several in options.items() for trace in several]
    figure = plot(*(trace for _, trace in traces), height=height, **layout)
    start = next(iter(options))
    for trace, (name, _) in zip(figure.data, traces, strict=True):
        trace.visible = name == start
    buttons = [
        {"label": name, "method": "restyle", "args": [{"visible": [owner == name for owner, _ in traces]}]}
        for name in options
    ]
    menu = {"buttons": buttons, "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom", "pad": {"b": 8}}
    if len(buttons) > 1:
        figure.update_layout(updatemenus=[menu], margin_t=60)
    return figure
