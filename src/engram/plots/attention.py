"""Attention weights as heatmaps.

L layers, H heads, T query tokens, S key tokens

    with watch(model, "*attention.weights") as activations:
        model(x)
    attention_grid(activations, tokens)                # of the first item of the batch
"""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
import torch
from torch import Tensor
from torch.nn import functional as F

from engram.plots.figure import Figure, plot
from engram.plots.heatmap import apply_colormap, image_url, weight_heatmap
from engram.plots.tokens import MAX_TOKENS, PAGE_WIDTH, by_layer, menu_plot, token_axis, visible_tokens

MAX_CELL = 150


def attention_grid(weights: Mapping[str, Tensor], tokens: Sequence[str]) -> Figure:
    """Attention weights of every head of every layer as small heatmaps, with a description of each head."""
    _, left = visible_tokens(tokens)
    weights_LHTS = torch.stack(list(by_layer(weights).values()))[..., :MAX_TOKENS, :MAX_TOKENS]
    L, H, T, S = weights_LHTS.shape
    gap = max(1, T // 12)
    cell = min(MAX_CELL, (PAGE_WIDTH - 60) // H)
    across, down = [h * (S + gap) + S / 2 - 0.5 for h in range(H)], [i * (T + gap) + T / 2 - 0.5 for i in range(L)]
    image = go.Image(source=image_url(tile_heads(weights_LHTS, gap)), hoverinfo="skip")
    descriptions = go.Scatter(
        x=across * L,
        y=[y for y in down for _ in range(H)],
        text=[f"layer {i}, head {h}<br>{describe_head(weights_LHTS[i, h])}" for i in range(L) for h in range(H)],
        hovertemplate="%{text}<extra></extra>",
        mode="markers",
        marker={"size": cell * 0.9, "opacity": 0, "symbol": "square"},
    )
    figure = plot(image, descriptions, height=L * cell + 50, margin={"l": 70, "r": 10, "t": 40, "b": 10})
    figure.update_xaxes(tickvals=across, ticktext=[f"head {h}" if H <= 8 else str(h) for h in range(H)], side="top")
    figure.update_yaxes(tickvals=down, ticktext=[f"layer {i}" for i in range(L)])
    figure.update_xaxes(range=[-0.5, H * (S + gap) - gap - 0.5], showgrid=False, zeroline=False)
    figure.update_yaxes(range=[L * (T + gap) - gap - 0.5, -0.5], showgrid=False, zeroline=False)
    caption = (
        "Each square is a head: rows are queries, columns are keys, bright is a large weight. Vertical stripes are "
        f"tokens that all others attend to; diagonals are attention by distance.{left}"
    )
    return Figure("Attention of every head", caption, figure)


def tile_heads(weights_LHTS: Tensor, gap: int) -> Tensor:
    """Heatmaps of all heads in one image, height × width × 4; masked weights are transparent.

    The brightest color of a head is its 98th percentile: the first token of causal attention attends only to itself,
    and its weight of 1 would darken all others. Uniform attention gets a medium color.
    """
    seen = weights_LHTS.masked_fill(weights_LHTS == 0, torch.nan).flatten(2)
    largest = seen.nanquantile(0.98, 2).nan_to_num(1.0).clamp(min=4 / seen.shape[-1] ** 0.5)[..., None, None]
    color = (apply_colormap((weights_LHTS / largest).sqrt()) * 255).round()
    alpha = (weights_LHTS > 0).unsqueeze(2) * 255
    cells_LH4TS = F.pad(torch.cat([color, alpha], 2), (0, gap, 0, gap)).to(torch.uint8)
    return cells_LH4TS.permute(0, 3, 1, 4, 2).flatten(0, 1).flatten(1, 2)[:-gap, :-gap]


def describe_head(weights_TS: Tensor) -> str:
    """Mean attention of a head to the token itself, the previous and the first token, and its perplexity."""
    entropy = torch.special.entr(weights_TS).sum(1)
    parts = {
        "itself": weights_TS.diagonal(),
        "previous token": weights_TS.diagonal(-1),
        "first token": weights_TS[1:, 0],
    }
    means = ", ".join(f"{name} {value.mean():.0%}" for name, value in parts.items() if len(value))
    return f"{means}<br>perplexity {entropy.exp().mean():.1f} tokens"


def attention_head(weights: Mapping[str, Tensor], tokens: Sequence[str]) -> Figure:
    """Attention weights between tokens, with a menu of layers and heads."""
    labels, left = visible_tokens(tokens)
    options = {}
    for layer, weights_HTS in by_layer(weights).items():
        options[f"{layer}, mean of heads"] = weights_HTS.mean(0)
        options |= {f"{layer}, head {h}": weights_TS for h, weights_TS in enumerate(weights_HTS)}
    caption = f"Attention of each query token (row) to each key token (column); a row sums to one.{left}"
    return Figure("Attention weights", caption, attention_heatmaps(options, labels, labels))


def cross_attention(weights: Mapping[str, Tensor], target: Sequence[str], source: Sequence[str]) -> Figure:
    """Cross-attention of each target token to the source tokens: the soft alignment of a translation."""
    (queries, left), (keys, more) = visible_tokens(target), visible_tokens(source)
    options = {f"{layer}, mean of heads": w_HTS.mean(0) for layer, w_HTS in by_layer(weights, "cross.weights").items()}
    caption = (
        "Attention of each target token (row), while the decoder predicts the next, to the source tokens (columns). "
        f"In translation bright cells align words of the same meaning.{left or more}"
    )
    return Figure("Cross-attention", caption, attention_heatmaps(options, queries, keys))


def attention_heatmaps(
    options: Mapping[str, Tensor],
    queries: Sequence[str],
    keys: Sequence[str],
    titles: tuple[str, str] = ("query", "key"),
    hover: str = '"%{y}" attends to "%{x}": %{z:.1%}',
) -> go.Figure:
    """A heatmap for each option of a menu; rows are queries, columns are keys."""
    T, S = len(queries), len(keys)
    traces = {name: [weight_heatmap(w_TS[:T, :S], hover)] for name, w_TS in options.items()}
    side = max(12, min(40, 560 // max(T, S)))
    axes = {"xaxis": token_axis(keys), "yaxis": token_axis(queries) | {"autorange": "reversed"}}
    figure = menu_plot(traces, height=T * side + 170, **axes)
    figure.update_xaxes(title=titles[1], constrain="domain", tickangle=-90 if S > 8 else 0)
    figure.update_yaxes(title=titles[0], scaleanchor="x", constrain="domain")
    return figure
