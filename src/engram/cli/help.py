"""Help pages of the verbs."""

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from engram.core.config import Settings, controls

KINDS = {"int": "INT", "float": "FLOAT", "text": "TEXT", "numbers": "NUMBER …", "texts": "TEXT …", "path": "PATH"}


def wants_help(argv: Sequence[str]) -> bool:
    """Whether a command line asks for help."""
    return "-h" in argv or "--help" in argv


def print_help(usage: str, description: str, *groups: tuple[str, Iterable[dict[str, Any]]]) -> None:
    """Usage, description, and the flags in groups: name, kind, what it is, bounds and default."""
    console = Console(highlight=False)
    console.print(f"[bold]usage:[/bold] {escape(usage)}\n\n{escape(description)}")
    for title, group in groups:
        rows = list(group)
        if not rows:
            continue
        console.print(f"\n[bold]{escape(title)}[/bold]")
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(ratio=1)
        for row in rows:
            table.add_row(f"  {escape(flag(row))}", escape(text(row)))
        console.print(table)


def print_function_help(function: Callable[..., Any], verb: str) -> None:
    """Show the help of a verb whose arguments and flags are those of a function."""
    description, _, below = (inspect.getdoc(function) or "").partition("Args:\n")
    texts = dict(re.findall(r"^    (\w+): (.*(?:\n     .*)*)", below, re.MULTILINE))
    hints, arguments, flags, groups = get_type_hints(function), [], [], []
    for name, parameter in inspect.signature(function).parameters.items():
        about = {"help": " ".join(texts.get(name, "").split()), "value": parameter.default}
        if parameter.default is parameter.empty:
            shown = name.upper() + (" …" if get_origin(hints[name]) is tuple else "")
            arguments.append({**about, "flag": shown, "kind": "argument", "value": ""})
        elif isinstance(parameter.default, Settings):
            groups.append((name, controls(parameter.default)))
        else:
            flags.append({**about, "flag": name.rstrip("_").replace("_", "-"), **_kind(hints[name], parameter.default)})
    words = [f"engram {verb}", *(argument["flag"] for argument in arguments), *(["[flags]"] if flags or groups else [])]
    print_help(" ".join(words), description.strip(), ("arguments", arguments), ("flags", flags), *groups)


def _kind(hint: Any, default: Any) -> dict[str, Any]:
    """Return kind and options of a flag from its type, and its default, which is empty if it is None."""
    parts = [part for part in get_args(hint) if part is not NoneType]
    if get_origin(hint) is Literal:
        return {"kind": "choice", "options": parts}
    if get_origin(hint) is tuple:
        return {"kind": "texts", "value": list(default)}
    kinds = {bool: "bool", int: "int", float: "float", Path: "path"}
    base = parts[0] if default is None and parts else hint
    return {"kind": kinds.get(base, "text"), "value": "" if default is None else default}


def flag(control: dict[str, Any]) -> str:
    """A flag with what follows it: "--steps INT", or "--bias, --no-bias"."""
    name: str = control["flag"]
    if control["kind"] == "argument":
        return name
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
