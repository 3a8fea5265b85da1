"""What a page needs to let a person set the fields of a dataclass: kind, value, help, choices and range of each.

Nothing here is written down a second time. The help is the docstring below the field; the range is found by trying
which values the dataclass accepts, for its `__post_init__` knows.
"""

import ast
import dataclasses
import functools
import inspect
import math
import textwrap
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

import tyro

from engram.core.errors import EngramError
from engram.core.registry import Recipe, change, settings

LOWS = (-1, 0, 1, 2, 3)
HIGHS = (1, 2, 10)
SMALL, LARGE = 1e-9, 1e6


def controls(default: Any) -> list[dict[str, Any]]:
    """Every field that a person sets, nested ones by their own name, in order."""
    return [{**control(default, owner, field), "group": group} for group, owner, field in fields(default)]


def fields(default: Any, group: str = "") -> Iterator[tuple[str, Any, "dataclasses.Field[Any]"]]:
    """Group, owner and field; what follows from the data is left out."""
    hints = get_type_hints(type(default), include_extras=True)
    for field in dataclasses.fields(default):
        value = getattr(default, field.name)
        if dataclasses.is_dataclass(value):
            yield from fields(value, field.name)
        elif tyro.conf.Fixed not in getattr(hints[field.name], "__metadata__", ()):
            yield group, default, field


def control(default: Any, owner: Any, field: "dataclasses.Field[Any]") -> dict[str, Any]:
    value = getattr(owner, field.name)
    hint = get_type_hints(type(owner))[field.name]
    about = {
        "name": field.name,
        "flag": field.name.rstrip("_").replace("_", "-"),
        "help": helps(owner.__class__).get(field.name, ""),
        "value": list(value) if isinstance(value, tuple) else value,
        "kind": kind_of(value, hint),
    }
    if about["kind"] == "choice":
        about["options"] = choices(default, field.name, hint)
    if about["kind"] in ("int", "float"):
        about["low"], about["high"] = lowest(default, field.name, value), highest(default, field.name, value)
        about["positive"] = about["low"] == 0 and not accepts(default, field.name, 0)
    return about


def kind_of(value: Any, hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "choice"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, tuple):
        parts = value or get_args(hint)[:1]
        return "texts" if any(isinstance(part, str) or part is str for part in parts) else "numbers"
    return {int: "int", float: "float"}.get(type(value), "text")


def choices(default: Any, name: str, hint: Any) -> list[Any]:
    """The options that are accepted as all else stands, or all of them if none is but this."""
    options = list(get_args(hint))
    return [option for option in options if accepts(default, name, option)] or options


def lowest(default: Any, name: str, value: float) -> float | None:
    """The smallest whole number that is accepted, or 0 if anything above it is; none where there is no end."""
    if accepts(default, name, -1):
        return None
    if isinstance(value, float) and accepts(default, name, SMALL):
        return 0
    return next((n for n in LOWS if n <= value and accepts(default, name, n)), None)


def highest(default: Any, name: str, value: float) -> float | None:
    """The largest of a few numbers up to which values are accepted; none where there is no end."""
    if isinstance(value, int) or accepts(default, name, LARGE):
        return None
    fitting = [high for high in HIGHS if high >= value and accepts(default, name, math.nextafter(high, 0))]
    return max(fitting, default=None)


def accepts(default: Any, name: str, value: Any) -> bool:
    try:
        change(default, **{name: value})
    except (EngramError, ArithmeticError, ValueError, TypeError, IndexError):
        return False
    return True


@functools.cache
def helps(cls: Any) -> dict[str, str]:
    """The docstring below each field, those of base classes included."""
    found: dict[str, str] = {}
    for base in reversed(inspect.getmro(cls)):
        if not dataclasses.is_dataclass(base):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(tree, ast.ClassDef)
        for field, below in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                text = below.value if isinstance(below, ast.Expr) else None
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    found[field.target.id] = " ".join(text.value.split())
    return found


def recipe_from(cls: type[Recipe], preset: str, changes: dict[str, Any]) -> Recipe:
    """A recipe with what a page sends: lists for tuples, and only fields that a person sets."""
    default = cls.from_preset(preset)
    free = {field.name for _, _, field in fields(default)}
    for name in changes:
        if name not in free:
            raise EngramError(f"{cls.name} has no setting «{str(name)[:80]}».")
    made = {name: tuple(value) if isinstance(value, list) else value for name, value in changes.items()}
    return cls.from_preset(preset, **made)


def preset_values(cls: type[Recipe]) -> dict[str, dict[str, Any]]:
    """The settings of every preset, as far as people set them."""
    free = {field.name for _, _, field in fields(cls())}
    return {
        preset: {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in settings(cls.from_preset(preset)).items()
            if name in free
        }
        for preset in cls.all_presets()
    }
