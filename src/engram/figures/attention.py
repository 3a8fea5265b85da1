"""Who attends to whom, as heat maps (note 001 «Party / Meeting»: q_m asks, k_t answers).

L layers, H heads, T tokens that ask, S tokens that answer

    with watch(model, "*attention.weights") as seen:
        model(x)
    attention_grid(seen, tokens)                       # of the first item of the batch
"""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
import torch
from torch import Tensor
from torch.nn import functional as F

from engram.figures.figure import Figure, plot
from engram.figures.heat import address, heat, tinted
from engram.figures.tokens import MOST_TOKENS, PAGE, choice, first, layers, ticks

LARGEST_CELL = 150


def attention_grid(weights: Mapping[str, Tensor], tokens: Sequence[str]) -> Figure:
    """Every head of every layer, small, and in words when the pointer is on it."""
    _, left = first(tokens)
    weights_LHTS = torch.stack(list(layers(weights).values()))[..., :MOST_TOKENS, :MOST_TOKENS]
    L, H, T, S = weights_LHTS.shape
    gap = max(1, T // 12)
    cell = min(LARGEST_CELL, (PAGE - 60) // H)
    across, down = [h * (S + gap) + S / 2 - 0.5 for h in range(H)], [i * (T + gap) + T / 2 - 0.5 for i in range(L)]
    picture = go.Image(source=address(tiled(weights_LHTS, gap)), hoverinfo="skip")
    words = go.Scatter(
        x=across * L,
        y=[y for y in down for _ in range(H)],
        text=[f"layer {i}, head {h}<br>{habit(weights_LHTS[i, h])}" for i in range(L) for h in range(H)],
        hovertemplate="%{text}<extra></extra>",
        mode="markers",
        marker={"size": cell * 0.9, "opacity": 0, "symbol": "square"},
    )
    figure = plot(picture, words, height=L * cell + 50, margin={"l": 70, "r": 10, "t": 40, "b": 10})
    figure.update_xaxes(tickvals=across, ticktext=[f"head {h}" if H <= 8 else str(h) for h in range(H)], side="top")
    figure.update_yaxes(tickvals=down, ticktext=[f"layer {i}" for i in range(L)])
    figure.update_xaxes(range=[-0.5, H * (S + gap) - gap - 0.5], showgrid=False, zeroline=False)
    figure.update_yaxes(range=[L * (T + gap) - gap - 0.5, -0.5], showgrid=False, zeroline=False)
    caption = (
        "Each square is a head: a row asks, a column answers, bright is much of what this head gives. "
        f"Stripes down are tokens that all attend to, a diagonal attends by distance.{left}"
    )
    return Figure("Attention of every head", caption, figure)


def tiled(weights_LHTS: Tensor, gap: int) -> Tensor:
    """All heads as one picture, height × width × 4; what may not be seen is transparent.

    Each head is as bright as its brightest weights but for one in fifty: the first of causal tokens, which has only
    itself to attend to, would make all others dark. A head that attends to all alike is neither bright nor dark.
    """
    seen = weights_LHTS.masked_fill(weights_LHTS == 0, torch.nan).flatten(2)
    largest = seen.nanquantile(0.98, 2).nan_to_num(1.0).clamp(min=4 / seen.shape[-1] ** 0.5)[..., None, None]
    colour = (tinted((weights_LHTS / largest).sqrt()) * 255).round()
    alpha = (weights_LHTS > 0).unsqueeze(2) * 255
    cells_LH4TS = F.pad(torch.cat([colour, alpha], 2), (0, gap, 0, gap)).to(torch.uint8)
    return cells_LH4TS.permute(0, 3, 1, 4, 2).flatten(0, 1).flatten(1, 2)[:-gap, :-gap]


def habit(weights_TS: Tensor) -> str:
    """What a head does, in words: where it looks on the average, and how widely."""
    entropy = torch.special.entr(weights_TS).sum(1)
    places = {
        "itself": weights_TS.diagonal(),
        "the one before": weights_TS.diagonal(-1),
        "the first": weights_TS[1:, 0],
    }
    looks = ", ".join(f"{name} {value.mean():.0%}" for name, value in places.items() if len(value))
    return f"looks at {looks}<br>spread over {entropy.exp().mean():.1f} tokens"


def attention_head(weights: Mapping[str, Tensor], tokens: Sequence[str]) -> Figure:
    """Token by token, of the layer and head that is chosen."""
    labels, left = first(tokens)
    options = {}
    for layer, weights_HTS in layers(weights).items():
        options[f"{layer}, mean of heads"] = weights_HTS.mean(0)
        options |= {f"{layer}, head {h}": weights_TS for h, weights_TS in enumerate(weights_HTS)}
    caption = f"How much each token (row) attends to each other (column): a row sums to one.{left}"
    return Figure("Attention, token by token", caption, maps(options, labels, labels))


def cross_attention(weights: Mapping[str, Tensor], target: Sequence[str], source: Sequence[str]) -> Figure:
    """Where in the source each token of the target looks: the soft alignment of an encoder and a decoder."""
    (asks, left), (answers, more) = first(target), first(source)
    options = {f"{layer}, mean of heads": w_HTS.mean(0) for layer, w_HTS in layers(weights, "cross.weights").items()}
    caption = (
        "Where in the source (columns) the decoder looks while it reads a token of the target (row) and says the next. "
        f"In translation the bright cells follow the words that mean the same.{left or more}"
    )
    return Figure("Attention to the source", caption, maps(options, asks, answers))


def maps(
    options: Mapping[str, Tensor],
    asks: Sequence[str],
    answers: Sequence[str],
    titles: tuple[str, str] = ("asks", "answers"),
    hover: str = "«%{y}» asks «%{x}»: %{z:.1%}",
) -> go.Figure:
    """One heat map for each option of a menu; rows ask, columns answer."""
    T, S = len(asks), len(answers)
    traces = {name: [heat(w_TS[:T, :S], hover)] for name, w_TS in options.items()}
    side = max(12, min(40, 560 // max(T, S)))
    figure = choice(traces, height=T * side + 170, xaxis=ticks(answers), yaxis=ticks(asks) | {"autorange": "reversed"})
    figure.update_xaxes(title=titles[1], constrain="domain", tickangle=-90 if S > 8 else 0)
    figure.update_yaxes(title=titles[0], scaleanchor="x", constrain="domain")
    return figure
