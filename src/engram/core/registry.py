"""The catalogue: every recipe, by name.

A recipe is one complete, named experiment. Its fields are its defaults, the flags of the command line, the controls
of the lab and the documentation, said once; its methods name the data, build the model and the learner, evaluate,
and draw. Everything that lists systems reads the catalogue.
"""

import dataclasses
import importlib
import math
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Protocol,
    Self,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import torch
import tyro
from torch import Tensor, nn

from engram.core.errors import EngramError, unknown
from engram.core.learner import Batch, Learner
from engram.core.seeding import check_seed

T = TypeVar("T")
FromData = Annotated[T, tyro.conf.Fixed]
"""A field of a model's configuration that follows from the data, so that nobody sets it by hand."""


class Source(Protocol):
    """What a learner is fed: batches without end, with a position that can be saved."""

    def __next__(self) -> Batch: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class Sample:
    """What a model makes when asked: arrays for further use, a line to read and a picture to see."""

    arrays: Mapping[str, Tensor]
    text: str
    image: Tensor | None = None
    """uint8, height × width × 4: red, green, blue and opacity"""
    aloud: bool = False
    """whether the text is the thing itself, to be read as soon as it is there"""


@dataclass(frozen=True, kw_only=True)
class Item:
    """What `engram look` looks at, where a recipe knows nothing better."""

    item: int = 0
    """which one of the test data, or which moment of a simulation"""


@dataclass(frozen=True, kw_only=True)
class Nothing:
    """What `engram sample` may be asked beside how many, where a recipe knows nothing better."""


@dataclass(frozen=True)
class Request:
    """What a model is asked to make."""

    count: int
    generator: torch.Generator
    ask: Any = None
    """the recipe's own flags of `engram sample`"""
    say: Callable[[str], None] = lambda text: None
    """told of text as it is made, for those who want to read along"""


@dataclass(frozen=True, kw_only=True)
class Recipe(ABC):
    """One complete experiment. A subclass adds its own fields and says what to do; it holds nothing that changes."""

    name: ClassVar[str]
    title: ClassVar[str]
    kind: ClassVar[str]
    """the part of the course: foundations, neurons, memory, sequences, generation, robustness, transformers"""
    notes: ClassVar[str]
    """the section of the lecture notes"""
    Model: ClassVar[type[nn.Module]]
    """the class of its model, whose `Config` rebuilds it"""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """named changes to the defaults, which are «small»; every recipe has «tiny», which takes seconds"""
    best: ClassVar[tuple[str, str]] = ("valid_loss", "min")
    """the metric that early stopping goes by, and whether it should be small («min») or large («max»)"""
    learns: ClassVar[bool] = True
    """whether it learns, or only time passes"""
    unit: ClassVar[str] = "images"
    """what a step gets through"""
    Ask: ClassVar[type] = Nothing
    """flags of `engram sample`"""
    Subject: ClassVar[type] = Item
    """flags of `engram look`"""
    samples: ClassVar[int] = 16
    """how many samples are made if nobody says how many"""

    preset: str = "small"
    """named set of defaults; flags given beside it win"""
    data: str = ""
    """name of a data set (`engram data list`) or path of one's own"""
    steps: int = 1000
    """how many steps to take"""
    minutes: float = 0.0
    """stop after this much time, whatever the step; 0 means no limit"""
    every: int = 200
    """steps between two evaluations, each followed by a checkpoint"""
    patience: int = 0
    """stop after this many evaluations without a better one, and keep the best weights; 0 means never"""
    keep: int = 0
    """checkpoints on the way that are kept to look back at, spread evenly; 0 keeps only the newest two"""
    seed: int = 0
    """number that all randomness starts from"""

    def __post_init__(self) -> None:
        if self.preset not in self.all_presets():
            raise unknown(f"preset of {self.name}", self.preset, self.all_presets())
        for field in ("steps", "every"):
            if getattr(self, field) < 1:
                raise EngramError(f"{field} must be at least 1, not {getattr(self, field)}.")
        for field in ("minutes", "patience", "keep"):
            if not getattr(self, field) >= 0:
                raise EngramError(f"{field} must not be negative, and is {getattr(self, field)}.")
        check_seed(self.seed)

    @classmethod
    def all_presets(cls) -> dict[str, Mapping[str, Any]]:
        return {"small": {}, **cls.presets}

    @classmethod
    def from_preset(cls, preset: str, **changes: Any) -> Self:
        """The defaults of a preset, with `changes` on top: a nested field is named as the command line names it."""
        presets = cls.all_presets()
        if preset not in presets:
            raise unknown(f"preset of {cls.name}", preset, presets)
        return change(cls(preset=preset), **{**presets[preset], **changes})

    @property
    @abstractmethod
    def per_step(self) -> float:
        """How many of `unit` one step gets through."""

    @abstractmethod
    def load(self) -> Any:
        """The data."""

    def reload(self, folder: Path) -> Any:
        """The data of a run that is opened again; what the recipe left in its folder is taken from there."""
        return self.load()

    def must_need_nothing(self) -> None:
        """Refuse data, for a recipe that reads none."""
        if self.data != "none":
            raise EngramError(f"{self.name} needs no data, and {self.data} was given.")

    def files(self, data: Any) -> Mapping[str, bytes]:
        """What else belongs into the run folder, by name: a tokeniser, for instance."""
        return {}

    @abstractmethod
    def learner(self, data: Any) -> Learner:
        """A fresh model and how it learns."""

    @abstractmethod
    def batches(self, data: Any) -> Source:
        """What the learner is fed."""

    @abstractmethod
    def evaluate(self, learner: Learner, data: Any, split: str) -> dict[str, float]:
        """How good the model is on a split («valid» while it learns, «test» at the end)."""

    @abstractmethod
    def figures(self, learner: Learner, data: Any) -> Iterator[Any]:
        """The pictures of the report, beside the learning curves that every run has."""

    @abstractmethod
    def probe(self, model: nn.Module, data: Any, item: int) -> str:
        """Pass one item through the model, for whoever watches, and say in a line what it was."""

    def look(self, model: nn.Module, data: Any, subject: Any) -> tuple[str, list[Any]] | None:
        """A line that says what is looked at, and views of it; None where the taps themselves are the best view."""
        return None

    @abstractmethod
    def sample(self, learner: Learner, data: Any, request: Request) -> Sample:
        """Let the model make or say something."""


