"""Attention through all layers (Abnar and Zuidema 2020, «attention rollout»), for texts and for pictures.

    A^_l = (mean over heads of A_l + I) / 2           half of what a token is, it brings along in the stream     (1)
    R_l = A^_l R_{l-1},   R_0 = I                     how much of each first token is in each token after l      (2)

H heads, T tokens, M patches; in pictures the class token stands in front of the patches
"""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.figures.attention import maps
from engram.figures.figure import Figure
from engram.figures.heat import overlay, unit
from engram.figures.pictures import sheet
from engram.figures.tokens import PAGE, first, layers

SIDE = 150
"""pixels of a picture on the page"""


def rollout(weights: Mapping[str, Tensor]) -> Tensor:
    """Layers × T × T: after each layer, how much of each first token (last dimension) is in each token."""
    found = list(layers(weights).values())
    R_TT = torch.eye(found[0].shape[-1])
    after = []
    for A_HTT in found:
        hat_TT = (A_HTT.mean(0) + torch.eye(len(R_TT))) / 2  # (1)
        R_TT = hat_TT @ R_TT  # (2)
        after.append(R_TT)
    return torch.stack(after)


def rollout_text(weights: Mapping[str, Tensor], tokens: Sequence[str]) -> Figure:
    """Which words a token is made of, after all layers or fewer."""
    labels, left = first(tokens)
    after_LTT = rollout(weights)
    options = {f"after layer {i}": after_LTT[i] for i in reversed(range(len(after_LTT)))}
    caption = (
        "How much of each word (column) has come into each token (row) through all layers so far, if attention is all "
        f"that mixes them and half of a token stays itself (Abnar and Zuidema 2020).{left}"
    )
    figure = maps(options, labels, labels, ("token", "made of"), "of «%{x}» in «%{y}»: %{z:.1%}")
    return Figure("Attention rollout", caption, figure)


def rollout_picture(weights: Mapping[str, Tensor], image_CHW: Tensor, grid: tuple[int, int]) -> Figure:
    """Which patches the class token is made of, after each layer. `grid` is `model.patches.grid`."""
    heat_LRC = patches(rollout(weights)[:, 0], grid)
    shown = torch.cat([colour(image_CHW)[None], overlay(image_CHW, scaled(heat_LRC))])
    labels = ["picture", *(f"after layer {i}" for i in range(len(heat_LRC)))]
    caption = (
        "Which patches have come into the class token through all layers so far (Abnar and Zuidema 2020): "
        "each picture is brightest where most came from."
    )
    columns = min(len(shown), PAGE // SIDE)
    return Figure("Attention rollout", caption, large(shown, columns, labels))


def class_attention(weights: Mapping[str, Tensor], image_CHW: Tensor, grid: tuple[int, int]) -> Figure:
    """Where each head of each layer looks for the class token: a row of pictures for each layer."""
    found = layers(weights)
    heads = len(next(iter(found.values())))
    heat_NRC = torch.cat([patches(w_HTT[:, 0], grid) for w_HTT in found.values()])
    labels = [f"{i}·{h}" for i in range(len(found)) for h in range(heads)]
    shown = overlay(image_CHW, scaled(heat_NRC))
    caption = (
        "Where the class token looks, layer by layer (rows) and head by head (columns); below each, layer·head. "
        "Each is brightest where its head looks most."
    )
    return Figure("Attention of the class token", caption, large(shown, heads, labels))


def patches(weight_NT: Tensor, grid: tuple[int, int]) -> Tensor:
    """What falls on the patches, without the class token, as rows and columns."""
    if weight_NT.shape[-1] != 1 + grid[0] * grid[1]:
        raise EngramError(f"{weight_NT.shape[-1]} tokens are not a class token and {grid[0]} × {grid[1]} patches.")
    return weight_NT[:, 1:].unflatten(1, grid)


def scaled(heat_NRC: Tensor) -> Tensor:
    """Each from 0 to 1 by its own largest value."""
    return heat_NRC / heat_NRC.amax((1, 2), keepdim=True).clamp(min=1e-12)


def colour(image_CHW: Tensor) -> Tensor:
    return unit(image_CHW).expand(3, -1, -1) if len(image_CHW) == 1 else unit(image_CHW)[:3]


def large(image_N3HW: Tensor, columns: int, labels: Sequence[str]) -> go.Figure:
    """A sheet of pictures, larger than samples are shown."""
    figure = sheet(image_N3HW, columns, labels)
    rows = -(-len(image_N3HW) // columns)
    cell = min(SIDE, PAGE // columns)
    return figure.update_layout(height=round(rows * cell * 4 / 3) + 20)
