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


def grid(image_NCHW: Tensor, columns: int = 0, gap: int = 1) -> Tensor:
    """Many pictures (uint8, or float from 0 to 1) as one: height × width × 3, uint8."""
    if image_NCHW.is_floating_point():
        image_NCHW = (image_NCHW.clamp(0, 1) * 255).round().to(torch.uint8)
    count, channels, height, width = image_NCHW.shape
    columns = columns or math.ceil(math.sqrt(count))
    rows = -(-count // columns)
    sheet = torch.full((3, rows * (height + gap) + gap, columns * (width + gap) + gap), 128, dtype=torch.uint8)
    for i, picture in enumerate(image_NCHW.expand(-1, 3, -1, -1) if channels == 1 else image_NCHW[:, :3]):
        top, left = (i // columns) * (height + gap) + gap, (i % columns) * (width + gap) + gap
        sheet[: len(picture), top : top + height, left : left + width] = picture
    return sheet.permute(1, 2, 0)


def png(image_HW3: Tensor, scale: int = 1) -> bytes:
    """The bytes of a PNG file, each pixel drawn `scale` times as large."""
    picture = Image.fromarray(image_HW3.contiguous().numpy())
    picture = picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.NEAREST)
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def sheet(image_NCHW: Tensor, columns: int, labels: Sequence[str] = ()) -> go.Figure:
    """Pictures in a grid, with a label below each."""
    count, _, height, width = image_NCHW.shape
    rows = -(-count // columns)
    gap = max(1, round(0.28 * height)) if labels else 1
    padded = torch.nn.functional.pad(image_NCHW, (0, 0, 0, gap - 1), value=0) if labels else image_NCHW
    whole = grid(padded, columns, gap=1)
    cell = min(LARGEST_CELL, 900 // columns)
    source = "data:image/png;base64," + base64.b64encode(png(whole)).decode()
    figure = plot(go.Image(source=source, hoverinfo="skip"), height=round(rows * cell * padded.shape[2] / width) + 20)
    for i, label in enumerate(labels):
        x = (i % columns) * (width + 1) + 1 + width / 2
        y = (i // columns) * (padded.shape[2] + 1) + 1 + height + (gap - 1) / 2
        figure.add_annotation(x=x, y=y, text=label, showarrow=False, font={"size": 11, "color": "#fff"})
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
