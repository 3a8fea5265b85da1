"""engram list: every recipe."""

from collections.abc import Sequence

from engram.cli.catalog import catalog
from engram.cli.flags import call
from engram.cli.table import print_table


def command(argv: Sequence[str]) -> int:
    return call(list_recipes, argv, "list")


def list_recipes(json: bool = False) -> None:
    """Every recipe: name, title, part of the course, data.

    Args:
        json: print JSON instead of a table
    """
    rows = [
        {"name": name, "title": about["title"], "part": about["part"], "data": about["data"]}
        for name, about in catalog().items()
    ]
    print_table(rows, json)
