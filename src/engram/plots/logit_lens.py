"""Logit lens: the predictions of a language model after each layer, and its most probable next tokens.

T tokens, E model width, V vocabulary size

    with watch(model, "embedding", "*.residual") as seen:
        model(x)
    logit_lens(model, seen, tokens, tokenizer.token)
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import plotly.graph_objects as go
import torch
from torch import Tensor

from engram.plots.figure import COLORS, SEQUENTIAL, Figure, plot
from engram.plots.tokens import MAX_TOKENS, PAGE_WIDTH, Names, by_layer, format_token, token_axis, token_label


class LanguageModel(Protocol):
    """A model that maps residual streams to logits, as GPT and BERT do."""

    def logits(self, h_BTE: Tensor, /) -> Tensor: ...


def layer_probabilities(model: LanguageModel, streams: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Token probabilities after the embedding, if it was recorded, and after each layer, T × V."""
    found = {"embedding": streams["embedding"][0].float()} if "embedding" in streams else {}
    found |= by_layer(streams, "residual")
    with torch.no_grad():
        return {name: model.logits(h_TE[None])[0].softmax(-1) for name, h_TE in found.items()}


def logit_lens(model: LanguageModel, streams: Mapping[str, Tensor], tokens: Sequence[str], names: Names) -> Figure:
    """Most probable token of each layer at each position, colored by its probability."""
    predicted = layer_probabilities(model, streams)
    p_LT, best_LT = torch.stack(list(predicted.values())).max(-1)
    words = [[token_label(names, i) for i in row] for row in best_LT.tolist()]
    labels = [format_token(token) for token in tokens]
    longest = max(len(word) for row in [*words, labels] for word in row)
    count = min(MAX_TOKENS, max(8, (PAGE_WIDTH - 120) // (7 * longest + 4)))
    part = slice(-count, None)
    cells = go.Heatmap(
        z=p_LT[:, part].numpy(),
        text=[row[part] for row in words],
        texttemplate="%{text}",
        textfont={"size": 12},
        hovertemplate='%{y}, at "%{x}": "%{text}" with %{z:.1%}<extra></extra>',
        colorscale=SEQUENTIAL,
        zmin=0,
        zmax=1,
        xgap=1,
        ygap=1,
        colorbar={"title": {"text": "p"}, "thickness": 12, "tickformat": ".0%"},
    )
    figure = plot(cells, height=34 * len(predicted) + 120, xaxis=token_axis(labels[part]) | {"side": "top"})
    figure.update_layout(margin_t=70)
    figure.update_xaxes(tickangle=0)
    figure.update_yaxes(token_axis(list(predicted)))
    left = f" The last {count} of {len(labels)} tokens are shown." if len(labels) > count else ""
    caption = (
        "Predictions if the model ended after a layer, from the bottom to the top: the most probable token at each "
        f"position, bright where its probability is high. The top row is the prediction of the model.{left}"
    )
    return Figure("Logit lens", caption, figure)


def top_probabilities(logits_V: Tensor, names: Names, title: str, most: int = 12) -> Figure:
    """Bars of the most probable tokens or classes."""
    p, which = logits_V.detach().float().softmax(-1).topk(min(most, len(logits_V)))
    bars = go.Bar(
        x=p.tolist(),
        y=list(range(len(p))),
        orientation="h",
        text=[f"{value:.1%}" if value >= 0.001 else "&lt; 0.1%" for value in p.tolist()],
        textposition="outside",
        cliponaxis=False,
        marker={"color": COLORS[0], "line": {"width": 0}},
        hovertemplate='"%{y}": %{x:.2%}<extra></extra>',
    )
    figure = plot(bars, height=26 * len(p) + 80, bargap=0.25, margin={"l": 60, "r": 60, "t": 20, "b": 50})
    figure.update_xaxes(title="probability", tickformat=".1%" if p.max() < 0.1 else ".0%", rangemode="tozero")
    figure.update_yaxes(token_axis([token_label(names, i) for i in which.tolist()]) | {"autorange": "reversed"})
    caption = f"Top {len(p)} predictions; total probability {p.sum():.1%}."
    return Figure(title, caption, figure)
