r"""Head ablation: the effect of each attention head on a prediction (Michel et al. 2019).

    e_h = \log p(y) - \log p_{-h}(y)     above 0: the head helps     (1)

    Symbols:
        e_h           effect of head h
        p(y)          probability of the target token with all heads
        p_{-h}(y)     and with the output of head h set to zero
        L, H, T       layers, heads, tokens
        D, V          head width, vocabulary size

Heads are ablated by the tap of their outputs (core/tap.py): all of a layer in one pass, which goes on from there with
one copy of the input for each head.
"""

from collections.abc import Callable

import plotly.graph_objects as go
import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.core.seeding import isolated_eval
from engram.core.tap import watch
from engram.nn.attention import Attention
from engram.plots.figure import Figure, plot
from engram.plots.heatmap import DIVERGING
from engram.plots.tokens import token_axis


def head_effects(
    model: nn.Module,
    run: Callable[[], Tensor],
    target: int | None = None,
    prefix: str = "blocks",
    part: str = "attention",
) -> Tensor:
    """Effect of each head on the target, L × H.

    `run` returns logits of one input, B × V or B × T × V, B = 1.

    `target` is a token; None is the predicted token. Of T tokens the last one counts.
    """
    with isolated_eval(model, 0):
        full_V = last_log_probs(run())[0]
        target = int(full_V.argmax()) if target is None else target
        ablated = [
            last_log_probs(run_without_each_head(model, run, name)) for name in find_attentions(model, prefix, part)
        ]
        return torch.stack([full_V[target] - log_p_HV[:, target] for log_p_HV in ablated])  # (1)


def find_attentions(model: nn.Module, prefix: str, part: str) -> list[str]:
    """Names of the attention modules of a stack of blocks."""
    start, end = f"{prefix}.", f".{part}"
    found = [
        name
        for name, module in model.named_modules()
        if isinstance(module, Attention) and name.startswith(start) and name.endswith(end)
    ]
    if not found:
        raise EngramError(f'This model has no attention "{prefix}.0.{part}": choose another prefix and part.')
    return found


def run_without_each_head(model: nn.Module, run: Callable[[], Tensor], name: str) -> Tensor:
    """Run with the output of one head at zero, for each head of a module: row h is without head h."""

    def ablate(head_1HTD: Tensor) -> Tensor:
        heads = torch.arange(head_1HTD.shape[1])
        ablated = head_1HTD.expand(len(heads), -1, -1, -1).clone()
        ablated[heads, heads] = 0
        return ablated

    with watch(model, replace={f"{name}.heads": ablate}):
        return run()


def last_log_probs(logits: Tensor) -> Tensor:
    """Log-probabilities of logits, B × V; of B × T × V those of the last token."""
    return (logits[:, -1] if logits.ndim == 3 else logits).float().log_softmax(-1)


def head_ablation(
    model: nn.Module,
    run: Callable[[], Tensor],
    target: int | None = None,
    prefix: str = "blocks",
    part: str = "attention",
) -> Figure:
    """Heatmap of the effect of each head on the log-probability of the prediction, or of another target."""
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
    figure.update_xaxes(token_axis([str(h) for h in range(H)]))
    figure.update_yaxes(token_axis([str(i) for i in range(L)]))
    caption = (
        "Decrease of the log-probability of the prediction when a head is ablated: blue heads help, orange ones "
        f"hurt. In order of effect, layer·head: {rank_heads(effect_LH)}."
    )
    return Figure("Head ablation", caption, figure)


def rank_heads(effect_LH: Tensor, most: int = 8) -> str:
    """Heads of largest effect, as text."""
    order = effect_LH.flatten().abs().argsort(descending=True)[:most].tolist()
    heads = effect_LH.shape[1]
    return ", ".join(f"{i // heads}·{i % heads} ({effect_LH.flatten()[i]:+.2g})" for i in order)
