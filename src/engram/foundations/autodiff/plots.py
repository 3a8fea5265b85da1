"""An expression graph with its values and gradients, and the way back through it, Var by Var."""

import plotly.graph_objects as go

from engram.foundations.autodiff.graph_layout import Drawing, layout_graph
from engram.foundations.autodiff.var import Var
from engram.plots.figure import COLORS, Figure, plot

MOST = 200
"""nodes of a drawing that can still be read"""


def graph(root: Var, title: str = "Expression graph") -> Figure:
    """With a slider over backward steps."""
    drawing = layout_graph(root)
    if len(drawing.nodes) > MOST:
        return Figure(title, f"The graph has {len(drawing.nodes)} nodes; at most {MOST} are plotted.", plot(height=60))
    last = len(drawing.nodes)
    figure = plot(arrows(drawing), *nodes(drawing, last), height=140 + 90 * height(drawing), showlegend=False)
    figure.frames = [go.Frame(data=nodes(drawing, step), traces=[1, 2], name=str(step)) for step in range(last + 1)]
    steps = [
        {
            "method": "animate",
            "label": str(step),
            "args": [[str(step)], {"mode": "immediate", "frame": {"duration": 0}}],
        }
        for step in range(last + 1)
    ]
    figure.update_layout(sliders=[{"steps": steps, "active": last, "currentvalue": {"prefix": "gradients computed: "}}])
    figure.update_xaxes(visible=False, range=[-0.6, max(node.column for node in drawing.nodes) + 0.6])
    ends = [node.row for node in drawing.nodes]
    figure.update_yaxes(visible=False, range=[max(ends) + 0.5, min(ends) - 0.9])
    caption = (
        "From the left to the right: values. From the right to the left: gradients, each the sum over all uses of a "
        "Var. The slider goes back one Var at a time."
    )
    return Figure(title, caption, figure)


def height(drawing: Drawing) -> int:
    return max(sum(1 for node in drawing.nodes if node.column == c) for c in {node.column for node in drawing.nodes})


def arrows(drawing: Drawing) -> go.Scatter:
    x: list[float | None] = []
    y: list[float | None] = []
    for a, b in drawing.edges:
        x += [drawing.nodes[a].column, drawing.nodes[b].column, None]
        y += [drawing.nodes[a].row, drawing.nodes[b].row, None]
    return go.Scatter(x=x, y=y, mode="lines", line={"color": "rgba(128,128,128,0.6)"}, hoverinfo="skip")


def nodes(drawing: Drawing, known: int) -> list[go.Scatter]:
    """Vars with their labels and values, and the gradients that are known after so many steps."""
    all_, computed = drawing.nodes, [node for node in drawing.nodes if node.step < known]
    newest = [COLORS[1] if node.step == known - 1 else COLORS[0] for node in all_]
    first = go.Scatter(
        x=[node.column for node in all_],
        y=[node.row for node in all_],
        mode="markers+text",
        marker={"size": 40, "color": newest, "opacity": [1 if node.step < known else 0.4 for node in all_]},
        text=[f"{node.label}<br>{node.value}" for node in all_],
        textposition="top center",
        hovertemplate="%{text}<extra></extra>",
    )
    second = go.Scatter(
        x=[node.column for node in computed],
        y=[node.row for node in computed],
        mode="text",
        text=[f"<b>{node.gradient}</b>" for node in computed],
        textfont={"color": "white", "size": 10},
        hoverinfo="skip",
    )
    return [first, second]
