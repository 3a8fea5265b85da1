"""Similarity of images and texts, and retrieval of one by the other.   B images, K texts"""

import textwrap
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from torch import Tensor

from engram.plots.figure import COLORS, SEQUENTIAL, Figure, plot
from engram.plots.heatmap import image_url
from engram.plots.images import grid
from engram.plots.tokens import PAGE_WIDTH, escape_html, token_axis

SIDE = 72
"""pixels of an image on the page"""
MAX_ITEMS = 24
"""largest number of images and texts in a matrix"""
TRUE_PAIR = " The matching pair is green."


def similarity(matrix_BK: Tensor, image_BCHW: Tensor, texts: Sequence[str], paired: bool = False) -> Figure:
    """Heat map of the similarity of each image and each text; with `paired`, image i belongs to text i."""
    matrix_BK = matrix_BK.detach().float()[:MAX_ITEMS, :MAX_ITEMS]
    B, K = matrix_BK.shape
    side = min(SIDE, 700 // B)
    cells = go.Heatmap(
        z=matrix_BK.numpy(),
        colorscale=SEQUENTIAL,
        hovertemplate='image %{y}, "%{x}": %{z:.2f}<extra></extra>',
        xgap=1,
        ygap=1,
        colorbar={"thickness": 12, "xpad": 20},
    )
    figure = plot(cells, height=side * B + 220, xaxis=token_axis([shorten(text, 32) for text in texts[:K]]))
    figure.update_layout(margin={"l": side + 20, "r": 120, "t": 40, "b": 60})
    figure.update_yaxes(range=[B - 0.5, -0.5], showticklabels=False, showgrid=False)
    figure.update_xaxes(tickangle=45, range=[-0.5, K - 0.5])
    beside = {"xref": "paper", "x": -0.005, "xanchor": "right", "sizex": side / PAGE_WIDTH, "sizey": 0.94}
    for i in range(B):
        figure.add_layout_image(y=i, **beside, **layout_image(image_BCHW[i]))
    caption = "Cosine similarity of each image (row) with each text (column); bright cells are high."
    if paired:
        correct = sum(best == i for i, best in enumerate(matrix_BK.argmax(1).tolist()))
        caption += f" Pairs are on the diagonal: {correct} of {B} images are most similar to their own text."
    return Figure("Images and texts", caption, figure)


def retrieval(
    matrix_BK: Tensor,
    image_BCHW: Tensor,
    texts: Sequence[str],
    paired: bool = False,
    some: int = 5,
    best: int = 5,
) -> tuple[Figure, Figure]:
    """Figures of the best images for some texts, and of the best texts for some images."""
    matrix_BK = matrix_BK.detach().float()
    return (
        images_for_texts(matrix_BK, image_BCHW, texts, paired, some, best),
        texts_for_images(matrix_BK, image_BCHW, texts, paired, some, best),
    )


def images_for_texts(
    matrix_BK: Tensor, image_BCHW: Tensor, texts: Sequence[str], paired: bool, some: int, best: int
) -> Figure:
    """A row of images for each text, the best first."""
    value_KN, which_KN = matrix_BK.T[:some].topk(min(best, len(matrix_BK)))
    K, N = value_KN.shape
    figure = plot(height=K * (SIDE + 34) + 80)
    for k in range(K):
        for n, i in enumerate(which_KN[k].tolist()):
            figure.add_layout_image(
                x=n, y=k - 0.12, xref="x", xanchor="center", sizex=0.96, sizey=0.72, **layout_image(image_BCHW[i])
            )
            own = {"color": COLORS[2]} if paired and i == k else {}
            text = f"<b>{value_KN[k, n]:.2f}</b>" if own else f"{value_KN[k, n]:.2f}"
            figure.add_annotation(x=n, y=k + 0.37, text=text, showarrow=False, font={"size": 11, **own})
    labels = ["<br>".join(textwrap.wrap(shorten(text, 80), 28)) for text in texts[:K]]
    figure.update_xaxes(visible=False, range=[-0.5, max(N, 8) - 0.5])
    figure.update_yaxes(token_axis(labels) | {"range": [K - 0.5, -0.5]})
    caption = f"For each text, the most similar images.{TRUE_PAIR if paired else ''}"
    return Figure("Images for texts", caption, figure)


def texts_for_images(
    matrix_BK: Tensor, image_BCHW: Tensor, texts: Sequence[str], paired: bool, some: int, best: int
) -> Figure:
    """A list of texts beside each image, the best first."""
    value_BN, which_BN = matrix_BK[:some].topk(min(best, matrix_BK.shape[1]))
    B, N = value_BN.shape
    figure = plot(height=B * max(SIDE + 24, 18 * N + 16) + 80)
    for i in range(B):
        figure.add_layout_image(x=0, y=i, xref="x", xanchor="left", sizex=1, sizey=0.78, **layout_image(image_BCHW[i]))
        for n, k in enumerate(which_BN[i].tolist()):
            own = {"color": COLORS[2]} if paired and i == k else {}
            text = f"{value_BN[i, n]:.2f}  {shorten(texts[k], 80)}"
            y = i + 0.8 * ((n + 0.5) / N - 0.5)
            place = {"x": 1.2, "y": y, "xanchor": "left", "align": "left", "showarrow": False}
            figure.add_annotation(text=f"<b>{text}</b>" if own else text, font={"size": 13, **own}, **place)
    figure.update_xaxes(visible=False, range=[0, PAGE_WIDTH / (SIDE + 10)])
    figure.update_yaxes(visible=False, range=[B - 0.5, -0.5])
    figure.update_layout(margin={"l": 10})
    caption = f"For each image, the most similar texts.{TRUE_PAIR if paired else ''}"
    return Figure("Texts for images", caption, figure)


def layout_image(image_CHW: Tensor) -> dict[str, Any]:
    """Arguments of `add_layout_image` for an image, enlarged."""
    scale = max(1, SIDE // max(image_CHW.shape[1:]))
    large = image_CHW.repeat_interleave(scale, 1).repeat_interleave(scale, 2)
    return {"source": image_url(grid(large[None], gap=0)), "yanchor": "middle", "yref": "y"}


def shorten(text: str, max_length: int) -> str:
    """Return the text, escaped for plotly and cut to `max_length` characters."""
    return escape_html(text if len(text) <= max_length else text[: max_length - 1] + "…")
