"""A recipe: one complete, named experiment."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Protocol, Self, TypeVar

import torch
from annotated_types import Ge
from torch import Tensor, nn

from engram import PARTS
from engram.core.config import Settings, override
from engram.core.errors import EngramError, unknown
from engram.core.learner import Batch, Learner, M
from engram.core.seeding import check_seed

D = TypeVar("D")


class BatchIterator(Protocol):
    """Endless batches with a position that can be saved."""

    def __next__(self) -> Batch: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class Sample:
    """What a model generates or predicts: arrays for further use, text to read and an image to see."""

    arrays: Mapping[str, Tensor]
    text: str
    image: Tensor | None = None
    """uint8, height × width × 4: red, green, blue and opacity"""
    streams_text: bool = False
    """whether the text is generated token by token and can be read as it comes"""
    rows: Sequence[Mapping[str, Any]] = ()
    """what the text says of each sample, as fields; of images and points, only what is known beside the arrays"""


@dataclass(frozen=True, kw_only=True)
class InspectArgs(Settings):
    """Flags of `engram inspect` for a recipe that declares no others."""

    item: Annotated[int, Ge(0)] = 0
    """index of the test sample, or of the time step of a simulation"""


@dataclass(frozen=True, kw_only=True)
class SampleArgs(Settings):
    """Flags of `engram sample` beside --count and --seed; a recipe may declare more."""


@dataclass(frozen=True)
class SampleRequest:
    """Number of samples, random generator and flags of `engram sample`."""

    count: int
    generator: torch.Generator
    args: Any = None
    """the recipe's own flags of `engram sample`"""
    on_text: Callable[[str], None] = lambda text: None
    """called with each piece of text as soon as it is generated"""


@dataclass(frozen=True, kw_only=True)
class Recipe(Settings, ABC, Generic[M, D]):
    """One complete experiment: its data, model, learner, metrics, figures and samples; immutable.

    The fields are the flags of the command line, the controls of the lab and the content of `recipe.json`.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    Model: ClassVar[type[nn.Module]]
    """class of its model, whose `Config` rebuilds it"""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """overrides of the defaults, by name ("small" is the defaults; every recipe has "tiny", which runs in seconds)"""
    best: ClassVar[tuple[str, str]] = ("valid_loss", "min")
    """metric for early stopping, and whether to minimize ("min") or maximize ("max") it"""
    learns: ClassVar[bool] = True
    """whether it learns, or is only simulated"""
    unit: ClassVar[str] = "images"
    """unit of throughput, such as images or tokens"""
    SampleArgs: ClassVar[type] = SampleArgs
    """flags of `engram sample`"""
    InspectArgs: ClassVar[type] = InspectArgs
    """flags of `engram inspect`"""
    samples: ClassVar[int] = 16
    """default number of samples"""

    preset: str = "small"
    """named set of defaults; explicit flags override it"""
    data: str = ""
    """name of a data set (`engram data list`), or path to your own data"""
    steps: Annotated[int, Ge(1)] = 1000
    """number of training steps"""
    minutes: Annotated[float, Ge(0)] = 0.0
    """stop after this many minutes even if steps remain; 0 means no limit"""
    eval_every: Annotated[int, Ge(1)] = 200
    """steps between evaluations; each is followed by a checkpoint"""
    patience: Annotated[int, Ge(0)] = 0
    """early stopping: evaluations without improvement before training stops; 0 disables"""
    keep_checkpoints: Annotated[int, Ge(0)] = 0
    """checkpoints to keep, spread evenly over the run; 0 keeps the newest two"""
    seed: int = 0
    """seed of all random number generators"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.preset not in self.all_presets():
            raise unknown(f"preset of {self.name}", self.preset, self.all_presets())
        check_seed(self.seed)

    @classmethod
    def part(cls) -> str:
        """Return the package of the recipe, such as foundations."""
        return next((name for name in cls.__module__.split(".") if name in PARTS), cls.__module__.partition(".")[0])

    @classmethod
    def all_presets(cls) -> dict[str, Mapping[str, Any]]:
        return {"small": {}, **cls.presets}

    @classmethod
    def from_preset(cls, preset: str, **changes: Any) -> Self:
        """Return the preset with `changes` applied; nested fields by their flag names."""
        presets = cls.all_presets()
        if preset not in presets:
            raise unknown(f"preset of {cls.name}", preset, presets)
        return override(cls(preset=preset), **{**presets[preset], **changes})

    @property
    @abstractmethod
    def items_per_step(self) -> float:
        """How many of `unit` one step processes."""

    def unit_of(self, data: D) -> str:
        """Return the unit of these data: the recipe's own, or rows of a table."""
        return self.unit if getattr(data, "encoder", None) is None else "rows"

    def best_metric(self, metrics: Mapping[str, Any]) -> tuple[str, str]:
        """Return `best`, or the validation loss where it is not among the metrics, as in a regression."""
        return self.best if self.best[0] in metrics else ("valid_loss", "min")

    def activation_bytes(self, data: D) -> int:
        """Lower bound of the bytes of a training step's activations; 0 where nothing is known."""
        return 0

    @abstractmethod
    def load(self) -> D:
        """Load the data."""

    def reload(self, folder: Path) -> D:
        """Load the data of an existing run; what `files` left in its folder is read from there."""
        return self.load()

    def refuse_data(self) -> None:
        """Refuse --data, for a recipe that reads none."""
        if self.data != "none":
            raise EngramError(f"{self.name} needs no data, and {self.data} was given.")

    def files(self, data: D) -> Mapping[str, bytes]:
        """Further files of the run folder by name: a tokenizer, for instance."""
        return {}

    @abstractmethod
    def learner(self, data: D) -> Learner[M]:
        """Build a fresh model and its learner."""

    @abstractmethod
    def batches(self, data: D) -> BatchIterator:
        """The training batches."""

    @abstractmethod
    def evaluate(self, learner: Learner[M], data: D, split: str) -> dict[str, float]:
        """Metrics on a split ("valid" during training, "test" at the end)."""

    @abstractmethod
    def figures(self, learner: Learner[M], data: D) -> Iterator[Any]:
        """Figures of the report, beside the learning curves that every run has."""

    @abstractmethod
    def trace(self, model: M, data: D, item: int) -> str:
        """Run the model on one test item so that an active `watch` records it; return a one-line description."""

    def inspect(self, model: M, data: D, args: Any) -> tuple[str, list[Any]] | None:
        """A description of the input and figures of what happens inside; None shows the recorded taps."""
        return None

    @abstractmethod
    def sample(self, learner: Learner[M], data: D, request: SampleRequest) -> Sample:
        """Draw samples from the model, or let it predict."""


def check_item(item: int, size: int) -> None:
    """Refuse an index beyond the test split."""
    if not 0 <= item < size:
        raise EngramError(f"item must be from 0 to {size - 1}, the size of the test split, not {item}.")


def choose_items(count: int, size: int, generator: torch.Generator) -> Tensor:
    """Random indices of a split; none comes again before all have come."""
    rounds = [torch.randperm(size, generator=generator) for _ in range(max(1, -(-count // size)))]
    return torch.cat(rounds)[:count]


AnyRecipe = Recipe[Any, Any]
"""a recipe of any model and data"""
