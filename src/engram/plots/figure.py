"""Figure: a plotly plot with a title and a caption.

Colors are those of Okabe and Ito, then of IBM and Tol, which are distinguishable with color blindness. Plots have no
background; text and axes take their color from the page, which may be light or dark.
"""

import html
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go

from engram.core.errors import EngramError

COLORS = (
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

    def to_html(self) -> str:
        """The figure as HTML for a notebook."""
        title, caption = html.escape(self.title), html.escape(self.caption)
        plot = self.plot.to_html(full_html=False, include_plotlyjs="require")
        return f"<h4>{title}</h4><p>{caption}</p>{plot}"

    _repr_html_ = to_html

    def save(self, path: str | Path) -> Path:
        """Save as .html, or as .png, .svg or .pdf, which needs the extra "figures" and a Chrome browser."""
        path = Path(path)
        if path.suffix == ".html":
            path.write_text(self.plot.to_html(include_plotlyjs=True), encoding="utf-8")
            return path
        if path.suffix not in (".png", ".svg", ".pdf"):
            raise EngramError(f"A figure is saved as .html, .png, .svg or .pdf, not as {path.name}.")
        try:
            self.plot.write_image(path)
        except (ValueError, RuntimeError, ImportError) as error:
            raise EngramError(
                f"{path.name} needs kaleido (pip install 'engram[figures]') and a Chrome browser: or save it as .html."
            ) from error
        return path

    def of(self, part: str) -> "Figure":
        """A copy with the part added to its title."""
        return replace(self, title=f"{self.title}: {part}")


def plot(*traces: Any, height: int = 380, **layout: Any) -> go.Figure:
    """A plotly figure in the common style."""
    figure = go.Figure(data=list(traces))
    figure.update_layout(
        height=height,
        margin={"l": 60, "r": 20, "t": 30, "b": 50},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        colorway=COLORS,
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
