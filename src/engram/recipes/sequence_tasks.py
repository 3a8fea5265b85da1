"""What a recurrent network may be asked to do with a sequence.   N sequences, B batch, T time, I inputs, L answers

    Text      say after each symbol of a text what comes next
    Answers   say something at the end: L symbols that had to be remembered, a class, a number
    Series    say after each value of a time series what the next one will be

A task loads its data, says what the network's entrance and exit must be, and how good an answer is.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from engram import data as datasets
from engram.core.errors import EngramError, unknown
from engram.core.learner import Batch, Metrics
from engram.core.registry import Request, Sample, Source
from engram.core.seeding import generator
from engram.data import corpus
from engram.data.batches import Batches
from engram.data.corpus import Corpus, Windows
from engram.data.dataset import Data, Info, Split
from engram.data.series import read_series
from engram.data.tokeniser import Tokeniser
from engram.figures import classification, embedding, lens, memory
from engram.figures.figure import Figure
from engram.models.recurrent import Recurrent
from engram.recipes.continuing import SPECIALS, continued, excerpt, how_well
from engram.recipes.language import TOKENISER, trained

if TYPE_CHECKING:
    from engram.recipes.sequences import Sequences

EVALUATION_BATCH = 250
SHOWN = 200
"""steps of a series that are drawn"""


class Task(ABC):
    """One kind of thing to do."""

    def __init__(self, recipe: "Sequences") -> None:
        self.recipe = recipe

    @abstractmethod
    def load(self, folder: Path | None) -> Any:
        """The data; of a run that is opened again, with what lies in its folder."""

    def files(self, data: Any) -> Mapping[str, bytes]:
        return {}

    @abstractmethod
    def ends(self, data: Any) -> dict[str, int]:
        """vocabulary, inputs and outputs of the network, and how much it should hold at first."""

    @abstractmethod
    def batches(self, data: Any) -> Source:
        """Batches of x, and of y, what is to be said."""

    @abstractmethod
    def loss(self, model: Recurrent, batch: Batch) -> tuple[Tensor, Metrics]:
        """How wrong the model is."""

    @abstractmethod
    def evaluate(self, model: Recurrent, data: Any, split: str) -> dict[str, float]:
        """How good it is on a split."""

    @abstractmethod
    def figures(self, model: Recurrent, data: Any) -> Iterator[Figure]:
        """What is worth seeing of this task."""

    @abstractmethod
    def example(self, data: Any, item: int) -> tuple[str, Tensor, list[str]]:
        """What it is, one sequence as the model takes it, 1 × T (× I), and a name for each step."""

    @abstractmethod
    def sample(self, model: Recurrent, data: Any, request: Request) -> Sample:
        """Let the model say something."""


class Text(Task):
    """What comes next in a text."""

    def load(self, folder: Path | None) -> Corpus:
        text = corpus.read(self.recipe.data, "stretches")
        if folder is not None:
            return corpus.tokenised(text, Tokeniser.load(folder / TOKENISER))
        specials = SPECIALS.get(self.recipe.tokeniser, ())
        return corpus.tokenised(text, trained(self.recipe.tokeniser, text, self.recipe.tokens, specials))

    def files(self, data: Corpus) -> Mapping[str, bytes]:
        return {TOKENISER: data.tokeniser.to_bytes()}

    def ends(self, data: Corpus) -> dict[str, int]:
        return {"vocabulary": data.tokeniser.vocabulary, "outputs": data.tokeniser.vocabulary}

    def batches(self, data: Corpus) -> Windows:
        recipe = self.recipe
        return Windows(data["train"], recipe.batch, recipe.context, generator(recipe.seed, "batches"))

    def loss(self, model: Recurrent, batch: Batch) -> tuple[Tensor, Metrics]:
        return F.cross_entropy(model(batch["x"]).flatten(0, 1), batch["y"].flatten()), {}

    def evaluate(self, model: Recurrent, data: Corpus, split: str) -> dict[str, float]:
        return how_well(model, data, split, self.recipe.context)

    def figures(self, model: Recurrent, data: Corpus) -> Iterator[Figure]:
        _, x_1T, _ = self.example(data, 0)
        yield lens.likeliest(model(x_1T)[0, -1], data.tokeniser.token, "What comes next")
        names = data.tokeniser.tokens(range(min(200, data.tokeniser.vocabulary)))
        yield embedding.embeddings(model.embedding.weight, names)

    def example(self, data: Corpus, item: int) -> tuple[str, Tensor, list[str]]:
        ids = excerpt(data, self.recipe.context, item)
        return f"«{data.tokeniser.decode(ids)}»", torch.tensor([ids]), data.tokeniser.tokens(ids)

    def sample(self, model: Recurrent, data: Corpus, request: Request) -> Sample:
        return continued(model, data, request)


class Answers(Task):
    """Something at the end of a sequence."""

    def load(self, folder: Path | None) -> Data:
        data = datasets.load(self.recipe.data, **self._options())
        if "point" not in data.train:
            return data
        mean, std = data.train["point"].mean(), data.train["point"].std().clamp(min=1e-8)
        splits = {
            name: Split({**part.columns, "point": ((part["point"] - mean) / std).float()})
            for name, part in data.splits.items()
        }
        return replace(data, splits=splits)

    def _options(self) -> dict[str, int]:
        """What makes a generated task as long as it is wanted."""
        name, length = self.recipe.data, self.recipe.length
        if not length:
            return {}
        by_length = {
            "copy": {"wait": length - 20},
            "reverse": {"length": length // 2},
            "selective-copy": {"among": length - 10},
            "adding": {"length": length},
        }
        if name not in by_length:
            raise EngramError(f"length is for {', '.join(by_length)}, whose sequences are generated, not for {name}.")
        return by_length[name]

    def ends(self, data: Data) -> dict[str, int]:
        x, y = self.both(data.train.take(torch.zeros(1, dtype=torch.long)), data)
        memory = self.recipe.model.memory or x.shape[1]  # what is asked at the end may have come at the beginning
        if x.ndim == 2:
            symbols = int(data.train["source"].max()) + 1
            return {"vocabulary": symbols, "outputs": symbols, "memory": memory}
        outputs = 1 if y.is_floating_point() else len(data.classes)
        return {"vocabulary": 0, "inputs": x.shape[2], "outputs": outputs, "memory": memory}

    def both(self, split: Any, data: Data) -> tuple[Tensor, Tensor]:
        """x, N × T symbols or N × T × I numbers, and y: N × L symbols, N classes or N numbers."""
        if "source" in split:
            return split["source"], split["target"]
        if "label" not in split:
            raise EngramError(f"{data.info.name} has no labels, and without them there is nothing to say at the end.")
        if "image" in split:
            return split["image"].float().div(255).transpose(1, 2).flatten(2), split["label"]
        return split["point"][:, :, None], split["label"]

    def batches(self, data: Data) -> Batches:
        def named(batch: dict[str, Any], _: torch.Generator) -> dict[str, Any]:
            return dict(zip("xy", self.both(batch, data), strict=True))

        return Batches(data.train, self.recipe.batch, generator(self.recipe.seed, "batches"), named)

    def loss(self, model: Recurrent, batch: Batch) -> tuple[Tensor, Metrics]:
        return wrongness(said(model, batch["x"], batch["y"]), batch["y"]), {}

    def evaluate(self, model: Recurrent, data: Data, split: str) -> dict[str, float]:
        answer, y = self.answers(model, data, split)
        found = {"loss": float(wrongness(answer, y))}
        if y.is_floating_point():
            return found | {"explained": 1 - float((answer - y).square().mean() / y.var())}
        right = answer.argmax(-1) == y
        return found | {"accuracy": float(right.float().mean())}

    def answers(self, model: Recurrent, data: Data, split: str, most: int | None = None) -> tuple[Tensor, Tensor]:
        """What the model says of a split, and what is right."""
        said_of, right = [], []
        for index in torch.arange(min(most or len(data[split]), len(data[split]))).split(EVALUATION_BATCH):
            x, y = self.both(data[split].take(index), data)
            said_of.append(said(model, x, y))
            right.append(y)
        return torch.cat(said_of), torch.cat(right)

    def figures(self, model: Recurrent, data: Data) -> Iterator[Figure]:
        answer, y = self.answers(model, data, "test", 1000)
        if y.is_floating_point():
            yield memory.said_and_true(answer, y)
        elif y.ndim == 2:
            yield memory.recalled(answer.argmax(-1), y)
        else:
            yield classification.confusion(answer, y, data.classes)

    def example(self, data: Data, item: int) -> tuple[str, Tensor, list[str]]:
        if not 0 <= item < len(data.test):
            raise EngramError(f"item must be from 0 to {len(data.test) - 1}, not {item}.")
        x, y = self.both(data.test.take(torch.tensor([item])), data)
        names = [str(int(symbol)) for symbol in x[0]] if x.ndim == 2 else [str(t) for t in range(x.shape[1])]
        return f"test item {item}, to which the answer is {answer_text(y[0], data.classes)}", x, names

    def sample(self, model: Recurrent, data: Data, request: Request) -> Sample:
        answer, y = self.answers(model, data, "test", request.count)
        best = answer if y.is_floating_point() else answer.argmax(-1)
        lines = [
            f"{answer_text(a, data.classes)}   ({'right' if torch.equal(a, b) else answer_text(b, data.classes)})"
            for a, b in zip(best, y, strict=True)
        ]
        return Sample({"answer": best, "right": y}, "\n".join(lines))


def said(model: Recurrent, x: Tensor, y: Tensor) -> Tensor:
    """What is said at the end: N × L × V of symbols, N × V of classes, N numbers."""
    out = model(x, last=y.shape[1] if y.ndim == 2 else 1)
    if y.ndim == 2:
        return out
    return out[:, 0, 0] if y.is_floating_point() else out[:, 0]


def wrongness(answer: Tensor, y: Tensor) -> Tensor:
    if y.is_floating_point():
        return F.mse_loss(answer, y)
    return F.cross_entropy(answer.flatten(0, -2), y.flatten())


def answer_text(answer: Tensor, classes: tuple[str, ...]) -> str:
    if answer.ndim:
        return " ".join(str(int(symbol)) for symbol in answer)
    return f"{float(answer):.3f}" if answer.is_floating_point() else classes[int(answer)]


@dataclass(frozen=True)
class Values:
    """A time series in the order of time, standardised by its beginning, T × I in each split."""

    info: Info
    splits: Mapping[str, Tensor]
    mean_I: Tensor
    std_I: Tensor

    def __getitem__(self, split: str) -> Tensor:
        if split not in self.splits:
            raise unknown("split", split, self.splits)
        return self.splits[split]


class Series(Task):
    """The next value of a time series."""

    def load(self, folder: Path | None) -> Values:
        series_TI = read_series(self.recipe.data)
        T, context = len(series_TI), self.recipe.context
        first, second = int(0.8 * T), int(0.9 * T)
        if min(first, second - first, T - second) < context + 1:
            raise EngramError(
                f"{self.recipe.data} has {T} rows: a tenth, for validation, must be more than --context {context}."
            )
        mean_I, std_I = series_TI[:first].mean(0), series_TI[:first].std(0).clamp(min=1e-8)
        x_TI = ((series_TI - mean_I) / std_I).float()
        splits = {"train": x_TI[:first], "valid": x_TI[first:second], "test": x_TI[second:]}
        info = Info(
            name=Path(self.recipe.data).name, title=f"own series in {self.recipe.data}", kind="series",
            licence="your own", source=self.recipe.data, columns={"value": f"float32 {x_TI.shape[1]}"},
            sizes={name: len(part) for name, part in splits.items()},
        )  # fmt: skip
        return Values(info, splits, mean_I, std_I)

    def ends(self, data: Values) -> dict[str, int]:
        channels = data["train"].shape[1]
        return {"vocabulary": 0, "inputs": channels, "outputs": channels}

    def batches(self, data: Values) -> Batches:
        starts, context = torch.arange(len(data["train"]) - self.recipe.context), self.recipe.context

        def windows(batch: dict[str, Any], _: torch.Generator) -> dict[str, Any]:
            window_BTI = data["train"][batch["start"][:, None] + torch.arange(context + 1)]
            return {"x": window_BTI[:, :-1], "y": window_BTI[:, 1:]}

        random = generator(self.recipe.seed, "batches")
        return Batches(Split({"start": starts}), self.recipe.batch, random, windows)

    def loss(self, model: Recurrent, batch: Batch) -> tuple[Tensor, Metrics]:
        return F.mse_loss(model(batch["x"]), batch["y"]), {}

    def evaluate(self, model: Recurrent, data: Values, split: str) -> dict[str, float]:
        """`loss` in standard deviations, squared; `naive` is that of «as it is now», which one should be below."""
        x_TI = data[split]
        said_TI = model(x_TI[None, :-1])[0]
        naive = F.mse_loss(x_TI[:-1], x_TI[1:])
        rmse = ((said_TI - x_TI[1:]) * data.std_I).square().mean().sqrt()
        return {"loss": float(F.mse_loss(said_TI, x_TI[1:])), "naive": float(naive), "rmse": float(rmse)}

    def figures(self, model: Recurrent, data: Values) -> Iterator[Figure]:
        x_TI = data["test"][: SHOWN + 1]
        said_TI = model(x_TI[None, :-1])[0]
        true, said_next = (values * data.std_I + data.mean_I for values in (x_TI[1:], said_TI))
        yield memory.forecast(true, said_next, self.free_run(model, data, x_TI[: len(x_TI) // 2], len(x_TI) // 2))

    def free_run(self, model: Recurrent, data: Values, x_TI: Tensor, steps: int) -> Tensor:
        """What the model believes will follow, fed with its own beliefs, in the units of the data."""
        out, states = model.read(x_TI[None], last=1)
        values = [out]
        while len(values) < steps:
            out, states = model.read(out, states)
            values.append(out)
        return torch.cat(values, 1)[0] * data.std_I + data.mean_I

    def example(self, data: Values, item: int) -> tuple[str, Tensor, list[str]]:
        most = len(data["test"]) - self.recipe.context
        if not 0 <= item <= most:
            raise EngramError(f"item must be a place in the test from 0 to {most}, not {item}.")
        x_TI = data["test"][item : item + self.recipe.context]
        return (
            f"rows {item} to {item + len(x_TI) - 1} of the test",
            x_TI[None],
            [str(item + t) for t in range(len(x_TI))],
        )

    def sample(self, model: Recurrent, data: Values, request: Request) -> Sample:
        future_TI = self.free_run(model, data, data["test"], request.ask.length)
        lines = [", ".join(f"{value:.6g}" for value in row) for row in future_TI]
        return Sample({"future": future_TI}, "\n".join(lines), aloud=True)
