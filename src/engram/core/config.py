"""Settings: nested frozen dataclasses with bounds declared on their fields.

They are read from JSON and overridden by name.

    class Config(Settings):
        dropout: Annotated[float, Ge(0), Lt(1)] = 0.0
        \"""probability that a unit is dropped\"""

The bounds are those of `annotated_types`. Validation, the help of the command line and the controls of the lab all read
them from the field; the docstring below a field is its help text.
"""

import ast
import dataclasses
import functools
import inspect
import math
import operator
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt

from engram.core.errors import EngramError, shorten, unknown

T = TypeVar("T")
Bound = Ge | Gt | Le | Lt
DERIVED = "derived from the data"
FromData = Annotated[T, DERIVED]
"""A field of a model's configuration that follows from the data, so that nobody sets it by hand."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Base of every configuration: checks the bounds declared on its fields, and that no number is NaN."""

    def __post_init__(self) -> None:
        cls: Any = type(self)
        for name, value in vars(self).items():
            if isinstance(value, float) and math.isnan(value):
                check_finite(name, value)
        for name, limits in bounds(cls).items():
            check_bounds(name, getattr(self, name), limits)


@functools.cache
def bounds(cls: Any) -> dict[str, tuple[Bound, ...]]:
    """Bounds declared on the fields of a dataclass, by name.

    A field declared anew keeps those of its base class.
    """
    found: dict[str, tuple[Bound, ...]] = {}
    for base in reversed(inspect.getmro(cls)):
        if dataclasses.is_dataclass(base):
            for name, hint in get_type_hints(base, include_extras=True).items():
                if limits := tuple(limit for limit in metadata(hint) if isinstance(limit, Bound)):
                    found[name] = limits
    return found


def metadata(hint: Any) -> tuple[Any, ...]:
    """What `Annotated` says beside the type."""
    return getattr(hint, "__metadata__", ())


def check_bounds(name: str, value: Any, limits: tuple[Bound, ...]) -> None:
    """Refuse a number outside its bounds, also inside a tuple; NaN is outside all."""
    numbers = value if isinstance(value, tuple) else (value,)
    if not all(_within(number, limit) for number in numbers for limit in limits):
        raise EngramError(f"{name} must be {describe(limits)}, not {shorten(value)}.")


def _within(number: float, limit: Bound) -> bool:
    match limit:
        case Ge(low):
            return operator.ge(number, low)
        case Gt(low):
            return operator.gt(number, low)
        case Le(high):
            return operator.le(number, high)
        case Lt(high):
            return operator.lt(number, high)


def describe(limits: tuple[Bound, ...]) -> str:
    """Bounds in words: "at least 0 and below 1"."""
    words = {Ge: "at least {ge}", Gt: "above {gt}", Le: "at most {le}", Lt: "below {lt}"}
    return " and ".join(
        "finite" if limit == Lt(math.inf) else words[type(limit)].format(**dataclasses.asdict(limit))
        for limit in limits
    )


def low_high(limits: tuple[Bound, ...]) -> tuple[Any, Any]:
    """The lowest and the highest number within bounds or just outside them; None where there is no end."""
    low: Any = next(
        (limit.ge if isinstance(limit, Ge) else limit.gt for limit in limits if isinstance(limit, Ge | Gt)), None
    )
    high: Any = next(
        (limit.le if isinstance(limit, Le) else limit.lt for limit in limits if isinstance(limit, Le | Lt)), None
    )
    return low, None if high == math.inf else high


@functools.cache
def field_help(cls: Any) -> dict[str, str]:
    """The docstring below each field of a dataclass, those of its base classes included."""
    found: dict[str, str] = {}
    for base in reversed(inspect.getmro(cls)):
        if dataclasses.is_dataclass(base):
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
            assert isinstance(tree, ast.ClassDef)
            found.update(_docstrings(tree))
    return found


