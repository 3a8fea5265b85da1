"""Which head matters for a prediction: each is switched off in turn (Michel et al. 2019).

    effect = log p(target | all heads) - log p(target | all but this one)      above 0: the head helps      (1)

L layers, H heads, T tokens, D width of a head, V vocabulary
"""

from collections.abc import Callable

import plotly.graph_objects as go
import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.seeding import aside
from engram.core.tap import watch
from engram.figures.figure import Figure, plot
from engram.figures.heat import DIVERGING
from engram.figures.tokens import ticks
from engram.layers.attention import Attention


def head_effects(
    model: nn.Module,
    run: Callable[[], Tensor],
    target: int | None = None,
    prefix: str = "blocks",
    part: str = "attention",
) -> Tensor:
    """(1) as L × H. `run` gives logits of which the last row counts; `target` is a token, or what is predicted."""
    with aside(model, 0):
        full_V = last_row(run())
        target = int(full_V.argmax()) if target is None else target
        return torch.stack(
            [
                torch.stack(
                    [full_V[target] - last_row(without(model, run, name, head))[target] for head in range(heads)]
                )
                for name, heads in attentions(model, prefix, part).items()
            ]
        )  # (1)


def attentions(model: nn.Module, prefix: str, part: str) -> dict[str, int]:
    """Each attention of a stack of blocks, and how many heads it has."""
    begins, ends = f"{prefix}.", f".{part}"
    found = {
        name: module.heads
        for name, module in model.named_modules()
        if isinstance(module, Attention) and name.startswith(begins) and name.endswith(ends)
    }
    if not found:
        raise EngramError(f"There is no «{prefix}.0.{part}» in this model: prefix and part name other attentions.")
    return found


def without(model: nn.Module, run: Callable[[], Tensor], name: str, head: int) -> Tensor:
    """What comes out if one head says nothing."""

    def silent(heads_BHTD: Tensor) -> Tensor:
        heads_BHTD = heads_BHTD.clone()
        heads_BHTD[:, head] = 0
        return heads_BHTD

    with watch(model, replace={f"{name}.heads": silent}):
        return run()


def last_row(logits: Tensor) -> Tensor:
    return logits.reshape(-1, logits.shape[-1])[-1].float().log_softmax(-1)


def head_ablation(
    model: nn.Module,
    run: Callable[[], Tensor],
    target: int | None = None,
    prefix: str = "blocks",
    part: str = "attention",
) -> Figure:
    """How much each head adds to the log-probability of what is predicted, or of another target."""
    effect_LH = head_effects(model, run, target, prefix, part)
    L, H = effect_LH.shape
    extent = max(effect_LH.abs().max().item(), 1e-6)
    cells = go.Heatmap(
        z=effect_LH.numpy(),
        text=[[f"{value:+.2g}" for value in row] for row in effect_LH.tolist()],
        texttemplate="%{text}" if H <= 12 else None,
        hovertemplate="layer %{y}, head %{x}: %{z:+.3g}<extra></extra>",
        colorscale=DIVERGING,
        zmin=-extent,
        zmax=extent,
        xgap=2,
        ygap=2,
        colorbar={"thickness": 12, "tickformat": ".1g"},
    )
    figure = plot(cells, height=44 * L + 110, xaxis_title="head", yaxis_title="layer")
    figure.update_xaxes(ticks([str(h) for h in range(H)]))
    figure.update_yaxes(ticks([str(i) for i in range(L)]))
    caption = (
        "What is lost of the log-probability of the prediction when a head is switched off: blue heads help, orange "
        f"ones stand in the way. In order of effect, layer·head: {ranking(effect_LH)}."
    )
    return Figure("Which heads matter", caption, figure)


def ranking(effect_LH: Tensor, most: int = 8) -> str:
    order = effect_LH.flatten().abs().argsort(descending=True)[:most].tolist()
    heads = effect_LH.shape[1]
    return ", ".join(f"{i // heads}·{i % heads} ({effect_LH.flatten()[i]:+.2g})" for i in order)
