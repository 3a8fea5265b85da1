"""A self-contained page of figures and tables: one file that opens offline, in light and in dark."""

import html
from collections.abc import Iterable, Mapping
from importlib.resources import files
from string import Template
from typing import Any

from plotly.offline import get_plotlyjs

from engram.figures.figure import Figure


def page(title: str, subtitle: str, *body: str) -> bytes:
    """The whole document; `subtitle` is text, `body` is made by the functions below."""
    template = Template(files("engram.figures").joinpath("page.html").read_text("utf-8"))
    text = template.substitute(
        title=html.escape(title), subtitle=html.escape(subtitle), body="\n".join(body), plotly=get_plotlyjs()
    )
    return text.encode()


def figures(items: Iterable[Figure]) -> str:
    """Each figure with its title and caption; the plots are data that the page's script draws."""
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
    """A few numbers that matter most, large."""
    items = "".join(
        f"<li><b>{html.escape(value)}</b><span>{html.escape(name)}</span></li>" for name, value in values.items()
    )
    return f'<ul class="cards">{items}</ul>'


def code(title: str, text: str) -> str:
    return f"<h2>{html.escape(title)}</h2><pre>{html.escape(text)}</pre>"


def table(title: str, rows: Mapping[str, Any], set_by_hand: Iterable[str] = ()) -> str:
    """Names and values; those that were set by hand stand out."""
    cells = "".join(
        f"<tr><td>{html.escape(name)}</td>"
        f"<td{' class=set' if name in set(set_by_hand) else ''}>{html.escape(str(value))}</td></tr>"
        for name, value in rows.items()
    )
    return f"<section><h2>{html.escape(title)}</h2><table>{cells}</table></section>"


def matrix(title: str, columns: Mapping[str, Mapping[str, Any]]) -> str:
    """A table with a column for each of several things, and a row for each of their values."""
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
    return f'<div class="tables">{"".join(tables)}</div>'
