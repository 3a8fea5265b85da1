"""Figures of the recurrent encoder-decoder.

The alignment of target and source, and the loss by length.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from engram.plots.attention import attention_heatmaps
from engram.plots.figure import Figure, line, plot
from engram.plots.tokens import visible_tokens

GROUPS = 12
"""largest number of groups of pairs by their length"""


def alignment(weights_TS: Tensor, target: Sequence[str], source: Sequence[str]) -> Figure:
    """Plot the attention of each target token to the source tokens."""
    (rows, left), (columns, more) = visible_tokens(target), visible_tokens(source)
    caption = (
        "Attention weights: how much of each source token (column) is in the context from which a target token (row) "
        f"is predicted; a row sums to one. Nobody has told the model which tokens belong together.{left or more}"
    )
    hover = '"%{y}" is predicted from "%{x}": %{z:.1%}'
    return Figure(
        "Alignment", caption, attention_heatmaps({"": weights_TS}, rows, columns, ("target", "source"), hover)
    )


def loss_by_length(loss_N: Tensor, length_N: Tensor) -> Figure:
    """Plot the mean loss of pairs against the length of their source."""
    order = length_N.argsort(stable=True)
    groups = order.tensor_split(max(1, min(GROUPS, len(order) // 4)))
    x = [length_N[group].float().mean().item() for group in groups]
    points = line(x, [loss_N[group].mean().item() for group in groups], "test pairs", mode="lines+markers")
    caption = (
        "Loss per target token of test pairs, grouped by the length of the source. Without attention one vector must "
        "hold the whole source, and long sources suffer; with attention the length hardly matters."
    )
    figure = plot(points, xaxis_title="source tokens", yaxis_title="loss (nats per token)", yaxis_rangemode="tozero")
    return Figure("Loss by length of the source", caption, figure)


def pair_losses(logits_BTV: Tensor, y_BT: Tensor, pad_id: int) -> Tensor:
    """Return the mean cross-entropy of each pair."""
    log_p_BTV = logits_BTV.log_softmax(-1)
    loss_BT = -log_p_BTV.gather(2, y_BT[:, :, None])[:, :, 0]
    valid_BT = y_BT != pad_id
    return torch.where(valid_BT, loss_BT, 0.0).sum(1) / valid_BT.sum(1)
