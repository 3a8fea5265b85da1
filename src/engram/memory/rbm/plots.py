"""Figures of a restricted Boltzmann machine.

A Gibbs chain, inpainted images, and weights and samples of a table.
"""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
import torch
from torch import Tensor

from engram.memory.rbm.model import RBM
from engram.nn.bernoulli import sample_bernoulli
from engram.plots import images
from engram.plots.figure import COLORS, Figure, plot
from engram.plots.generative import filmstrip
from engram.plots.heatmap import DIVERGING

CHAIN_STEPS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500)
INPAINT_STEPS = 200
MAX_UNITS = 64
"""hidden units whose weights are shown"""


def gibbs_chain(rbm: RBM, shape: tuple[int, ...], generator: torch.Generator) -> Figure:
    """Visible probabilities of four Gibbs chains from noise, after more and more steps."""
    v, frames, before = sample_bernoulli(torch.full((4, rbm.config.visible), 0.5), generator), [], 0
    for steps in CHAIN_STEPS:
        v = rbm.gibbs(v, steps - before, generator)
        frames.append(rbm.prob_visible(rbm.prob_hidden(v)) if steps else v)
        before = steps
    caption = "Four Gibbs chains from noise, after this many steps."
    image = torch.stack(frames, 1).view(4, -1, *shape)
    return filmstrip(image, [str(steps) for steps in CHAIN_STEPS], "Gibbs chain", caption)


def inpainting(rbm: RBM, v_NV: Tensor, shape: tuple[int, ...], generator: torch.Generator) -> Figure:
    """Images, their upper half, and three samples of the lower one."""
    caption = f"Test images, their upper half, and three samples of the lower half after {INPAINT_STEPS} Gibbs steps."
    return Figure("Inpainting", caption, images.sheet(inpaint_lower_half(rbm, v_NV, shape, generator), len(v_NV)))


def inpaint_lower_half(rbm: RBM, v_NV: Tensor, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Five rows of N images: the originals, their upper half, and three samples of the lower one."""
    known = (torch.arange(shape[1]) < shape[1] // 2)[:, None].expand(shape).reshape(-1).expand_as(v_NV)
    samples = [rbm.inpaint(v_NV, known, INPAINT_STEPS, generator) for _ in range(3)]
    return torch.cat([v_NV, torch.where(known, v_NV, 0.5), *samples]).view(-1, *shape)


def column_weights(W_VH: Tensor, names: Sequence[str]) -> Figure:
    """Weights between the columns of a table and the hidden units."""
    W_VH = W_VH[:, :MAX_UNITS]
    largest = max(W_VH.abs().max().item(), 1e-12)
    heatmap = go.Heatmap(
        z=W_VH.flip(0).numpy(), y=list(names)[::-1], colorscale=DIVERGING, zmin=-largest, zmax=largest,
        colorbar_thickness=12, hovertemplate="%{y}, hidden unit %{x}: %{z:.3f}<extra></extra>",
    )  # fmt: skip
    figure = plot(heatmap, height=min(900, 120 + 22 * len(names)), xaxis_title="hidden unit")
    figure.update_yaxes(automargin=True)
    return Figure("Weights", "Weights from each column of the table to each hidden unit.", figure)


def column_means(rows: Mapping[str, Tensor], names: Sequence[str]) -> Figure:
    """Mean of each column, scaled to values from 0 to 1, of test rows and of samples."""
    colors = ("#8c8c8c", COLORS[0])
    bars = [
        go.Bar(x=list(names), y=x_NV.mean(0).numpy(), name=name, marker_color=color)
        for (name, x_NV), color in zip(rows.items(), colors, strict=True)
    ]
    caption = "Mean of each column, scaled to values from 0 to 1: what the model samples beside the test rows."
    return Figure("Samples", caption, plot(*bars, height=420, yaxis_title="mean"))
