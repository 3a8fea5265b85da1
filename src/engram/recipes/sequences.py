"""Recurrent networks on texts, tasks of memory, pictures read row by row and time series: RNN, LSTM, GRU, minGRU."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from engram import data as datasets
from engram.core.errors import EngramError
from engram.core.learner import Batch, Descent, Gradient, Learner, Metrics
from engram.core.registry import Item, Recipe, Request, Sample, Source, recipe
from engram.core.seeding import generator
from engram.core.tap import watch
from engram.data.tokeniser import Kind
from engram.figures import memory
from engram.figures.figure import Figure
from engram.layers.recurrent import CELLS
from engram.layers.through_time import gradient_by_distance
from engram.models.recurrent import Recurrent
from engram.recipes.continuing import Writing
from engram.recipes.language import MUON
from engram.recipes.sequence_tasks import Answers, Series, Task, Text

FARTHEST = 200
"""steps back that the reach of gradients is drawn for"""
REACH_WIDTH = 32
"""units of the cells that are compared there"""


@dataclass(frozen=True, kw_only=True)
class Sequences(Recipe):
    """A network that reads step by step and remembers in the state of its cells."""

    kind: ClassVar[str] = "sequences"
    Model: ClassVar[type[nn.Module]] = Recurrent
    unit: ClassVar[str] = "sequences"
    samples: ClassVar[int] = 1
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "tiny": {"width": 16, "layers": 1, "context": 16, "batch": 4, "steps": 20, "every": 10},
        "full": {"width": 384, "layers": 3, "context": 256, "batch": 12, "steps": 3000, "every": 300, "dropout": 0.1},
    }
    Ask: ClassVar[type] = Writing
    Subject: ClassVar[type] = Item

    data: str = "shakespeare"
    """text, selective-copy, copy, reverse, adding, pictures to be read row by row, or a path: .txt, .csv, .npy"""
    classify: bool = False
    """take each row of a CSV as a sequence with a class, instead of the whole as a time series"""
    length: int = 0
    """steps of a generated task, as selective-copy; 0 leaves it as it is"""
    tokeniser: Kind = "characters"
    """what a token of a text is: characters, bytes, bpe, wordpiece or words"""
    tokens: int = 2000
    """tokens that bpe, wordpiece and words learn"""
    context: int = 64
    """steps of a text or a time series that are learnt at once"""
    steps: int = 800
    every: int = 100
    batch: int = 12
    """sequences in a batch"""
    model: Recurrent.Config = field(default_factory=Recurrent.Config)
    """the architecture"""
    descent: Descent = replace(MUON, lr=0.02, rest_lr=0.01, warmup=0.0, hold=0.4, clip=1.0)
    """how to go downhill"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("batch", "context"):
            if getattr(self, name) < 1:
                raise EngramError(f"{name} must be at least 1, not {getattr(self, name)}.")
        if self.length < 0 or 0 < self.length < 21:
            raise EngramError(f"length is 0 or at least 21 steps, not {self.length}.")

    @property
    def per_step(self) -> float:
        return self.batch

    @property
    def task(self) -> Task:
        """What is to be done with the data."""
        path = Path(self.data)
        if self.data in datasets.names():
            kind = datasets.info(self.data).kind
            tasks: dict[str, type[Task]] = {"text": Text, "sequences": Answers, "images": Answers}
            if kind not in tasks:
                raise EngramError(f"{self.data} has no sequences to read: take a text, a task of memory, or pictures.")
            return tasks[kind](self)
        if path.suffix.lower() in (".csv", ".npy") and not self.classify:
            return Series(self)
        if path.suffix.lower() in (".csv", ".npy", ".npz") or (path.is_dir() and not any(path.glob("*.txt"))):
            return Answers(self)
        return Text(self)

    def load(self) -> Any:
        return self.task.load(None)

    def reload(self, folder: Path) -> Any:
        return self.task.load(folder)

    def files(self, data: Any) -> Mapping[str, bytes]:
        return self.task.files(data)

    def learner(self, data: Any) -> Gradient:
        task = self.task
        model = Recurrent(replace(self.model, **task.ends(data)))  # type: ignore[arg-type]

        def loss(model: nn.Module, batch: Batch) -> tuple[Tensor, Metrics]:
            return task.loss(network(model), batch)

        return Gradient(model, loss, self.descent, self.steps)

    def batches(self, data: Any) -> Source:
        return self.task.batches(data)

    def evaluate(self, learner: Learner, data: Any, split: str) -> dict[str, float]:
        return self.task.evaluate(network(learner.model), data, split)

    def figures(self, learner: Learner, data: Any) -> Iterator[Figure]:
        model = network(learner.model)
        yield from self.task.figures(model, data)
        _, x, names = self.task.example(data, 0)
        yield memory.over_time(inside(model, x), names)
        yield self.reach(model, x)

    def reach(self, model: Recurrent, x: Tensor) -> Figure:
        """How far gradients reach back: in this network's first cell, and in fresh ones of all kinds."""
        h_1TE = entered(model, x)[:, -FARTHEST:]
        learnt = f"{self.model.cell}, which has learnt"
        found = {learnt: gradient_by_distance(model.blocks[0].cell, h_1TE)}  # type: ignore[arg-type]
        random = generator(self.seed, "reach")
        x_1TI = torch.randn(1, h_1TE.shape[1], REACH_WIDTH, generator=random)
        for name, cell in CELLS.items():
            fresh = cell(REACH_WIDTH, REACH_WIDTH)
            fresh.hold(x_1TI.shape[1])
            found[name] = gradient_by_distance(fresh, x_1TI)
        return memory.reach(found, learnt)

    def look(self, model: nn.Module, data: Any, subject: Item) -> tuple[str, list[Figure]]:
        what, x, names = self.task.example(data, subject.item)
        return what, [memory.over_time(inside(network(model), x), names), self.reach(network(model), x)]

    def probe(self, model: nn.Module, data: Any, item: int) -> str:
        what, x, _ = self.task.example(data, item)
        model(x)
        return what

    def sample(self, learner: Learner, data: Any, request: Request) -> Sample:
        """A text, answers, or the future of a series."""
        return self.task.sample(network(learner.model), data, request)


