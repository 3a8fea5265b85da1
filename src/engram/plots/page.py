"""Self-contained HTML page of figures and tables, which opens offline, in light and dark."""

import html
from collections.abc import Iterable, Mapping
from importlib.resources import files
from string import Template
from typing import Any

from plotly.offline import get_plotlyjs

from engram.plots.figure import Figure


def page(title: str, subtitle: str, *body: str) -> bytes:
    """The HTML document; `subtitle` is text, `body` the HTML of the functions below."""
    template = Template(files("engram.plots").joinpath("page.html").read_text("utf-8"))
    text = template.substitute(
        title=html.escape(title), subtitle=html.escape(subtitle), body="\n".join(body), plotly=get_plotlyjs()
    )
    return text.encode()


def figures(items: Iterable[Figure]) -> str:
    """Figures with titles and captions; the page's script draws the plots from JSON."""
    parts = []
    for i, item in enumerate(items):
        data = item.plot.to_json().replace("</", "<\\/")
        title, caption = html.escape(item.title), html.escape(item.caption)
        parts.append(
            f'<figure><h2>{title}</h2><figcaption>{caption}</figcaption><div data-figure="figure-{i}" role="img" '
            f'aria-label="{title}"></div></figure>\n<script type="application/json" id="figure-{i}">{data}</script>'
        )
    return "\n".join(parts)


def cards(values: Mapping[str, str]) -> str:
    """The most important numbers, in large type."""
    items = "".join(
        f"<li><b>{html.escape(value)}</b><span>{html.escape(name)}</span></li>" for name, value in values.items()
    )
    return f'<ul class="cards">{items}</ul>'


def code(title: str, text: str) -> str:
    """A block of code or text with a title."""
    return f"<h2>{html.escape(title)}</h2><pre>{html.escape(text)}</pre>"


def table(title: str, rows: Mapping[str, Any], changed: Iterable[str] = ()) -> str:
    """Table of names and values; those in `changed` are highlighted."""
    cells = "".join(
        f"<tr><td>{html.escape(name)}</td>"
        f"<td{' class=set' if name in set(changed) else ''}>{html.escape(str(value))}</td></tr>"
        for name, value in rows.items()
    )
    return f"<section><h2>{html.escape(title)}</h2><table>{cells}</table></section>"


def matrix(title: str, columns: Mapping[str, Mapping[str, Any]]) -> str:
    """Table with a column for each mapping and a row for each of their keys."""
    names = list(dict.fromkeys(name for values in columns.values() for name in values))
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join(
        f"<tr><td>{html.escape(name)}</td>"
        + "".join(f"<td>{html.escape(str(values.get(name, '–')))}</td>" for values in columns.values())
        + "</tr>"
        for name in names
    )
    return f"<section><h2>{html.escape(title)}</h2><table><tr><th></th>{head}</tr>{body}</table></section>"


def side_by_side(*tables: str) -> str:
    """Tables in columns."""
    return f'<div class="tables">{"".join(tables)}</div>'
