r"""Attention rollout: attention through all layers (Abnar and Zuidema 2020), of texts and images.

    \hat A_l = (\frac{1}{H} \sum_h A_{l,h} + I) / 2     mean over heads; half of a token passes the residual     (1)
    R_l = \hat A_l R_{l-1}, R_0 = I                      contribution of each input token after layer l          (2)

    Symbols:
        A_{l,h}         attention weights of head h in layer l
        R_l             rollout: row of a token after layer l, column of an input token
        H, T            heads, tokens
        M               patches of an image, after the class token

Rollout ignores values and feed-forward layers: it is an approximation.
"""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.plots.attention import attention_heatmaps
from engram.plots.figure import Figure
from engram.plots.heatmap import overlay, to_unit_range
from engram.plots.images import sheet
from engram.plots.tokens import PAGE_WIDTH, by_layer, visible_tokens

SIDE = 150
"""width of an image on the page, in pixels"""


def rollout(weights: Mapping[str, Tensor]) -> Tensor:
    """Contribution of each input token (last dimension) to each token after each layer, layers × T × T."""
    found = list(by_layer(weights).values())
    R_TT = torch.eye(found[0].shape[-1])
    after = []
    for A_HTT in found:
        hat_TT = (A_HTT.mean(0) + torch.eye(len(R_TT))) / 2  # (1)
        R_TT = hat_TT @ R_TT  # (2)
        after.append(R_TT)
    return torch.stack(after)


def rollout_text(weights: Mapping[str, Tensor], tokens: Sequence[str]) -> Figure:
    """Rollout of a text as heatmaps, with a menu of layers."""
    labels, left = visible_tokens(tokens)
    after_LTT = rollout(weights)
    options = {f"after layer {i}": after_LTT[i] for i in reversed(range(len(after_LTT)))}
    caption = (
        "Contribution of each input token (column) to each token (row) through all layers so far, if only attention "
        f"mixes tokens and half of each passes the residual connection (Abnar and Zuidema 2020).{left}"
    )
    hover = 'contribution of "%{x}" to "%{y}": %{z:.1%}'
    figure = attention_heatmaps(options, labels, labels, ("token", "input token"), hover)
    return Figure("Attention rollout", caption, figure)


def rollout_image(weights: Mapping[str, Tensor], image_CHW: Tensor, grid: tuple[int, int]) -> Figure:
    """Rollout of the class token over the patches, after each layer; `grid` is `model.patches.grid`."""
    heat_LRC = patch_grid(rollout(weights)[:, 0], grid)
    images = torch.cat([to_rgb(image_CHW)[None], overlay(image_CHW, normalize_maps(heat_LRC))])
    labels = ["image", *(f"after layer {i}" for i in range(len(heat_LRC)))]
    caption = (
        "Contribution of each patch to the class token through all layers so far (Abnar and Zuidema 2020): bright "
        "where it is largest."
    )
    columns = min(len(images), PAGE_WIDTH // SIDE)
    return Figure("Attention rollout", caption, large_sheet(images, columns, labels))


def class_attention(weights: Mapping[str, Tensor], image_CHW: Tensor, grid: tuple[int, int]) -> Figure:
    """Attention of the class token to the patches, for each layer (row) and head (column)."""
    found = by_layer(weights)
    heads = len(next(iter(found.values())))
    heat_NRC = torch.cat([patch_grid(w_HTT[:, 0], grid) for w_HTT in found.values()])
    labels = [f"{i}·{h}" for i in range(len(found)) for h in range(heads)]
    images = overlay(image_CHW, normalize_maps(heat_NRC))
    caption = (
        "Attention of the class token to the patches, for each layer (row) and head (column); labels are layer·head. "
        "Each image is scaled to its largest weight."
    )
    return Figure("Attention of the class token", caption, large_sheet(images, heads, labels))


def pooling_attention(weights: Mapping[str, Tensor], image_CHW: Tensor, grid: tuple[int, int]) -> Figure:
    """Attention of the learned query of attention pooling to the patches, for each head."""
    (w_BH1M,) = weights.values()
    images = overlay(image_CHW, normalize_maps(patch_grid(w_BH1M[0, :, 0].detach().float(), grid)))
    caption = "Attention of the learned query to the patches in each head: what the vector of the image is made of."
    labels = [f"head {h}" for h in range(len(images))]
    return Figure("Attention pooling", caption, large_sheet(images, len(images), labels))


def patch_grid(weight_NT: Tensor, grid: tuple[int, int]) -> Tensor:
    """Weights of the patches as rows and columns, without the learned tokens before them."""
    if weight_NT.shape[-1] < grid[0] * grid[1]:
        raise EngramError(f"{weight_NT.shape[-1]} tokens are not a class token and {grid[0]} × {grid[1]} patches.")
    return weight_NT[:, -grid[0] * grid[1] :].unflatten(1, grid)


def normalize_maps(heat_NRC: Tensor) -> Tensor:
    """Scale each map to a maximum of 1."""
    return heat_NRC / heat_NRC.amax((1, 2), keepdim=True).clamp(min=1e-12)


def to_rgb(image_CHW: Tensor) -> Tensor:
    """An image with three channels from 0 to 1."""
    pixels = to_unit_range(image_CHW)
    return pixels.expand(3, -1, -1) if len(pixels) == 1 else pixels[:3]


def large_sheet(image_N3HW: Tensor, columns: int, labels: Sequence[str]) -> go.Figure:
    """A sheet of images, larger than those of samples."""
    figure = sheet(image_N3HW, columns, labels)
    rows = -(-len(image_N3HW) // columns)
    cell = min(SIDE, PAGE_WIDTH // columns)
    return figure.update_layout(height=round(rows * cell * 4 / 3) + 20)
