"""What a model of text would say: after each layer (the logit lens), and in the end.

T tokens, E width of the stream, V vocabulary

    with watch(model, "embedding", "*.stream") as seen:
        model(x)
    logit_lens(model, seen, tokens, tokeniser.token)
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import plotly.graph_objects as go
import torch
from torch import Tensor

from engram.figures.figure import COLOURS, SEQUENTIAL, Figure, plot
from engram.figures.tokens import MOST_TOKENS, PAGE, Names, layers, named, shown, ticks


class Speaks(Protocol):
    """A model that says of any stream which tokens it means: GPT and BERT do."""

    def logits(self, h_BTE: Tensor, /) -> Tensor: ...


def lens(model: Speaks, streams: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Probabilities of the tokens after the embedding, if it was recorded, and after each layer, T × V."""
    found = {"embedding": streams["embedding"][0].float()} if "embedding" in streams else {}
    found |= layers(streams, "stream")
    with torch.no_grad():
        return {name: model.logits(h_TE[None])[0].softmax(-1) for name, h_TE in found.items()}


def logit_lens(model: Speaks, streams: Mapping[str, Tensor], tokens: Sequence[str], name_of_token: Names) -> Figure:
    """What each layer would say if it were the last: its likeliest token at each place, coloured by its probability."""
    said = lens(model, streams)
    p_LT, best_LT = torch.stack(list(said.values())).max(-1)
    words = [[named(name_of_token, i) for i in row] for row in best_LT.tolist()]
    labels = [shown(token) for token in tokens]
    longest = max(len(word) for row in [*words, labels] for word in row)
    count = min(MOST_TOKENS, max(8, (PAGE - 120) // (7 * longest + 4)))
    part = slice(-count, None)
    cells = go.Heatmap(
        z=p_LT[:, part].numpy(),
        text=[row[part] for row in words],
        texttemplate="%{text}",
        textfont={"size": 12},
        hovertemplate="%{y}, at «%{x}»: «%{text}» with %{z:.1%}<extra></extra>",
        colorscale=SEQUENTIAL,
        zmin=0,
        zmax=1,
        xgap=1,
        ygap=1,
        colorbar={"title": {"text": "p"}, "thickness": 12, "tickformat": ".0%"},
    )
    figure = plot(cells, height=34 * len(said) + 120, xaxis=ticks(labels[part]) | {"side": "top"})
    figure.update_layout(margin_t=70)
    figure.update_xaxes(tickangle=0)
    figure.update_yaxes(ticks(list(said)))
    left = f" The last {count} of {len(labels)} tokens are shown." if len(labels) > count else ""
    caption = (
        "What the model would say if it stopped after a layer, from the bottom to the top: the likeliest token in each "
        f"place, bright where it is sure. What it says in the end is in the top row.{left}"
    )
    return Figure("Logit lens", caption, figure)


def likeliest(logits_V: Tensor, names: Names, title: str, most: int = 12) -> Figure:
    """The likeliest tokens, or classes, and their probabilities."""
    p, which = logits_V.detach().float().softmax(-1).topk(min(most, len(logits_V)))
    bars = go.Bar(
        x=p.tolist(),
        y=list(range(len(p))),
        orientation="h",
        text=[f"{value:.1%}" if value >= 0.001 else "&lt; 0.1%" for value in p.tolist()],
        textposition="outside",
        cliponaxis=False,
        marker={"color": COLOURS[0], "line": {"width": 0}},
        hovertemplate="«%{y}»: %{x:.2%}<extra></extra>",
    )
    figure = plot(bars, height=26 * len(p) + 80, bargap=0.25, margin={"l": 60, "r": 60, "t": 20, "b": 50})
    figure.update_xaxes(title="probability", tickformat=".1%" if p.max() < 0.1 else ".0%", rangemode="tozero")
    figure.update_yaxes(ticks([named(names, i) for i in which.tolist()]) | {"autorange": "reversed"})
    caption = f"The {len(p)} likeliest, and {p.sum():.1%} of the probability."
    return Figure(title, caption, figure)
