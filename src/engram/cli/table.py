"""Tables on a terminal, or JSON for programs."""

import json as jsonlib
import os
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

GAP = 2
"""spaces between two columns"""
PIPED = 10_000
"""columns of an output that is not a terminal, where every row stays on its line"""


def print_table(rows: list[dict[str, Any]], json: bool) -> None:
    """Rows as a table, or as JSON for programs."""
    if json:
        print(jsonlib.dumps(rows, ensure_ascii=False))
        return
    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPED
    texts = [{name: show(value) for name, value in row.items()} for row in rows]
    widths = {name: longest_word(texts, name) for name in (texts[0] if texts else ())}
    if sum(GAP + width for width in widths.values()) > console.width:
        print_stacked(console, texts, list(widths))
        return
    table = Table(box=None, header_style="bold", padding=(0, GAP, 0, 0))
    for i, (name, width) in enumerate(widths.items()):
        table.add_column(name, style="cyan" if i == 0 else None, no_wrap=i == 0, min_width=width)
    for text in texts:
        table.add_row(*(escape(text[name]) for name in widths))
    console.print(table)


def print_stacked(console: Console, texts: Sequence[dict[str, str]], names: Sequence[str]) -> None:
    """Print rows for a narrow terminal: the first cell, and the others wrapped below it."""
    first, *others = names
    for i, text in enumerate([{name: name for name in names}, *texts]):
        console.print(Text(text[first], style="cyan" if i else "bold"))
        rest = " · ".join(text[name] for name in others if text[name])
        if rest:
            console.print(Padding(Text(rest, overflow="fold"), (0, 0, 0, GAP)))


def show(value: Any) -> str:
    """A cell as text: yes or nothing for a condition."""
    return "yes" if value is True else "" if value is False else str(value)


def longest_word(texts: Sequence[dict[str, str]], name: str) -> int:
    """Length of the longest word of a column and its title; the first column is not wrapped."""
    whole = name == next(iter(texts[0]))
    cells = [name, *(text[name] for text in texts)]
    return max(len(word) for cell in cells for word in ([cell] if whole else cell.split() or [""]))
