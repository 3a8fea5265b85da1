"""Grids of images: samples, misclassified images, filters."""

import io
import math
from collections.abc import Sequence

import plotly.graph_objects as go
import torch
from PIL import Image
from torch import Tensor

from engram.plots.arrays import data_url
from engram.plots.figure import Figure, plot

MAX_CELL = 96
"""largest width of an image on a page, in pixels"""
MIN_SIDE = 56
"""size to which small images are enlarged, so that a label fits below"""


def grid(image_NCHW: Tensor, columns: int = 0, gap: int = 1, below: int = 0) -> Tensor:
    """Arrange images (uint8, or float 0 to 1) in one RGBA image, H × W × 4, with transparent gaps."""
    if image_NCHW.is_floating_point():
        image_NCHW = (image_NCHW.clamp(0, 1) * 255).round().to(torch.uint8)
    count, channels, height, width = image_NCHW.shape
    columns = columns or math.ceil(math.sqrt(count))
    rows = -(-count // columns)
    color_N3HW = image_NCHW.expand(-1, 3, -1, -1) if channels == 1 else image_NCHW[:, :3]
    cells = torch.zeros(rows * columns, 4, height + gap + below, width + gap, dtype=torch.uint8)
    cells[:count, :3, :height, :width] = color_N3HW
    cells[:count, 3, :height, :width] = 255
    return cells.unflatten(0, (rows, columns)).permute(0, 3, 1, 4, 2).flatten(0, 1).flatten(1, 2)


def png(image_HW4: Tensor, scale: int = 1) -> bytes:
    """Encode an RGBA image as PNG, enlarged `scale` times."""
    image = Image.fromarray(image_HW4.contiguous().numpy())
    image = image.resize((image.width * scale, image.height * scale), Image.Resampling.NEAREST)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def sheet(image_NCHW: Tensor, columns: int, labels: Sequence[str] = ()) -> go.Figure:
    """A figure of images in a grid, with a label below each."""
    scale = max(1, MIN_SIDE // max(image_NCHW.shape[2:]))
    large = image_NCHW.repeat_interleave(scale, 2).repeat_interleave(scale, 3)
    count, _, height, width = large.shape
    below = height // 3 if labels else 0
    whole = grid(large, columns, gap=scale, below=below)
    zoom = min(MAX_CELL, 900 // columns) / (width + scale)
    figure = plot(go.Image(source=data_url(png(whole)), hoverinfo="skip"), height=round(whole.shape[0] * zoom) + 20)
    for i, label in enumerate(labels):
        x = (i % columns) * (width + scale) + width / 2
        y = (i // columns) * (height + scale + below) + height + below / 2
        figure.add_annotation(x=x, y=y, text=label, showarrow=False, font={"size": 11})
    figure.update_layout(margin={"l": 0, "r": 0, "t": 10, "b": 10})
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    return figure


def filters(weight: Tensor, shape: tuple[int, ...], most: int = 64) -> Figure:
    """Filters of the first layer: kernels of a convolution, or weights of fully connected units as images."""
    kernels = weight if weight.ndim == 4 else weight.view(-1, *shape)
    kernels = kernels[:most]
    extent = kernels.abs().amax((1, 2, 3), keepdim=True).clamp(min=1e-12)
    scaled = kernels / extent / 2 + 0.5
    if scaled.shape[1] != 3:
        scaled = scaled.mean(1, keepdim=True)
    caption = (
        "Weights of the first layer, each filter scaled to its largest: gray is 0, bright positive, dark negative."
    )
    return Figure("First-layer filters", caption, sheet(scaled, columns=16 if len(scaled) > 8 else 8))
