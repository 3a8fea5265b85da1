"""engram data: list and download data sets."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from engram.cli.flags import call
from engram.cli.table import print_table
from engram.core.errors import unknown


def command(argv: Sequence[str]) -> int:
    actions: dict[str, Callable[..., None]] = {"list": list_data, "get": get_data}
    if not argv or argv[0] in ("-h", "--help"):
        print("engram data list [--json]             every data set, and whether it is on this machine")
        print("engram data get NAME [--file FILE]    download one now, or read it from a local archive")
        return 0
    if argv[0] not in actions:
        raise unknown("action of `engram data`", argv[0], actions)
    return call(actions[argv[0]], argv[1:], f"data {argv[0]}")


def list_data(json: bool = False) -> None:
    """Every data set.

    Args:
        json: print JSON instead of a table
    """
    from engram import data as datasets

    rows = []
    for name in datasets.list_names():
        info = datasets.get_info(name)
        row: dict[str, Any] = {"name": name, "kind": info.kind, "title": info.title, "license": info.license}
        if json:
            row |= {"source": info.source, "sha256": info.sha256, "columns": dict(info.columns)}
        sizes: Any = dict(info.sizes) if json else ", ".join(f"{k} {v:,}" for k, v in info.sizes.items())
        rows.append(row | {"sizes": sizes, "here": datasets.is_cached(name)})
    print_table(rows, json)


def get_data(name: str, file: Path | None = None) -> None:
    """Download a data set into the cache.

    Args:
        name: name of the data set
        file: an archive that you already have, instead of its sources
    """
    from engram import data as datasets

    print(datasets.download(name, file))
