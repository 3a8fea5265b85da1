"""Search space of a sweep: the settings of a recipe that are varied, and their values.

    1e-4:1e-2      a range; on a logarithmic scale if its end is at least 10 times its beginning
    64,128,256     choices

A range of a setting that is an integer holds integers. A setting that is a list of numbers takes its choices with an x
between the numbers: 128,256x128 are one hidden layer of 128 units, or two of 256 and 128.
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from engram.core.config import bounds, check_bounds, controls, free_fields, from_json
from engram.core.errors import EngramError, unknown
from engram.core.recipe import AnyRecipe

LOG_RATIO = 10
"""end of a range divided by its beginning, from which on it is searched on a logarithmic scale"""
DIGITS = 4
"""significant digits of the values sampled from a range, so that commands can be read"""
MAX_COMBINATIONS = 1000
"""combinations in which a value is tried before it is refused"""
MAX_SIZE = 10_000
"""combinations of a space that counts as finite"""
FIXED = ("preset", "data")
"""settings by which trials could not be compared"""
SIZES = re.compile(r"\d+(x\d+)*")


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`."""

    low: float
    high: float
    integer: bool
    is_tuple: bool = False
    """whether the setting is a list, of which this is the only number"""

    @property
    def log(self) -> bool:
        """Whether it is searched on a logarithmic scale."""
        return self.low > 0 and self.high >= LOG_RATIO * self.low * (1 - 1e-9)

    @property
    def ends(self) -> tuple[Any, ...]:
        return self.low, self.high

    @property
    def size(self) -> float:
        """How many values there are."""
        return self.high - self.low + 1 if self.integer else math.inf

    def value(self, param: Any) -> Any:
        """The value of the setting for a number that was sampled."""
        return (param,) if self.is_tuple else param

    def round(self, param: float) -> float:
        """A number of few digits near a sampled one."""
        if self.integer:
            return param
        return min(max(float(f"{param:.{DIGITS}g}"), self.low), self.high)


@dataclass(frozen=True)
class Choices:
    """One of several values, each of which is sampled as its text."""

    values: Mapping[str, Any]

    @property
    def ends(self) -> tuple[str, ...]:
        return tuple(self.values)

    @property
    def size(self) -> float:
        """How many values there are."""
        return len(self.values)

    def value(self, param: str) -> Any:
        """The value of the setting for a text that was sampled."""
        return self.values[param]

    def round(self, param: str) -> str:
        """The text itself."""
        return param


Parameter = Range | Choices


class Space:
    """Ranges and choices by the names of a recipe's settings; refuses what the recipe does not accept."""

    def __init__(self, recipe: AnyRecipe, texts: Mapping[str, str]) -> None:
        if not texts:
            raise EngramError(
                f"A sweep of {recipe.name} needs a setting to vary: a range such as --lr 1e-4:1e-2, or choices such as "
                "--batch 32,64,128."
            )
        self.recipe, self.texts = recipe, dict(texts)
        known = {control["name"]: control for control in controls(recipe)}
        owners = {field.name: owner for _, owner, field in free_fields(recipe)}
        self.parameters: dict[str, Parameter] = {}
        for name, text in texts.items():
            if name not in known:
                raise unknown(f"setting of {recipe.name}", name, known)
            self.parameters[name] = parse(text, known[name], owners[name])
        self._check_combinations()

    def settings(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The values of the settings for sampled parameters."""
        return {name: parameter.value(params[name]) for name, parameter in self.parameters.items()}

    def apply(self, params: Mapping[str, Any]) -> AnyRecipe:
        """The recipe of a trial."""
        recipe: AnyRecipe = from_json(self.recipe, nest(self.recipe, self.settings(params)))
        return recipe

    @property
    def finite(self) -> bool:
        """Whether there are so few combinations of values that all of them can be tried."""
        return math.prod(parameter.size for parameter in self.parameters.values()) <= MAX_SIZE

    def combinations(self) -> Iterator[dict[str, Any]]:
        """All combinations of values that the recipe accepts, as they may be sampled from a finite space."""
        values = [
            range(int(one.low), int(one.high) + 1) if isinstance(one, Range) else one.ends
            for one in self.parameters.values()
        ]
        for combination in itertools.product(*values):
            params = dict(zip(self.parameters, combination, strict=True))
            if self.accepts(params):
                yield params

    def accepts(self, params: Mapping[str, Any]) -> bool:
        """Whether the recipe accepts these values beside each other."""
        try:
            self.apply(params)
        except EngramError:
            return False
        return True

    def _check_combinations(self) -> None:
        """Refuse a value that the recipe accepts beside none of the others."""
        names = list(self.parameters)
        for name, parameter in self.parameters.items():
            for end in parameter.ends:
                others = [(end,) if other == name else self.parameters[other].ends for other in names]
                refusal = None
                for combination in itertools.islice(itertools.product(*others), MAX_COMBINATIONS):
                    try:
                        self.apply(dict(zip(names, combination, strict=True)))
                    except EngramError as error:
                        refusal = refusal or error
                    else:
                        break
                else:
                    assert refusal is not None
                    raise refusal


def nest(settings: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by names of fields as mappings nested like the settings, to be checked together."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            found |= {field.name: inner} if (inner := nest(value, values)) else {}
        elif field.name in values:
            found[field.name] = values[field.name]
    return found


def spell(value: Any) -> str:
    """The text of a range given as a tuple of two numbers, or of choices given as a list.

    A text stays as it is.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, tuple) and len(value) == 2:
        return f"{value[0]}:{value[1]}"
    if isinstance(value, list):
        return ",".join("x".join(map(str, one)) if isinstance(one, tuple | list) else str(one) for one in value)
    raise EngramError(f"A sweep varies a setting over (low, high) or over a list of choices, not over {value!r}.")


