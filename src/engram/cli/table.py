"""Tables on a terminal, or JSON for programs."""

import json as jsonlib
import os
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

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
    table = Table(box=None, header_style="bold", padding=(0, GAP, 0, 0))
    names = columns_that_fit(texts, console.width)
    for i, name in enumerate(names):
        table.add_column(name, style="cyan" if i == 0 else None, no_wrap=i == 0, min_width=longest_word(texts, name))
    for text in texts:
        table.add_row(*(escape(text[name]) for name in names))
    console.print(table)


def show(value: Any) -> str:
    """A cell as text: yes or nothing for a condition."""
    return "yes" if value is True else "" if value is False else str(value)


def columns_that_fit(texts: Sequence[dict[str, str]], width: int) -> list[str]:
    """Names of the columns that a terminal has room for without cutting words.

    Those of the longest words go first.
    """
    needed = {name: GAP + longest_word(texts, name) for name in (texts[0] if texts else ())}
    while sum(needed.values()) > width and len(needed) > 1:
        first, *others = needed
        del needed[max(others, key=needed.__getitem__)]
    return list(needed)


def longest_word(texts: Sequence[dict[str, str]], name: str) -> int:
    """Length of the longest word of a column and its title; the first column is not wrapped."""
    whole = name == next(iter(texts[0]))
    cells = [name, *(text[name] for text in texts)]
    return max(len(word) for cell in cells for word in ([cell] if whole else cell.split() or [""]))
