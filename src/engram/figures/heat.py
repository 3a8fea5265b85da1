"""Numbers as colours, for heat maps and for pictures that go into a page as they are."""

import base64

import plotly.graph_objects as go
import torch
from plotly.colors import sample_colorscale
from torch import Tensor
from torch.nn import functional as F

from engram.figures.figure import COLOURS, SEQUENTIAL
from engram.figures.pictures import png

STOPS = [i / 16 for i in range(17)]
ROOTS = [[c * c, colour] for c, colour in zip(STOPS, sample_colorscale(SEQUENTIAL, STOPS), strict=True)]
"""the colours of square roots, so that small weights can be seen while the numbers stay what they are"""
DIVERGING = [[0, COLOURS[1]], [0.5, "#e8eaed"], [1, COLOURS[0]]]
"""from against to for"""


def heat(value_TS: Tensor, hover: str, **options: object) -> go.Heatmap:
    """Weights from 0 to their largest. What is exactly zero may not be seen at all, and stays empty."""
    shown = {"colorscale": ROOTS, "zmin": 0, "zmax": max(value_TS.max().item(), 1e-12), "colorbar_thickness": 12}
    z = value_TS.masked_fill(value_TS == 0, torch.nan).float().numpy()
    return go.Heatmap(z=z, hovertemplate=f"{hover}<extra></extra>", hoverongaps=False, **{**shown, **options})


def tinted(value_HW: Tensor) -> Tensor:
    """Values from 0 to 1 in the colours of the house, 3 × H × W, from 0 to 1; any dimensions in front stay."""
    colours = sample_colorscale(SEQUENTIAL, [i / 255 for i in range(256)])
    palette_N3 = torch.tensor([[int(part) for part in colour[4:-1].split(",")] for colour in colours]) / 255
    return palette_N3[(value_HW.clamp(0, 1) * 255).round().long()].movedim(-1, -3)


def overlay(image_CHW: Tensor, value_NHW: Tensor) -> Tensor:
    """A grey picture seen through heat of coarser grain, N × 3 × H × W: each value as large as the patch it is of."""
    grey_HW = unit(image_CHW).mean(0)
    large_NHW = F.interpolate(value_NHW[:, None], grey_HW.shape, mode="nearest")[:, 0]
    return 0.25 * grey_HW + 0.75 * tinted(large_NHW)


def unit(image_CHW: Tensor) -> Tensor:
    """Pixels from 0 to 1, whether they are bytes or numbers."""
    return image_CHW if image_CHW.is_floating_point() else image_CHW / 255


def address(image_HW4: Tensor) -> str:
    """A picture as an address that holds it, so that the page needs no other file."""
    return "data:image/png;base64," + base64.b64encode(png(image_HW4)).decode()
