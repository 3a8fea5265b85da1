"""A figure: a plotly plot with a title and a caption that says what to see in it.

Colours follow Okabe and Ito, and after the grey IBM and Tol, so that nobody confuses them. Text and axes take their
colour from the page, which may be light or dark: plots have no background of their own.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import plotly.graph_objects as go

COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C", "#785EF0", "#999933", "#DC267F",
)  # fmt: skip
SEQUENTIAL = "Viridis"
GRID = "rgba(128,128,128,0.2)"
AXIS = {"gridcolor": GRID, "zerolinecolor": GRID, "exponentformat": "power", "minexponent": 5}


@dataclass(frozen=True)
class Figure:
    """A plot with its title and caption."""

    title: str
    caption: str
    plot: go.Figure

    def of(self, part: str) -> "Figure":
        """The same with a title that says of what."""
        return replace(self, title=f"{self.title}: {part}")


def plot(*traces: Any, height: int = 380, **layout: Any) -> go.Figure:
    """A plotly figure in the style of the house."""
    figure = go.Figure(data=list(traces))
    figure.update_layout(
        height=height,
        margin={"l": 60, "r": 20, "t": 30, "b": 50},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        colorway=COLOURS,
        font={"family": "system-ui, sans-serif", "size": 13},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        hovermode="closest",
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": "#8c8c8c"},
    )
    figure.update_xaxes(AXIS)
    figure.update_yaxes(AXIS)
    figure.update_layout(**layout)
    return figure


def line(x: Any, y: Any, name: str, **options: Any) -> go.Scatter:
    """A line through points given as lists, arrays or tensors."""
    return go.Scatter(x=np.asarray(x), y=np.asarray(y), name=name, mode=options.pop("mode", "lines"), **options)
