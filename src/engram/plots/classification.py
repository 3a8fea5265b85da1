"""Figures of classifiers: confusion matrix and most confident errors."""

from collections.abc import Sequence

import plotly.graph_objects as go
import torch
from torch import Tensor

from engram.plots.figure import Figure, plot
from engram.plots.images import sheet


def confusion(logits_NK: Tensor, label_N: Tensor, classes: Sequence[str]) -> Figure:
    """Confusion matrix of true and predicted classes."""
    count = len(classes)
    predicted_N = logits_NK.argmax(1)
    table_KK = torch.bincount(label_N * count + predicted_N, minlength=count * count).view(count, count)
    share_KK = table_KK / table_KK.sum(1, keepdim=True).clamp(min=1)
    cells = go.Heatmap(
        x=list(classes),
        y=list(classes),
        z=share_KK.sqrt().tolist(),
        text=[[str(n) if n else "" for n in row] for row in table_KK.tolist()] if count <= 20 else None,
        texttemplate="%{text}" if count <= 20 else None,
        customdata=table_KK.tolist(),
        hovertemplate="%{customdata} of class %{y} predicted as %{x}<extra></extra>",
        colorscale="Blues",
        showscale=False,
        xgap=1,
        ygap=1,
    )
    accuracy = (predicted_N == label_N).double().mean().item()
    figure = plot(cells, height=520, xaxis_title="predicted", yaxis_title="true", yaxis_autorange="reversed")
    figure.update_xaxes(type="category", automargin=True)
    figure.update_yaxes(type="category", automargin=True)
    caption = (
        f"{accuracy:.2%} of {len(label_N):,} test samples are on the diagonal. Color scale: square root of the row "
        "fraction."
    )
    return Figure("Confusion matrix", caption, figure)


def mistakes(image_NCHW: Tensor, logits_NK: Tensor, label_N: Tensor, classes: Sequence[str], most: int = 24) -> Figure:
    """The misclassified test images with the highest predicted probability."""
    p_N, predicted_N = logits_NK.softmax(1).max(1)
    wrong = (predicted_N != label_N).nonzero()[:, 0]
    worst = wrong[p_N[wrong].argsort(descending=True)][:most]
    if len(worst) == 0:
        return Figure("Most confident errors", "No test image is misclassified.", plot(height=60))
    pairs = zip(label_N[worst].tolist(), predicted_N[worst].tolist(), strict=True)
    labels = [true_and_predicted(classes[truth], classes[guess]) for truth, guess in pairs]
    caption = f"{len(worst)} of {len(wrong)} errors, those of highest confidence: true class → predicted class."
    return Figure("Most confident errors", caption, sheet(image_NCHW[worst], 8, labels))


def true_and_predicted(truth: str, predicted: str) -> str:
    """Label "true → predicted", on two lines if the names are long."""
    return f"{shorten(truth)}{' ' if len(truth + predicted) <= 8 else '<br>'}→ {shorten(predicted)}"


def shorten(name: str) -> str:
    """Cut a name to 12 characters."""
    return name if len(name) <= 12 else name[:11] + "…"
