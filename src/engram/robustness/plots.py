"""Figures of adversarial attacks.

Accuracy against eps, adversarial examples, accuracy of each class, minimal norms.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor

from engram.plots.classification import true_and_predicted
from engram.plots.figure import Figure, line, plot
from engram.plots.images import sheet

NORMS = {"linf": "L∞ norm (largest pixel change)", "l2": "L2 norm of the perturbation"}
AMPLIFICATION = 10


def robustness_curves(curves: Mapping[str, Any], threat: Any) -> Figure:
    """Robust accuracy against eps, one line for each model or attack."""
    traces = [line(one.eps, one.accuracy, name, mode="lines+markers") for name, one in curves.items()]
    title = f"eps: {NORMS[threat.norm]}"
    figure = plot(*traces, xaxis_title=title, yaxis_title="robust accuracy", yaxis_range=[0, 1.02])
    figure.add_vline(x=threat.eps, line={"dash": "dot", "color": "rgba(128,128,128,0.8)"})
    caption = (
        "Fraction of the test images for which no adversarial example was found within eps. Without adversarial "
        "training it falls steeply."
    )
    return Figure("Robust accuracy", caption, figure)


def gallery(curve: Any, classes: Sequence[str], most: int = 12) -> Figure:
    """Images, their adversarial examples, and the perturbations."""
    correct = curve.predicted == curve.label
    fooled = (correct & (curve.predicted_adversarial != curve.label)).nonzero()[:, 0]
    rest = (correct & (curve.predicted_adversarial == curve.label)).nonzero()[:, 0]
    index = torch.cat([fooled, rest])[:most]
    x, change = curve.x[index], curve.adversarial[index] - curve.x[index]
    amplified = (0.5 + AMPLIFICATION / 2 * change / max(1.0, AMPLIFICATION * change.abs().max().item())).clamp(0, 1)
    pairs = zip(curve.label[index].tolist(), curve.predicted_adversarial[index].tolist(), strict=True)
    names = [true_and_predicted(classes[a], classes[b]) for a, b in pairs]
    caption = (
        f"Top: test images. Middle: adversarial examples with the true class → the predicted class. Bottom: the "
        f"perturbation, amplified. {len(fooled)} of {int(correct.sum())} images are misclassified under attack."
    )
    labels = [""] * len(index) + names + [""] * len(index)
    images = torch.cat([x, curve.adversarial[index], amplified])
    return Figure("Adversarial examples", caption, sheet(images, len(index), labels))


def class_accuracy(curve: Any, names: Sequence[str]) -> Figure:
    """Accuracy of each class, clean and under attack."""
    bars = []
    for label, predicted in (("clean", curve.predicted), ("under attack", curve.predicted_adversarial)):
        share = [
            (predicted[curve.label == k] == k).double().mean().item() if (curve.label == k).any() else 0.0
            for k in range(len(names))
        ]
        bars.append(go.Bar(x=list(names), y=share, name=label))
    figure = plot(*bars, yaxis_title="accuracy", barmode="group")
    figure.update_xaxes(type="category")
    return Figure("Accuracy per class", "Clean accuracy and robust accuracy of each class.", figure)


def norm_histogram(norm_N: Tensor, norm: str) -> Figure:
    """Histogram of the norms of the smallest adversarial perturbations."""
    bars = go.Histogram(x=norm_N[norm_N.isfinite()].tolist(), nbinsx=30)
    figure = plot(bars, xaxis_title=NORMS[norm], yaxis_title="images")
    caption = (
        f"Norm of the smallest adversarial perturbation found for each image: median {norm_N.median():.3g}. It is 0 "
        "for an image that is misclassified without an attack."
    )
    return Figure("Minimal perturbations", caption, figure)