def _docstrings(tree: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, below in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            text = below.value if isinstance(below, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield field.target.id, " ".join(text.value.split())


def free_fields(default: Any, group: str = "") -> Iterator[tuple[str, Any, "dataclasses.Field[Any]"]]:
    """Fields that a person sets, nested ones too: the group, the owner and the field.

    Derived ones are left out.
    """
    hints = get_type_hints(type(default), include_extras=True)
    for field in dataclasses.fields(default):
        value = getattr(default, field.name)
        if dataclasses.is_dataclass(value):
            yield from free_fields(value, field.name)
        elif DERIVED not in metadata(hints[field.name]):
            yield group, default, field


def override(settings: Any, **changes: Any) -> Any:
    """A copy with some fields changed; fields of nested settings are named without a prefix."""
    own = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    inner = {name: value for name, value in own.items() if dataclasses.is_dataclass(value)}
    updates: dict[str, Any] = {}
    for name, value in changes.items():
        if name in own:
            updates[name] = value
            continue
        owners = [key for key, nested in inner.items() if name in flatten(nested)]
        if not owners:
            raise unknown("setting", name, flatten(settings))
        updates[owners[0]] = override(updates.get(owners[0], inner[owners[0]]), **{name: value})
    return replace(settings, updates)


def flatten(settings: Any) -> dict[str, Any]:
    """Every field with its value, nested ones by their own name."""
    flat: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        flat.update(flatten(value) if dataclasses.is_dataclass(value) else {field.name: value})
    return flat


def from_json(default: Any, values: Mapping[str, Any]) -> Any:
    """The dataclass like `default` with `values` as JSON keeps them; an error names what does not fit."""
    changes = {}
    for name, value in values.items():
        before = getattr(default, name, None)
        if dataclasses.is_dataclass(before) and isinstance(value, dict):
            value = from_json(before, value)
        elif isinstance(before, tuple) and isinstance(value, list):
            value = tuple(value)
        changes[name] = value
    return replace(default, changes)


def replace(default: Any, changes: Mapping[str, Any]) -> Any:
    """dataclasses.replace for values from outside: each must be a field's, and of its type."""
    hints = get_type_hints(type(default))
    names, checked = [field.name for field in dataclasses.fields(default)], {}
    for name, value in changes.items():
        if name not in names:
            raise unknown(f"field of {type(default).__qualname__}", name, names)
        if get_origin(hints[name]) is Literal and value not in get_args(hints[name]):
            raise unknown(name, str(value), get_args(hints[name]))
        before = getattr(default, name)
        if not _same_type(before, value):
            raise EngramError(f"{name} must be {_type_in_words(before)}, not {shorten(repr(value))}.")
        check_finite(name, value)
        checked[name] = float(value) if type(before) is float else value
    return dataclasses.replace(default, **checked)


def _same_type(before: Any, value: Any) -> bool:
    """Whether a value has the type of the one before; a whole number may stand for any number."""
    if isinstance(before, tuple) and isinstance(value, tuple):
        return all(_same_type(before[0], part) for part in value) if before else True
    return type(value) is type(before) or (type(before) is float and type(value) is int)


def _type_in_words(before: Any) -> str:
    """Return the type of a value in words: "a whole number", "a list, such as [128]"."""
    if isinstance(before, tuple):
        return f"a list, such as {list(before)}" if before else "a list"
    words = {bool: "True or False", int: "a whole number", float: "a number", str: "a text"}
    return words.get(type(before), type(before).__name__)


def check_finite(name: str, value: Any) -> None:
    """Refuse infinity, NaN and whole numbers beyond 64 bits, also inside a tuple."""
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, int) and abs(number) >= 2**63:
            raise EngramError(f"{name} must be a number below 2^63, and is not.")
        if isinstance(number, float) and not math.isfinite(number):
            raise EngramError(f"{name} must be a finite number, not {number}.")


def controls(default: Any) -> list[dict[str, Any]]:
    """What help and the lab know of every free field: name, flag, help, value, kind, options and bounds."""
    return [{**_control(default, owner, field), "group": group} for group, owner, field in free_fields(default)]


def _control(default: Any, owner: Any, field: "dataclasses.Field[Any]") -> dict[str, Any]:
    cls: Any = type(owner)
    value = getattr(owner, field.name)
    hint = get_type_hints(cls)[field.name]
    about = {
        "name": field.name,
        "flag": field.name.rstrip("_").replace("_", "-"),
        "help": field_help(cls).get(field.name, ""),
        "value": list(value) if isinstance(value, tuple) else value,
        "kind": _kind(value, hint),
    }
    if about["kind"] == "choice":
        about["options"] = _options(default, field.name, hint)
    if about["kind"] in ("int", "float"):
        declared = bounds(cls).get(field.name, ())
        low, high = low_high(declared)
        about |= {"low": low, "high": high, "positive": Gt(0) in declared, "bounds": describe(declared)}
    return about


def _kind(value: Any, hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "choice"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, tuple):
        parts = value or get_args(hint)[:1]
        return "texts" if any(isinstance(part, str) or part is str for part in parts) else "numbers"
    return {int: "int", float: "float"}.get(type(value), "text")


def _options(default: Any, name: str, hint: Any) -> list[Any]:
    """Return the options that are valid with the other settings' current values; all options if none is."""
    options = list(get_args(hint))
    return [option for option in options if _accepts(default, name, option)] or options


def _accepts(default: Any, name: str, value: Any) -> bool:
    try:
        override(default, **{name: value})
    except EngramError:
        return False
    return True