def varies(text: str, control: Mapping[str, Any]) -> bool:
    """Whether what follows a flag is a range or choices, rather than one value."""
    if control["name"] in FIXED or text.startswith("--"):
        return False
    return "," in text or (":" in text and control["kind"] in ("int", "float", "numbers"))


def parse(text: str, control: Mapping[str, Any], owner: Any) -> Parameter:
    """The range or the choices that a text means for a setting, within the bounds of its field."""
    cls: Any = type(owner)
    flag, limits = f"--{control['flag']}", bounds(cls).get(control["name"], ())
    found: Parameter
    if control["name"] in FIXED or control["kind"] == "texts":
        raise EngramError(f"{flag} cannot be varied in a sweep: give one value.")
    if ":" in text and control["kind"] in ("int", "float", "numbers"):
        found = parse_range(text, control, owner)
        ends: tuple[Any, ...] = found.ends
    else:
        labels = [label.strip() for label in text.split(",")]
        if "" in labels or len(labels) < 2:
            raise EngramError(f"{flag} takes a range LOW:HIGH or choices A,B,C, not {text}.")
        values = {label: parse_value(label, control, owner) for label in labels}
        found, ends = Choices(values), tuple(values.values())
        if len(set(ends)) < len(labels):
            raise EngramError(f"{flag} names a choice twice: {text}.")
    for value in ends:
        check_bounds(flag, value, limits)
    return found


def parse_range(text: str, control: Mapping[str, Any], owner: Any) -> Range:
    """The range LOW:HIGH."""
    flag, kind = f"--{control['flag']}", number_type(control, owner)
    ends = text.split(":")
    try:
        low, high = (kind(end) for end in ends)
    except ValueError:
        raise EngramError(
            f"{flag} takes a range LOW:HIGH of two {'integers' if kind is int else 'numbers'}, not {text}."
        ) from None
    if not (math.isfinite(low) and math.isfinite(high)):
        raise EngramError(f"{flag} takes a range of finite numbers, not {text}.")
    if low >= high:
        raise EngramError(f"{flag} {text} is empty: LOW must be below HIGH.")
    return Range(low, high, kind is int, control["kind"] == "numbers")


def parse_value(label: str, control: Mapping[str, Any], owner: Any) -> Any:
    """One choice."""
    flag, kind = f"--{control['flag']}", control["kind"]
    if kind == "text":
        return label
    if kind in ("choice", "bool"):
        options = {str(option): option for option in control.get("options", ())} or {"true": True, "false": False}
        if label not in options:
            raise unknown(f"choice of {flag}", label, options)
        return options[label]
    number = number_type(control, owner)
    parts = label.split("x") if kind == "numbers" and SIZES.fullmatch(label) else [label]
    try:
        numbers = tuple(number(part) for part in parts)
    except ValueError:
        numbers = (math.nan,)
    if not all(map(math.isfinite, numbers)):
        raise EngramError(f"{flag} takes {'integers' if number is int else 'numbers'}, not {label}.")
    return numbers if kind == "numbers" else numbers[0]


def number_type(control: Mapping[str, Any], owner: Any) -> type[int] | type[float]:
    """int or float: the type of a setting, or of the numbers of a list."""
    hint = get_type_hints(type(owner))[control["name"]]
    return int if int in (hint, *get_args(hint)) else float
