"""Gradients of the same network from several sources, layer by layer."""

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go

from engram.figures.figure import Figure, plot

NAMES = {"hand": "by hand", "graph": "expression graph", "torch": "torch.autograd"}


def layer_by_layer(found: Mapping[str, Any]) -> Figure:
    """Norms of gradients, and how far each source is from torch."""
    truth = found["torch"]
    layers = [f"{letter}{i + 1}" for i in range(len(truth.W)) for letter in ("W", "b")]
    expected = [one for pair in zip(truth.W, truth.b, strict=True) for one in pair]
    columns: dict[str, list[str]] = {"layer": layers, "|gradient|": [f"{one.norm():.4g}" for one in expected]}
    for name, source in found.items():
        if name == "torch":
            continue
        own = [one for pair in zip(source.W, source.b, strict=True) for one in pair]
        away = [((a - b).norm() / b.norm().clamp(min=1e-30)).item() for a, b in zip(own, expected, strict=True)]
        columns[f"{NAMES[name]}: relative difference"] = [f"{value:.1e}" for value in away]
    table = go.Table(header={"values": list(columns), "align": "left"}, cells={"values": list(columns.values())})
    caption = "The gradient of one batch's loss, made three ways; torch.autograd is what the others are held against."
    return Figure("Gradients layer by layer", caption, plot(table, height=120 + 32 * len(layers)))
