"""Figures of predictive coding: inference, and the local updates beside backpropagation."""

from collections.abc import Sequence

from torch import Tensor

from engram.plots.figure import COLORS, Figure, line, plot


def plot_inference(energy_RL: Tensor) -> Figure:
    """Energy of each layer at every inference step."""
    traces = [
        line(range(len(energy_RL)), energy_RL[:, i], f"layer {i + 1}", line={"color": COLORS[i % len(COLORS)]})
        for i in range(energy_RL.shape[1])
    ]
    total = line(range(len(energy_RL)), energy_RL.sum(1), "total", line={"color": "#8c8c8c", "dash": "dash"})
    caption = (
        "Both ends are clamped and the hidden layers start at their predictions, so all error is at the bottom. "
        "During inference it spreads upward, and the total energy falls."
    )
    return Figure("Inference", caption, plot(*traces, total, xaxis_title="inference step", yaxis_title="energy"))


def plot_update_similarity(variances: Sequence[float], cosine_SL: Tensor) -> Figure:
    """Cosine similarity of local updates and gradients, by layer."""
    traces = [
        line(
            variances,
            cosine_SL[:, i],
            f"layer {i + 1}",
            mode="lines+markers",
            line={"color": COLORS[i % len(COLORS)]},
        )
        for i in range(cosine_SL.shape[1])
    ]
    caption = (
        "Cosine similarity of the local updates at equilibrium and the gradients of backpropagation. The larger the "
        "variance of the bottom layer, the less the hidden layers move, and the closer the two are."
    )
    ratio = "variance of the bottom layer / variance of the hidden layers"
    figure = plot(*traces, xaxis_title=ratio, yaxis_title="cosine", xaxis_type="log")
    return Figure("Local updates and backpropagation", caption, figure)
