"""Parts shared by the figures of Transformers: token labels, weights by layer, a menu between plots."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from torch import Tensor

from engram.core.errors import EngramError
from engram.plots.figure import plot

MAX_TOKENS = 64
MAX_LABEL = 12
PAGE_WIDTH = 900
"""approximate width of a plot on a page, in pixels"""

Names = Callable[[int], str] | Sequence[str]
"""label of each token: a function such as `tokenizer.token`, or a list"""


def token_label(names: Names, i: int) -> str:
    """Label of the token with index i."""
    return format_token(names(i) if callable(names) else names[i])


def format_token(token: str, longest: int = MAX_LABEL) -> str:
    """Token as a label: white space made visible, HTML escaped, long tokens cut."""
    for white, sign in (("\n", "⏎"), ("\t", "⇥"), (" ", "·")):
        token = token.replace(white, sign)
    return escape_html(token if len(token) <= longest else token[: longest - 1] + "…") or "∅"


def escape_html(text: str) -> str:
    """Escape text that plotly would parse as HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def visible_tokens(tokens: Sequence[str], most: int = MAX_TOKENS) -> tuple[list[str], str]:
    """Labels of the first tokens, and a sentence for the caption if some are left out."""
    left = f" Only the first {most} of {len(tokens)} tokens are shown." if len(tokens) > most else ""
    return [format_token(token) for token in tokens[:most]], left


def by_layer(activations: Mapping[str, Tensor], part: str = "attention.weights") -> dict[str, Tensor]:
    """Activations at the taps named `part`, of the batch's first item, by layer: "layer 0", "layer 1" …"""
    found = {name: value[0].detach().float() for name, value in activations.items() if name.endswith(part)}
    if not found:
        raise EngramError(f'There is no tap "{part}". Record it with watch(model, "*{part}") around the model.')
    numbers = {name: "".join(c for c in name.removesuffix(part).split(".")[-2] if c.isdigit()) for name in found}
    if len(set(numbers.values())) < len(found):
        several = ", ".join(sorted({name.split(".")[0] for name in found}))
        raise EngramError(
            f'These are layers of more than one stack ({several}). Watch one of them, as "{several.split(", ")[0]}.*".'
        )
    return {f"layer {numbers[name]}": value for name, value in found.items()}


def token_axis(labels: Sequence[str]) -> dict[str, Any]:
    """Axis with labels at 0, 1, 2 …; unlike categories, equal tokens keep their own positions."""
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


def menu_plot(options: Mapping[str, Sequence[Any]], height: int = 380, **layout: Any) -> go.Figure:
    """A plot with a menu: each option shows its own traces, at the start those of the first."""
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
