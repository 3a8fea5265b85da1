"""Pictures side by side: samples, mistakes, kernels."""

import base64
import io
import math
from collections.abc import Sequence

import plotly.graph_objects as go
import torch
from PIL import Image
from torch import Tensor

from engram.figures.figure import Figure, plot

LARGEST_CELL = 96
SMALLEST_SIDE = 56
"""pixels to which small pictures are enlarged, so that a label fits below"""


def grid(image_NCHW: Tensor, columns: int = 0, gap: int = 1, below: int = 0) -> Tensor:
    """Many pictures (uint8, or float from 0 to 1) as one, height × width × 4, with transparent gaps between them."""
    if image_NCHW.is_floating_point():
        image_NCHW = (image_NCHW.clamp(0, 1) * 255).round().to(torch.uint8)
    count, channels, height, width = image_NCHW.shape
    columns = columns or math.ceil(math.sqrt(count))
    rows = -(-count // columns)
    colour_N3HW = image_NCHW.expand(-1, 3, -1, -1) if channels == 1 else image_NCHW[:, :3]
    cells = torch.zeros(rows * columns, 4, height + gap + below, width + gap, dtype=torch.uint8)
    cells[:count, :3, :height, :width] = colour_N3HW
    cells[:count, 3, :height, :width] = 255
    return cells.unflatten(0, (rows, columns)).permute(0, 3, 1, 4, 2).flatten(0, 1).flatten(1, 2)


def png(image_HW4: Tensor, scale: int = 1) -> bytes:
    """The bytes of a PNG file, each pixel drawn `scale` times as large."""
    picture = Image.fromarray(image_HW4.contiguous().numpy())
    picture = picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.NEAREST)
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def sheet(image_NCHW: Tensor, columns: int, labels: Sequence[str] = ()) -> go.Figure:
    """Pictures in a grid, with a label below each."""
    scale = max(1, SMALLEST_SIDE // max(image_NCHW.shape[2:]))
    large = image_NCHW.repeat_interleave(scale, 2).repeat_interleave(scale, 3)
    count, _, height, width = large.shape
    below = height // 3 if labels else 0
    whole = grid(large, columns, gap=scale, below=below)
    shown = min(LARGEST_CELL, 900 // columns) / (width + scale)
    source = "data:image/png;base64," + base64.b64encode(png(whole)).decode()
    figure = plot(go.Image(source=source, hoverinfo="skip"), height=round(whole.shape[0] * shown) + 20)
    for i, label in enumerate(labels):
        x = (i % columns) * (width + scale) + width / 2
        y = (i // columns) * (height + scale + below) + height + below / 2
        figure.add_annotation(x=x, y=y, text=label, showarrow=False, font={"size": 11})
    figure.update_layout(margin={"l": 0, "r": 0, "t": 10, "b": 10})
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    return figure


def filters(weight: Tensor, shape: tuple[int, ...], most: int = 64) -> Figure:
    """What the first layer looks for: the kernels of a convolution, or the weights of dense units as pictures."""
    kernels = weight if weight.ndim == 4 else weight.view(-1, *shape)
    kernels = kernels[:most]
    extent = kernels.abs().amax((1, 2, 3), keepdim=True).clamp(min=1e-12)
    scaled = kernels / extent / 2 + 0.5
    if scaled.shape[1] != 3:
        scaled = scaled.mean(1, keepdim=True)
    caption = "What the first layer looks for: grey is nothing, bright is for, dark is against."
    return Figure("First-layer filters", caption, sheet(scaled, columns=16 if len(scaled) > 8 else 8))