def must_be_item(item: int, size: int) -> None:
    """Refuse a number that no item of the test split has."""
    if not 0 <= item < size:
        raise EngramError(f"item must be from 0 to {size - 1}, the size of the test split, not {item}.")


def change(recipe: Any, **changes: Any) -> Any:
    """A copy with some fields changed, also those of nested configurations, which are named without a prefix."""
    own = {field.name: getattr(recipe, field.name) for field in dataclasses.fields(recipe)}
    inner = {name: value for name, value in own.items() if dataclasses.is_dataclass(value)}
    updates: dict[str, Any] = {}
    for name, value in changes.items():
        if name in own:
            updates[name] = value
            continue
        owners = [key for key, config in inner.items() if name in settings(config)]
        if not owners:
            raise unknown("setting", name, settings(recipe))
        updates[owners[0]] = change(updates.get(owners[0], inner[owners[0]]), **{name: value})
    return replaced(recipe, updates)


def settings(recipe: Any) -> dict[str, Any]:
    """Every field with its value, nested ones by their own name: what a person sets."""
    flat: dict[str, Any] = {}
    for field in dataclasses.fields(recipe):
        value = getattr(recipe, field.name)
        flat.update(settings(value) if dataclasses.is_dataclass(value) else {field.name: value})
    return flat


def from_json(default: Any, values: Mapping[str, Any]) -> Any:
    """The dataclass like `default` with `values` as JSON keeps them; whatever does not fit is named."""
    changes = {}
    for name, value in values.items():
        was = getattr(default, name, None)
        if dataclasses.is_dataclass(was) and isinstance(value, dict):
            value = from_json(was, value)
        elif isinstance(was, tuple) and isinstance(value, list):
            value = tuple(value)
        changes[name] = value
    return replaced(default, changes)


def replaced(default: Any, changes: Mapping[str, Any]) -> Any:
    """dataclasses.replace for values that come from outside: each must be a field's, and of its kind."""
    hints = get_type_hints(type(default))
    names, taken = [field.name for field in dataclasses.fields(default)], {}
    for name, value in changes.items():
        if name not in names:
            raise unknown(f"field of {type(default).__qualname__}", name, names)
        if get_origin(hints[name]) is Literal and value not in get_args(hints[name]):
            raise unknown(name, str(value), get_args(hints[name]))
        was = getattr(default, name)
        if not fits(was, value):
            kind = type(was).__name__
            raise EngramError(f"{name} of {type(default).__qualname__} must be {kind}, and {value!r} was found.")
        must_be_moderate(name, value)
        taken[name] = float(value) if type(was) is float else value
    return dataclasses.replace(default, **taken)


def fits(was: Any, value: Any) -> bool:
    """Whether a value is of the kind of the one before; a whole number may stand for any number."""
    if isinstance(was, tuple) and isinstance(value, tuple):
        return all(fits(was[0], part) for part in value) if was else True
    return type(value) is type(was) or (type(was) is float and type(value) is int)


def must_be_moderate(name: str, value: Any) -> None:
    """Refuse whole numbers that nothing counts so far, and what is no number, also inside of a tuple."""
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, int) and abs(number) >= 2**63:
            raise EngramError(f"{name} must be a number below 2^63, and is not.")
        if isinstance(number, float) and not math.isfinite(number):
            raise EngramError(f"{name} must be a finite number, not {number}.")


_catalogue: dict[str, type[Recipe]] = {}


def recipe(cls: type[Recipe]) -> type[Recipe]:
    """Enter a recipe into the catalogue."""
    if cls.name in _catalogue:
        raise ValueError(f"two recipes are called {cls.name}")
    _catalogue[cls.name] = cls
    return cls


def catalogue() -> dict[str, type[Recipe]]:
    """All recipes by name. They live at the top of the house and enter themselves when they are imported."""
    rooms = importlib.import_module("engram.recipes")
    for module in pkgutil.iter_modules(rooms.__path__):
        importlib.import_module(f"engram.recipes.{module.name}")
    return dict(sorted(_catalogue.items()))


def find(name: str) -> type[Recipe]:
    """The recipe of that name."""
    recipes = catalogue()
    if name not in recipes:
        raise unknown("recipe", name, recipes)
    return recipes[name]
