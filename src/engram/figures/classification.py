"""What a classifier confuses, and its worst mistakes."""

from collections.abc import Sequence

import plotly.graph_objects as go
import torch
from torch import Tensor

from engram.figures.figure import Figure, plot
from engram.figures.pictures import sheet


def confusion(logits_NK: Tensor, label_N: Tensor, classes: Sequence[str]) -> Figure:
    """How often each class is taken for each other."""
    count = len(classes)
    guess_N = logits_NK.argmax(1)
    table_KK = torch.bincount(label_N * count + guess_N, minlength=count * count).view(count, count)
    share_KK = table_KK / table_KK.sum(1, keepdim=True).clamp(min=1)
    heat = go.Heatmap(
        x=list(classes),
        y=list(classes),
        z=share_KK.sqrt().tolist(),
        text=[[str(n) if n else "" for n in row] for row in table_KK.tolist()] if count <= 20 else None,
        texttemplate="%{text}" if count <= 20 else None,
        customdata=table_KK.tolist(),
        hovertemplate="%{customdata} of «%{y}» taken for «%{x}»<extra></extra>",
        colorscale="Blues",
        showscale=False,
        xgap=1,
        ygap=1,
    )
    accuracy = (guess_N == label_N).double().mean().item()
    figure = plot(heat, height=520, xaxis_title="taken for", yaxis_title="is", yaxis_autorange="reversed")
    figure.update_xaxes(type="category", automargin=True)
    figure.update_yaxes(type="category", automargin=True)
    caption = f"{accuracy:.2%} of {len(label_N):,} test pictures are on the diagonal. Colours are square roots."
    return Figure("Confusion matrix", caption, figure)


def mistakes(image_NCHW: Tensor, logits_NK: Tensor, label_N: Tensor, classes: Sequence[str], most: int = 24) -> Figure:
    """The test pictures of which the model was surest and wrong."""
    p_N, guess_N = logits_NK.softmax(1).max(1)
    wrong = (guess_N != label_N).nonzero()[:, 0]
    worst = wrong[p_N[wrong].argsort(descending=True)][:most]
    if len(worst) == 0:
        return Figure("Worst mistakes", "There are none.", plot(height=60))
    pairs = zip(label_N[worst].tolist(), guess_N[worst].tolist(), strict=True)
    labels = [arrow(classes[truth], classes[guess]) for truth, guess in pairs]
    caption = f"{len(worst)} of {len(wrong)} mistakes, those it was surest of: what it is → what it was taken for."
    return Figure("Worst mistakes", caption, sheet(image_NCHW[worst], 8, labels))


def arrow(truth: str, guess: str) -> str:
    """In one line if both are short, otherwise in two."""
    return f"{short(truth)}{' ' if len(truth + guess) <= 8 else '<br>'}→ {short(guess)}"


def short(name: str) -> str:
    return name if len(name) <= 12 else name[:11] + "…"