def network(model: nn.Module) -> Recurrent:
    assert isinstance(model, Recurrent)
    return model


def inside(model: Recurrent, x: Tensor) -> dict[str, Tensor]:
    """What gates and states do while a sequence passes, T × H each."""
    with torch.no_grad(), watch(model, "*.cell.*") as seen:
        model(x)
    return {name.removeprefix("blocks."): torch.stack(seen.all(name))[:, 0] for name in seen}


def entered(model: Recurrent, x: Tensor) -> Tensor:
    """What the first cell is given, 1 × T × E."""
    with torch.no_grad(), watch(model, "embedding") as seen:
        model(x)
    return model.blocks[0].norm(seen["embedding"])  # type: ignore[operator, no-any-return, union-attr]


def of(cell: str) -> Any:
    return field(default_factory=lambda: Recurrent.Config(cell=cell))  # type: ignore[arg-type]


@recipe
@dataclass(frozen=True, kw_only=True)
class RNNRecipe(Sequences):
    """A plain recurrent network: each step mixes the input with a matrix times the last state."""

    name: ClassVar[str] = "rnn"
    title: ClassVar[str] = "Recurrent network"
    notes: ClassVar[str] = "003 §17"
    model: Recurrent.Config = of("rnn")
    """the architecture"""


@recipe
@dataclass(frozen=True, kw_only=True)
class LSTMRecipe(Sequences):
    """Long short-term memory: gates decide what is written down, kept and read."""

    name: ClassVar[str] = "lstm"
    title: ClassVar[str] = "Long short-term memory"
    notes: ClassVar[str] = "003 §18"
    model: Recurrent.Config = of("lstm")
    """the architecture"""


@recipe
@dataclass(frozen=True, kw_only=True)
class GRURecipe(Sequences):
    """Gated recurrent units: one gate keeps or replaces, another one forgets."""

    name: ClassVar[str] = "gru"
    title: ClassVar[str] = "Gated recurrent unit"
    notes: ClassVar[str] = "003 §18"
    model: Recurrent.Config = of("gru")
    """the architecture"""


@recipe
@dataclass(frozen=True, kw_only=True)
class MinGRURecipe(Sequences):
    """Minimal gated units: gates look at the input alone, so all steps are computed at once, by a scan."""

    name: ClassVar[str] = "mingru"
    title: ClassVar[str] = "Minimal gated recurrent unit"
    notes: ClassVar[str] = "003 §18"
    model: Recurrent.Config = of("min_gru")
    """the architecture"""
