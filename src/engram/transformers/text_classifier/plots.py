"""Figures of text classifiers: the most confident errors, and how much each token counts."""

from collections.abc import Callable, Sequence

import plotly.graph_objects as go
import torch
from torch import Tensor

from engram.plots.figure import COLORS, Figure, plot
from engram.plots.tokens import escape_html, format_token, token_axis

SHOWN = 160
"""characters of a text that are shown"""


def mistakes(
    texts: Sequence[str], logits_NK: Tensor, label_N: Tensor, classes: Sequence[str], most: int = 20
) -> Figure:
    """The misclassified test texts with the highest predicted probability."""
    p_N, predicted_N = logits_NK.softmax(1).max(1)
    wrong = (predicted_N != label_N).nonzero()[:, 0]
    worst = wrong[p_N[wrong].argsort(descending=True)][:most].tolist()
    if not worst:
        return Figure("Most confident errors", "No test text is misclassified.", plot(height=60))
    shown = [texts[i] if len(texts[i]) <= SHOWN else texts[i][: SHOWN - 1] + "…" for i in worst]
    columns = {
        "text": shown,
        "true": [classes[int(label_N[i])] for i in worst],
        "predicted": [classes[int(predicted_N[i])] for i in worst],
        "probability": [f"{p_N[i]:.1%}" for i in worst],
    }
    cells = [[escape_html(cell) for cell in column] for column in columns.values()]
    style = {"align": "left", "fill": {"color": "rgba(0,0,0,0)"}}
    table = go.Table(columnwidth=[6, 1.5, 1.5, 1], header={"values": list(columns), **style},
                     cells={"values": cells, **style})  # fmt: skip
    caption = f"{len(worst)} of {len(wrong)} errors, those of highest confidence."
    return Figure("Most confident errors", caption, plot(table, height=80 + 44 * len(worst)))


def token_importance(predict: Callable[[Tensor], Tensor], ids: list[int], tokens: Sequence[str], name: str) -> Figure:
    """How much less probable the predicted class is without each token (occlusion)."""
    p_K = predict(torch.tensor([ids]))[0].softmax(0)
    best = int(p_K.argmax())
    without = torch.tensor([ids[:i] + ids[i + 1 :] for i in range(len(ids))])
    drop_T = p_K[best] - predict(without).softmax(1)[:, best]
    labels = [format_token(token) for token in tokens]
    bars = go.Bar(
        x=list(range(len(ids))), y=drop_T.tolist(), hovertemplate='without "%{x}": %{y:.2%} less<extra></extra>',
        marker={"color": [COLORS[0] if value > 0 else COLORS[1] for value in drop_T.tolist()], "line": {"width": 0}},
    )  # fmt: skip
    figure = plot(bars, xaxis=token_axis(labels), yaxis_title="probability lost")
    caption = f'Probability that the predicted class, "{name}", loses if a token is left out; below 0 it gains some.'
    return Figure("Importance of tokens", caption, figure)
