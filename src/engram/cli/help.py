"""Help pages of the verbs whose flags depend on a recipe."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

KINDS = {"int": "INT", "float": "FLOAT", "text": "TEXT", "numbers": "NUMBER …", "texts": "TEXT …"}


def wants_help(argv: Sequence[str]) -> bool:
    """Whether a command line asks for help."""
    return "-h" in argv or "--help" in argv


def print_help(usage: str, description: str, *groups: tuple[str, Iterable[dict[str, Any]]]) -> None:
    """Usage, description, and the flags in groups: name, kind, what it is, bounds and default."""
    console = Console(highlight=False)
    console.print(f"[bold]usage:[/bold] {escape(usage)}\n\n{escape(description)}")
    for title, controls in groups:
        rows = list(controls)
        if not rows:
            continue
        console.print(f"\n[bold]{escape(title)}[/bold]")
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(ratio=1)
        for row in rows:
            table.add_row(f"  {escape(flag(row))}", escape(text(row)))
        console.print(table)


def flag(control: dict[str, Any]) -> str:
    """A flag with what follows it: "--steps INT", or "--bias, --no-bias"."""
    name = control["flag"]
    if control["kind"] == "bool":
        return f"--no-{name}" if control["value"] else f"--{name}"
    return f"--{name} {KINDS.get(control['kind'], '')}".rstrip()


def text(control: dict[str, Any]) -> str:
    """What a flag is, its options or bounds, and its default."""
    value = control["value"]
    shown = " ".join(map(str, value)) if isinstance(value, list) else repr(value) if value == "\n" else str(value)
    parts = [f"turn off: {control['help']}" if control["value"] is True else control["help"]]
    if control["kind"] == "choice":
        parts.append("{" + "|".join(map(str, control["options"])) + "}")
    if control.get("bounds"):
        parts.append(f"({control['bounds']})")
    if control["kind"] != "bool" and shown and value != Path():
        parts.append(f"[default: {shown}]")
    return " ".join(parts)


def grouped(controls: Iterable[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Controls by their group, those of the recipe itself first."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for control in controls:
        groups.setdefault(control["group"] or "recipe", []).append(control)
    return list(groups.items())
