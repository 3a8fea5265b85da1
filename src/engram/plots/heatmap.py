"""Color scales, heatmaps, and images colored by a heatmap."""

import plotly.graph_objects as go
import torch
from plotly.colors import sample_colorscale
from torch import Tensor
from torch.nn import functional as F

from engram.plots.arrays import data_url
from engram.plots.figure import COLORS, SEQUENTIAL
from engram.plots.images import png

STOPS = [i / 16 for i in range(17)]
SQRT_SCALE = [[c * c, color] for c, color in zip(STOPS, sample_colorscale(SEQUENTIAL, STOPS), strict=True)]
"""color scale of the square root, so that small weights can be seen"""
DIVERGING = [[0, COLORS[1]], [0.5, "#e8eaed"], [1, COLORS[0]]]
"""color scale from negative to positive"""


def weight_heatmap(value_TS: Tensor, hover: str, **options: object) -> go.Heatmap:
    """Heatmap of weights from 0 to the largest; masked weights, which are exactly 0, stay empty."""
    largest = max(value_TS.max().item(), 1e-12)
    defaults = {"colorscale": SQRT_SCALE, "zmin": 0, "zmax": largest, "colorbar_thickness": 12}
    z = value_TS.masked_fill(value_TS == 0, torch.nan).float().numpy()
    return go.Heatmap(z=z, hovertemplate=f"{hover}<extra></extra>", hoverongaps=False, **{**defaults, **options})


def apply_colormap(value_HW: Tensor) -> Tensor:
    """Map values from 0 to 1 to RGB from 0 to 1, 3 × H × W; leading dimensions are kept."""
    colors = sample_colorscale(SEQUENTIAL, [i / 255 for i in range(256)])
    palette_N3 = torch.tensor([[int(part) for part in color[4:-1].split(",")] for color in colors]) / 255
    return palette_N3[(value_HW.clamp(0, 1) * 255).round().long()].movedim(-1, -3)


def overlay(image_CHW: Tensor, value_NHW: Tensor) -> Tensor:
    """Overlay a gray image with heatmaps of its patches, N × 3 × H × W."""
    gray_HW = to_unit_range(image_CHW).mean(0)
    large_NHW = F.interpolate(value_NHW[:, None], gray_HW.shape, mode="nearest")[:, 0]
    return 0.25 * gray_HW + 0.75 * apply_colormap(large_NHW)


def to_unit_range(image_CHW: Tensor) -> Tensor:
    """Pixels from 0 to 1 of bytes or floats."""
    return image_CHW if image_CHW.is_floating_point() else image_CHW / 255


def image_url(image_HW4: Tensor) -> str:
    """The data URL of an image."""
    return data_url(png(image_HW4))
