"""A network of predictions coming to rest."""

from collections.abc import Sequence

from torch import Tensor

from engram.figures.figure import COLOURS, Figure, line, plot


def relaxing(error_RL: Tensor) -> Figure:
    """The error of each layer, round by round."""
    traces = [
        line(range(len(error_RL)), error_RL[:, i], f"layer {i + 1}", line={"color": COLOURS[i % len(COLOURS)]})
        for i in range(error_RL.shape[1])
    ]
    whole = line(range(len(error_RL)), error_RL.sum(1), "all", line={"color": "#8c8c8c", "dash": "dash"})
    caption = (
        "Both ends are clamped, and the layers between begin where they are predicted to be: all error is at the "
        "bottom. As they settle it spreads upwards, and the sum falls."
    )
    return Figure("Settling", caption, plot(*traces, whole, xaxis_title="round", yaxis_title="error"))


def likeness(variances: Sequence[float], cosine_SL: Tensor) -> Figure:
    """How like local updates and gradients are, layer by layer."""
    traces = [
        line(
            variances,
            cosine_SL[:, i],
            f"layer {i + 1}",
            mode="lines+markers",
            line={"color": COLOURS[i % len(COLOURS)]},
        )
        for i in range(cosine_SL.shape[1])
    ]
    caption = (
        "The cosine between local updates at equilibrium and the gradients of back-propagation, by how much more what "
        "is predicted in the end may differ from its prediction than the layers between: the more, the less these "
        "move, and the more the two are the same."
    )
    figure = plot(*traces, xaxis_title="nu of the bottom / nu of the others", yaxis_title="cosine", xaxis_type="log")
    return Figure("Beside back-propagation", caption, figure)
