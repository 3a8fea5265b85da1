"""Figures of a perceptron on tables.

Predicted against true, residuals, ROC, calibration, permutation importance.
"""

from collections.abc import Iterator, Mapping

import plotly.graph_objects as go
from torch import Tensor

from engram.foundations.mlp import tables
from engram.plots.figure import COLORS, Figure, line, plot

MAX_COLUMNS = 30
DOTS = {"size": 6, "opacity": 0.6}
DIAGONAL = {"width": 1, "dash": "dot", "color": "#8c8c8c"}


def regression_figures(predicted_N: Tensor, target_N: Tensor, name: str) -> Iterator[Figure]:
    """Predicted against true targets, and residuals."""
    metrics = tables.regression_metrics(predicted_N, target_N)
    ends = [min(target_N.min(), predicted_N.min()).item(), max(target_N.max(), predicted_N.max()).item()]
    figure = plot(
        line(target_N, predicted_N, "test rows", mode="markers", marker=DOTS),
        line(ends, ends, "exact", line=DIAGONAL),
        xaxis_title=f"true {name}", yaxis_title=f"predicted {name}", height=460,
    )  # fmt: skip
    caption = f"RMSE {metrics['rmse']:.4g}, MAE {metrics['mae']:.4g}, R² {metrics['r2']:.3f} on the test rows."
    yield Figure("Predicted and true", caption, figure)
    residual_N = target_N - predicted_N
    figure = plot(
        line(predicted_N, residual_N, "test rows", mode="markers", marker=DOTS),
        line([predicted_N.min(), predicted_N.max()], [0, 0], "zero", line=DIAGONAL),
        xaxis_title=f"predicted {name}", yaxis_title="true − predicted",
    )  # fmt: skip
    yield Figure("Residuals", f"Mean {residual_N.mean():.3g}. A trend or a funnel shows what is missed.", figure)


def binary_figures(p_N: Tensor, positive_N: Tensor, name: str) -> Iterator[Figure]:
    """ROC and precision–recall curves of the second class."""
    fpr, tpr, area = tables.roc_curve(p_N, positive_N)
    figure = plot(
        line(fpr, tpr, f"class {name}", line={"shape": "hv"}), line([0, 1], [0, 1], "chance", line=DIAGONAL),
        xaxis_title="false positive rate", yaxis_title="true positive rate",
    )  # fmt: skip
    yield Figure("ROC curve", f"Area under the curve: {area:.4f}. The positive class is {name}.", figure)
    recall, precision, average = tables.precision_recall_curve(p_N, positive_N)
    share = positive_N.double().mean().item()
    figure = plot(
        line(recall, precision, f"class {name}", line={"shape": "hv"}),
        line([0, 1], [share, share], "chance", line=DIAGONAL),
        xaxis_title="recall", yaxis_title="precision",
    )  # fmt: skip
    yield Figure("Precision–recall curve", f"Average precision: {average:.4f}.", figure)


def calibration_figure(logits_NK: Tensor, label_N: Tensor) -> Figure:
    """Reliability diagram: accuracy against the probability of the predicted class."""
    p_N, predicted_N = logits_NK.softmax(1).max(1)
    confidence, accuracy, count = tables.calibration(p_N, predicted_N == label_N)
    error = float((count * abs(confidence - accuracy)).sum() / count.sum())
    sizes = {"size": (8 + 24 * count / count.max()).tolist(), "color": COLORS[0]}
    figure = plot(
        line(confidence, accuracy, "test rows", mode="lines+markers", marker=sizes),
        line([0, 1], [0, 1], "calibrated", line=DIAGONAL),
        xaxis_title="probability of the predicted class", yaxis_title="accuracy",
    )  # fmt: skip
    return Figure("Calibration", f"Expected calibration error: {error:.3f}. Dots grow with the number of rows.", figure)


def importance_figure(importance: Mapping[str, float], metric: str) -> Figure:
    """Permutation importance of the columns, the largest on top."""
    ranked = sorted(importance.items(), key=lambda pair: pair[1])[-MAX_COLUMNS:]
    names, values = [name for name, _ in ranked], [value for _, value in ranked]
    bars = go.Bar(x=values, y=names, orientation="h", marker_color=COLORS[0])
    figure = plot(bars, height=120 + 22 * len(names), xaxis_title=f"fall of {metric}")
    figure.update_yaxes(type="category", automargin=True)
    caption = f"How much {metric} falls on the test rows if one column is shuffled ({tables.REPEATS} times)."
    return Figure("Permutation importance", caption, figure)
