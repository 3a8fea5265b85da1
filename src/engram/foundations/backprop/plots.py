"""Figures of backpropagation: gradients by several methods, layer by layer."""

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from engram.plots.figure import Figure, plot

METHOD_NAMES = {"hand": "matrix products", "graph": "expression graph", "torch": "torch.autograd"}


def gradient_comparison(gradients: Mapping[str, Any]) -> Figure:
    """Gradient norm of every layer, and the relative difference of each method from torch.autograd."""
    reference = gradients["torch"]
    layers = [f"{letter}{i + 1}" for i in range(len(reference.W)) for letter in ("W", "b")]
    expected = [one for pair in zip(reference.W, reference.b, strict=True) for one in pair]
    columns: dict[str, list[str]] = {"layer": layers, "gradient norm": [f"{one.norm():.4g}" for one in expected]}
    for name, source in gradients.items():
        if name == "torch":
            continue
        own = [one for pair in zip(source.W, source.b, strict=True) for one in pair]
        differences = [((a - b).norm() / b.norm().clamp(min=1e-30)).item() for a, b in zip(own, expected, strict=True)]
        columns[f"{METHOD_NAMES[name]}: relative difference"] = [f"{value:.1e}" for value in differences]
    table = go.Table(header={"values": list(columns), "align": "left"}, cells={"values": list(columns.values())})
    caption = "Gradients of the loss of one batch by three methods; torch.autograd is the reference."
    return Figure("Gradients layer by layer", caption, plot(table, height=120 + 32 * len(layers)))
