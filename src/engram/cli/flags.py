"""Flags: read by tyro from the fields of settings and the signatures of functions.

Errors become one sentence.
"""

import contextlib
import dataclasses
import functools
import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from engram.cli.flag_errors import explain
from engram.cli.help import print_function_help, wants_help
from engram.core.config import Settings, bounds, check_finite, describe, field_help, flatten, free_fields
from engram.core.errors import EngramError, nearest

if TYPE_CHECKING:
    from tyro.constructors import StructConstructorSpec, StructTypeInfo


def call(function: Callable[..., int | None], argv: Sequence[str], verb: str) -> int:
    """Call a function with the flags of its signature, or show its help."""
    if wants_help(argv):
        print_function_help(function, verb)
        return 0

    @functools.wraps(function)
    def collect(*args: Any, **options: Any) -> tuple[Any, Any]:
        return args, options

    args, options = parse(collect, argv, f"engram {verb}")
    return function(*args, **options) or 0


def parse(target: Callable[..., Any], argv: Sequence[str], prog: str) -> Any:
    """Call `target` with the flags of its signature; tyro's boxed error becomes an EngramError."""
    import tyro

    config = (
        tyro.conf.OmitArgPrefixes,
        tyro.conf.FlagCreatePairsOff,
        tyro.conf.PositionalRequiredArgs,
        tyro.conf.PositionalMetavarFromFieldName,
    )
    registry = tyro.constructors.ConstructorRegistry()
    registry.struct_rule(settings_rule)
    error = io.StringIO()
    try:
        with contextlib.redirect_stderr(error), registry:
            return tyro.cli(target, args=list(argv), prog=prog, config=config)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise EngramError(explain(error.getvalue(), prog)) from None


def settings_rule(info: "StructTypeInfo") -> "StructConstructorSpec | None":
    """How tyro reads settings: without derived fields, with bounds in the help, and `from_` as --from."""
    import tyro

    if not isinstance(info.default, Settings):
        return None
    default: Any = info.default
    cls: Any = type(default)
    texts, limits, hints = field_help(cls), bounds(cls), get_type_hints(cls)
    free = {field.name for _, owner, field in free_fields(default) if owner is default}
    specs = []
    for field in dataclasses.fields(default):
        value, hint = getattr(default, field.name), hints[field.name]
        if field.name in free or dataclasses.is_dataclass(value):
            text = texts.get(field.name, "")
            if field.name in limits:
                text += f" ({describe(limits[field.name])})"
            if field.name.endswith("_"):
                hint = Annotated[hint, tyro.conf.arg(name=field.name.rstrip("_"))]
            specs.append(tyro.constructors.StructFieldSpec(field.name, hint, value, text))

    def build(**values: Any) -> Any:
        for name, value in values.items():
            check_finite(name, value)
        return dataclasses.replace(default, **values)

    return tyro.constructors.StructConstructorSpec(build, tuple(specs))


def parse_settings(groups: Mapping[str, Any], argv: Sequence[str], prog: str) -> dict[str, Any]:
    """Settings by name, with the flags of `argv` on top."""

    def arguments(**parsed: Any) -> dict[str, Any]:
        return parsed

    known = [name.rstrip("_") for default in groups.values() for name in flatten(default)]
    for word in argv:
        name = word.partition("=")[0].removeprefix("--").replace("-", "_")
        if re.match(r"--[a-z]", word) and name not in known and name.removeprefix("no_") not in known:
            flags = [f"--{one.replace('_', '-')}" for one in known]
            raise EngramError(f"{prog} has no flag {word.partition('=')[0]}.{nearest(word, flags)}")
    set_signature(arguments, groups)
    parsed: dict[str, Any] = parse(arguments, argv, prog)
    return parsed


def set_signature(function: Any, groups: Mapping[str, Any]) -> None:
    """Set the function's signature to one keyword-only argument per group, which tyro turns into flags."""
    import inspect

    kind = inspect.Parameter.KEYWORD_ONLY
    function.__signature__ = inspect.Signature(
        [inspect.Parameter(name, kind, default=value, annotation=type(value)) for name, value in groups.items()]
    )
    function.__annotations__ = {name: type(value) for name, value in groups.items()}
