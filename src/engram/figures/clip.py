"""Pictures and texts in one space: how well they go together, and who finds whom.   B pictures, K texts"""

import textwrap
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from torch import Tensor

from engram.figures.figure import COLOURS, SEQUENTIAL, Figure, plot
from engram.figures.heat import address
from engram.figures.pictures import grid
from engram.figures.tokens import PAGE, plain, ticks

SIDE = 72
"""pixels of a picture on the page"""
MOST = 24
"""pictures and texts of a matrix that is drawn"""
OWN = " The one that belongs to it is green."


def similarity(matrix_BK: Tensor, pictures_BCHW: Tensor, texts: Sequence[str], paired: bool = False) -> Figure:
    """Each picture with each text. `paired`: picture i belongs to text i."""
    matrix_BK = matrix_BK.detach().float()[:MOST, :MOST]
    B, K = matrix_BK.shape
    side = min(SIDE, 700 // B)
    cells = go.Heatmap(
        z=matrix_BK.numpy(),
        colorscale=SEQUENTIAL,
        hovertemplate="picture %{y} with «%{x}»: %{z:.2f}<extra></extra>",
        xgap=1,
        ygap=1,
        colorbar={"thickness": 12, "xpad": 20},
    )
    figure = plot(cells, height=side * B + 220, xaxis=ticks([cut(text, 32) for text in texts[:K]]))
    figure.update_layout(margin={"l": side + 20, "r": 120, "t": 40, "b": 60})
    figure.update_yaxes(range=[B - 0.5, -0.5], showticklabels=False, showgrid=False)
    figure.update_xaxes(tickangle=45, range=[-0.5, K - 0.5])
    beside = {"xref": "paper", "x": -0.005, "xanchor": "right", "sizex": side / PAGE, "sizey": 0.94}
    for i in range(B):
        figure.add_layout_image(y=i, **beside, **inlaid(pictures_BCHW[i]))
    caption = "How well each picture (row) goes with each text (column), bright is well."
    if paired:
        right = sum(best == i for i, best in enumerate(matrix_BK.argmax(1).tolist()))
        caption += f" Pairs are on the diagonal: {right} of {B} pictures go best with their own text."
    return Figure("Pictures and texts", caption, figure)


def retrieval(
    matrix_BK: Tensor,
    pictures_BCHW: Tensor,
    texts: Sequence[str],
    paired: bool = False,
    some: int = 5,
    best: int = 5,
) -> tuple[Figure, Figure]:
    """For some texts the best pictures, and for some pictures the best texts."""
    matrix_BK = matrix_BK.detach().float()
    return (
        pictures_for_texts(matrix_BK, pictures_BCHW, texts, paired, some, best),
        texts_for_pictures(matrix_BK, pictures_BCHW, texts, paired, some, best),
    )


def pictures_for_texts(
    matrix_BK: Tensor, pictures_BCHW: Tensor, texts: Sequence[str], paired: bool, some: int, best: int
) -> Figure:
    """A row of pictures for each text, the best first."""
    value_KN, which_KN = matrix_BK.T[:some].topk(min(best, len(matrix_BK)))
    K, N = value_KN.shape
    figure = plot(height=K * (SIDE + 34) + 80)
    for k in range(K):
        for n, i in enumerate(which_KN[k].tolist()):
            figure.add_layout_image(
                x=n, y=k - 0.12, xref="x", xanchor="center", sizex=0.96, sizey=0.72, **inlaid(pictures_BCHW[i])
            )
            own = {"color": COLOURS[2]} if paired and i == k else {}
            text = f"<b>{value_KN[k, n]:.2f}</b>" if own else f"{value_KN[k, n]:.2f}"
            figure.add_annotation(x=n, y=k + 0.37, text=text, showarrow=False, font={"size": 11, **own})
    labels = ["<br>".join(textwrap.wrap(cut(text, 80), 28)) for text in texts[:K]]
    figure.update_xaxes(visible=False, range=[-0.5, max(N, 8) - 0.5])
    figure.update_yaxes(ticks(labels) | {"range": [K - 0.5, -0.5]})
    caption = f"For each text, the pictures that go with it best.{OWN if paired else ''}"
    return Figure("Pictures for texts", caption, figure)


def texts_for_pictures(
    matrix_BK: Tensor, pictures_BCHW: Tensor, texts: Sequence[str], paired: bool, some: int, best: int
) -> Figure:
    """A list of texts beside each picture, the best first."""
    value_BN, which_BN = matrix_BK[:some].topk(min(best, matrix_BK.shape[1]))
    B, N = value_BN.shape
    figure = plot(height=B * max(SIDE + 24, 18 * N + 16) + 80)
    for i in range(B):
        figure.add_layout_image(x=0, y=i, xref="x", xanchor="left", sizex=1, sizey=0.78, **inlaid(pictures_BCHW[i]))
        for n, k in enumerate(which_BN[i].tolist()):
            own = {"color": COLOURS[2]} if paired and i == k else {}
            text = f"{value_BN[i, n]:.2f}  {cut(texts[k], 80)}"
            y = i + 0.8 * ((n + 0.5) / N - 0.5)
            place = {"x": 1.2, "y": y, "xanchor": "left", "align": "left", "showarrow": False}
            figure.add_annotation(text=f"<b>{text}</b>" if own else text, font={"size": 13, **own}, **place)
    figure.update_xaxes(visible=False, range=[0, PAGE / (SIDE + 10)])
    figure.update_yaxes(visible=False, range=[B - 0.5, -0.5])
    figure.update_layout(margin={"l": 10})
    caption = f"For each picture, the texts that go with it best.{OWN if paired else ''}"
    return Figure("Texts for pictures", caption, figure)


def inlaid(image_CHW: Tensor) -> dict[str, Any]:
    """A picture to be laid into a plot."""
    scale = max(1, SIDE // max(image_CHW.shape[1:]))
    large = image_CHW.repeat_interleave(scale, 1).repeat_interleave(scale, 2)
    return {"source": address(grid(large[None], gap=0)), "yanchor": "middle", "yref": "y"}


def cut(text: str, longest: int) -> str:
    return plain(text if len(text) <= longest else text[: longest - 1] + "…")
