"""Tasks of recurrent networks.   N sequences, B batch, T time steps, I inputs, L tokens to recall

    LanguageModeling   predict the next token of a text at every step
    SequenceLabeling   predict at the end of a sequence: L tokens to recall, a class or a number
    Forecasting        predict the next value of a time series at every step

A task loads its data, derives inputs and outputs of the network, and defines loss, metrics, figures and samples.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from engram import data as datasets
from engram.core.errors import EngramError, unknown
from engram.core.files import read_json
from engram.core.learner import Batch, Metrics
from engram.core.recipe import BatchIterator, Sample, SampleRequest
from engram.core.seeding import generator
from engram.data import corpus
from engram.data.corpus import Corpus, RandomWindows
from engram.data.dataset import Data, Info, Split
from engram.data.loaders import BatchLoader
from engram.data.series import read_series
from engram.data.table_splits import rescale_rows
from engram.data.tokenizer import Tokenizer
from engram.hub.classify import classify_image, load_image
from engram.hub.predict import INPUTS, describe_data, describe_inputs
from engram.plots import classification, embedding, logit_lens
from engram.plots.figure import Figure
from engram.sequences import plots
from engram.sequences.network import RecurrentNetwork, as_sequences
from engram.transformers.base import TOKENIZER, train_tokenizer
from engram.transformers.text_generation import SPECIALS, evaluate_perplexity, generate_texts, validation_excerpt

if TYPE_CHECKING:
    from engram.sequences.base import SequenceRecipe

EVALUATION_BATCH = 250
PLOTTED_STEPS = 200
"""steps of a time series that are plotted"""


class Task(ABC):
    """Base of tasks."""

    def __init__(self, recipe: "SequenceRecipe") -> None:
        self.recipe = recipe

    @abstractmethod
    def load(self, folder: Path | None) -> Any:
        """Load the data; that of an existing run with the files in its folder."""

    def files(self, data: Any) -> Mapping[str, bytes]:
        """Return further files of the run folder by name."""
        return {}

    @abstractmethod
    def model_shape(self, data: Any) -> dict[str, int]:
        """Return the fields of the model's config that follow from the data."""

    @abstractmethod
    def batches(self, data: Any) -> BatchIterator:
        """Return batches of inputs x and targets y."""

    @abstractmethod
    def loss(self, model: RecurrentNetwork, batch: Batch) -> tuple[Tensor, Metrics]:
        """Return the training loss of a batch."""

    @abstractmethod
    def evaluate(self, model: RecurrentNetwork, data: Any, split: str) -> dict[str, float]:
        """Return the metrics on a split."""

    @abstractmethod
    def figures(self, model: RecurrentNetwork, data: Any) -> Iterator[Figure]:
        """Yield the figures of this task."""

    @abstractmethod
    def example(self, data: Any, item: int) -> tuple[str, Tensor, list[str]]:
        """Return a description, one sequence as input of the model, 1 × T (× I), and a name for each step."""

    @abstractmethod
    def sample(self, model: RecurrentNetwork, data: Any, request: SampleRequest) -> Sample:
        """Generate or predict."""


class LanguageModeling(Task):
    """Prediction of the next token of a text."""

    def load(self, folder: Path | None) -> Corpus:
        recipe = self.recipe
        text = corpus.read_text(recipe.data, "windows")
        if folder is not None:
            return corpus.tokenize_corpus(text, Tokenizer.load(folder / TOKENIZER))
        specials = SPECIALS.get(recipe.tokenizer, ())
        return corpus.tokenize_corpus(text, train_tokenizer(recipe.tokenizer, text, recipe.vocab_size, specials))

    def files(self, data: Corpus) -> Mapping[str, bytes]:
        return {TOKENIZER: data.tokenizer.to_bytes()}

    def model_shape(self, data: Corpus) -> dict[str, int]:
        return {"vocabulary": data.tokenizer.vocab_size, "outputs": data.tokenizer.vocab_size}

    def batches(self, data: Corpus) -> RandomWindows:
        recipe = self.recipe
        return RandomWindows(data["train"], recipe.batch, recipe.context, generator(recipe.seed, "batches"))

    def loss(self, model: RecurrentNetwork, batch: Batch) -> tuple[Tensor, Metrics]:
        return F.cross_entropy(model(batch["x"]).flatten(0, 1), batch["y"].flatten()), {}

    def evaluate(self, model: RecurrentNetwork, data: Corpus, split: str) -> dict[str, float]:
        return evaluate_perplexity(model, data, split, self.recipe.context)

    def figures(self, model: RecurrentNetwork, data: Corpus) -> Iterator[Figure]:
        _, x_1T, _ = self.example(data, 0)
        yield logit_lens.top_probabilities(model(x_1T)[0, -1], data.tokenizer.token, "What comes next")
        names = data.tokenizer.tokens(range(min(200, data.tokenizer.vocab_size)))
        yield embedding.embeddings(model.embedding.weight, names)

    def example(self, data: Corpus, item: int) -> tuple[str, Tensor, list[str]]:
        ids = validation_excerpt(data, self.recipe.context, item)
        return f'"{data.tokenizer.decode(ids)}"', torch.tensor([ids]), data.tokenizer.tokens(ids)

    def sample(self, model: RecurrentNetwork, data: Corpus, request: SampleRequest) -> Sample:
        return generate_texts(model, data, request)


class SequenceLabeling(Task):
    """Prediction at the end of a sequence: tokens to recall, a class or a number."""

    def load(self, folder: Path | None) -> Data:
        data = datasets.load(self.recipe.data, **self._length_options())
        return data if data.encoder is None else rescale_rows(data, data.encoder.shifted(data.train["point"].numpy()))

    def files(self, data: Data) -> Mapping[str, bytes]:
        return describe_data(data) if data.encoder is not None or "image" in data.train else {}

    def _length_options(self) -> dict[str, int]:
        """Return the options that give a synthetic task the length of the recipe."""
        name, length = self.recipe.data, self.recipe.length
        if not length:
            return {}
        options = {
            "copy": {"wait": length - 20},
            "reverse": {"length": length // 2},
            "selective-copy": {"among": length - 10},
            "adding": {"length": length},
        }
        if name not in options:
            raise EngramError(f"length is for {', '.join(options)}, whose sequences are generated, not for {name}.")
        return options[name]

    def model_shape(self, data: Data) -> dict[str, int]:
        x, y = self.inputs_and_targets(data.train.select(torch.zeros(1, dtype=torch.long)), data)
        time_constant = self.recipe.model.chrono_init or x.shape[1]  # the first step may matter at the last
        if x.ndim == 2:
            symbols = int(data.train["source"].max()) + 1
            return {"vocabulary": symbols, "outputs": symbols, "chrono_init": time_constant}
        outputs = 1 if y.is_floating_point() else len(data.classes)
        return {"vocabulary": 0, "inputs": x.shape[2], "outputs": outputs, "chrono_init": time_constant}

    def inputs_and_targets(self, split: Any, data: Data) -> tuple[Tensor, Tensor]:
        """Return x, N × T tokens or N × T × I numbers, and y: N × L tokens, N classes or N numbers."""
        if "source" in split:
            return split["source"], split["target"]
        if "label" not in split:
            raise EngramError(f"{data.info.name} has no labels, so there is nothing to predict.")
        if "image" in split:
            return as_sequences(split["image"].float().div(255)), split["label"]
        return as_sequences(split["point"]), split["label"]

    def batches(self, data: Data) -> BatchLoader:
        def to_xy(batch: dict[str, Any], _: torch.Generator) -> dict[str, Any]:
            return dict(zip("xy", self.inputs_and_targets(batch, data), strict=True))

        return BatchLoader(data.train, self.recipe.batch, generator(self.recipe.seed, "batches"), to_xy)

    def loss(self, model: RecurrentNetwork, batch: Batch) -> tuple[Tensor, Metrics]:
        return task_loss(predict_last(model, batch["x"], batch["y"]), batch["y"]), {}

    def evaluate(self, model: RecurrentNetwork, data: Data, split: str) -> dict[str, float]:
        """Return loss and accuracy, or R² (`r2`) for numbers."""
        output, y = self.predict(model, data, split)
        metrics = {"loss": float(task_loss(output, y))}
        if y.is_floating_point():
            return metrics | {"r2": 1 - float((output - y).square().mean() / y.var())}
        return metrics | {"accuracy": float((output.argmax(-1) == y).float().mean())}

    def predict(
        self, model: RecurrentNetwork, data: Data, split: str, count: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return outputs and targets of a split, or of its first `count` sequences."""
        outputs, targets = [], []
        for index in torch.arange(min(count or len(data[split]), len(data[split]))).split(EVALUATION_BATCH):
            x, y = self.inputs_and_targets(data[split].select(index), data)
            outputs.append(predict_last(model, x, y))
            targets.append(y)
        return torch.cat(outputs), torch.cat(targets)

    def figures(self, model: RecurrentNetwork, data: Data) -> Iterator[Figure]:
        output, y = self.predict(model, data, "test", 1000)
        if y.is_floating_point():
            yield plots.predicted_against_target(output, y)
        elif y.ndim == 2:
            yield plots.recall_table(output.argmax(-1), y)
        else:
            yield classification.confusion(output, y, data.classes)

    def example(self, data: Data, item: int) -> tuple[str, Tensor, list[str]]:
        if not 0 <= item < len(data.test):
            raise EngramError(f"item must be from 0 to {len(data.test) - 1}, not {item}.")
        x, y = self.inputs_and_targets(data.test.select(torch.tensor([item])), data)
        names = [str(int(token)) for token in x[0]] if x.ndim == 2 else [str(t) for t in range(x.shape[1])]
        return f"test item {item}, target {format_target(y[0], data.classes)}", x, names

    def sample(self, model: RecurrentNetwork, data: Data, request: SampleRequest) -> Sample:
        if request.args.image:
            if "image" not in data.train:
                raise EngramError(f"The model has learned {data.info.name}, which holds no images.")
            return classify_image(
                model.predict_scores, load_image(request.args.image, data.train["image"].shape[1:]), data.classes
            )
        output, y = self.predict(model, data, "test", request.count)
        predicted = output if y.is_floating_point() else output.argmax(-1)
        rows = [
            {"true": target_value(b, data.classes), "predicted": target_value(a, data.classes)}
            for a, b in zip(predicted, y, strict=True)
        ]
        lines = [
            f"{format_target(a, data.classes)}   ({'right' if torch.equal(a, b) else format_target(b, data.classes)})"
            for a, b in zip(predicted, y, strict=True)
        ]
        return Sample({"prediction": predicted, "target": y}, "\n".join(lines), rows=rows)


def predict_last(model: RecurrentNetwork, x: Tensor, y: Tensor) -> Tensor:
    """Return the outputs at the last steps: N × L × V for tokens, N × V for classes, N for numbers."""
    output = model(x, last=y.shape[1] if y.ndim == 2 else 1)
    if y.ndim == 2:
        return output
    return output[:, 0, 0] if y.is_floating_point() else output[:, 0]


def task_loss(output: Tensor, y: Tensor) -> Tensor:
    """Return the mean squared error of numbers, or the cross-entropy of tokens and classes."""
    if y.is_floating_point():
        return F.mse_loss(output, y)
    return F.cross_entropy(output.flatten(0, -2), y.flatten())


def target_value(y: Tensor, classes: tuple[str, ...]) -> list[int] | float | str:
    """Return one target or prediction: tokens, a number or the name of a class."""
    if y.ndim:
        return [int(token) for token in y]
    return float(y) if y.is_floating_point() else classes[int(y)]


def format_target(y: Tensor, classes: tuple[str, ...]) -> str:
    """Return one target or prediction as text."""
    value = target_value(y, classes)
    if isinstance(value, list):
        return " ".join(map(str, value))
    return f"{value:.3f}" if isinstance(value, float) else value


@dataclass(frozen=True)
class TimeSeries:
    """Time series in temporal order, standardized by its training split, T × I in each split."""

    info: Info
    splits: Mapping[str, Tensor]
    mean_I: Tensor
    std_I: Tensor

    def __getitem__(self, split: str) -> Tensor:
        if split not in self.splits:
            raise unknown("split", split, self.splits)
        return self.splits[split]


class Forecasting(Task):
    """Prediction of the next value of a time series."""

    def load(self, folder: Path | None) -> TimeSeries:
        series_TI = read_series(self.recipe.data)
        T, context = len(series_TI), self.recipe.context
        train_end, valid_end = int(0.8 * T), int(0.9 * T)
        if min(train_end, valid_end - train_end, T - valid_end) < context + 1:
            raise EngramError(
                f"{self.recipe.data} has {T} rows: a tenth, for validation, must be more than --context {context}."
            )
        mean_I, std_I = series_TI[:train_end].mean(0), series_TI[:train_end].std(0).clamp(min=1e-8)
        if folder is not None and (folder / INPUTS).exists():
            about = read_json(folder / INPUTS)
            mean_I, std_I = (torch.tensor(about[name], dtype=torch.float64) for name in ("mean", "std"))
        if series_TI.shape[1] != len(mean_I):
            raise EngramError(
                f"The model takes {len(mean_I)} values at every step, and {self.recipe.data} has {series_TI.shape[1]}."
            )
        x_TI = ((series_TI - mean_I) / std_I).float()
        splits = {"train": x_TI[:train_end], "valid": x_TI[train_end:valid_end], "test": x_TI[valid_end:]}
        info = Info(
            name=Path(self.recipe.data).name, title=f"time series in {self.recipe.data}", kind="series",
            license="your own", source=self.recipe.data, columns={"value": f"float32 {x_TI.shape[1]}"},
            sizes={name: len(part) for name, part in splits.items()},
        )  # fmt: skip
        return TimeSeries(info, splits, mean_I, std_I)

    def files(self, data: TimeSeries) -> Mapping[str, bytes]:
        return describe_inputs("series", mean=data.mean_I.tolist(), std=data.std_I.tolist())

    def model_shape(self, data: TimeSeries) -> dict[str, int]:
        channels = data["train"].shape[1]
        return {"vocabulary": 0, "inputs": channels, "outputs": channels}

    def batches(self, data: TimeSeries) -> BatchLoader:
        starts, context = torch.arange(len(data["train"]) - self.recipe.context), self.recipe.context

        def to_windows(batch: dict[str, Any], _: torch.Generator) -> dict[str, Any]:
            window_BTI = data["train"][batch["start"][:, None] + torch.arange(context + 1)]
            return {"x": window_BTI[:, :-1], "y": window_BTI[:, 1:]}

        random = generator(self.recipe.seed, "batches")
        return BatchLoader(Split({"start": starts}), self.recipe.batch, random, to_windows)

    def loss(self, model: RecurrentNetwork, batch: Batch) -> tuple[Tensor, Metrics]:
        return F.mse_loss(model(batch["x"]), batch["y"]), {}

    def evaluate(self, model: RecurrentNetwork, data: TimeSeries, split: str) -> dict[str, float]:
        """Return the loss of the standardized series, that of the naive forecast (last value), and the RMSE."""
        x_TI = data[split]
        predicted_TI = model(x_TI[None, :-1])[0]
        naive = F.mse_loss(x_TI[:-1], x_TI[1:])
        rmse = ((predicted_TI - x_TI[1:]) * data.std_I).square().mean().sqrt()
        loss = F.mse_loss(predicted_TI, x_TI[1:])
        return {"loss": float(loss), "naive_loss": float(naive), "rmse": float(rmse)}

    def figures(self, model: RecurrentNetwork, data: TimeSeries) -> Iterator[Figure]:
        x_TI = data["test"][: PLOTTED_STEPS + 1]
        predicted_TI = model(x_TI[None, :-1])[0]
        true_TI, one_step_TI = (values * data.std_I + data.mean_I for values in (x_TI[1:], predicted_TI))
        half = len(x_TI) // 2
        yield plots.forecast(true_TI, one_step_TI, self.free_run(model, data, x_TI[:half], half))

    def free_run(self, model: RecurrentNetwork, data: TimeSeries, x_TI: Tensor, steps: int) -> Tensor:
        """Forecast `steps` values after x from the model's own predictions, in the units of the data."""
        output, states = model.forward_from(x_TI[None], last=1)
        values = [output]
        while len(values) < steps:
            output, states = model.forward_from(output, states)
            values.append(output)
        return torch.cat(values, 1)[0] * data.std_I + data.mean_I

    def example(self, data: TimeSeries, item: int) -> tuple[str, Tensor, list[str]]:
        highest = len(data["test"]) - self.recipe.context
        if not 0 <= item <= highest:
            raise EngramError(f"item must be a row of the test split from 0 to {highest}, not {item}.")
        x_TI = data["test"][item : item + self.recipe.context]
        rows = range(item, item + len(x_TI))
        return f"rows {rows[0]} to {rows[-1]} of the test split", x_TI[None], [str(row) for row in rows]

    def sample(self, model: RecurrentNetwork, data: TimeSeries, request: SampleRequest) -> Sample:
        forecast_TI = self.free_run(model, data, data["test"], request.args.max_new_tokens)
        lines = [", ".join(f"{value:.6g}" for value in row) for row in forecast_TI]
        rows = [{"step": t + 1, "forecast": row} for t, row in enumerate(forecast_TI.tolist())]
        return Sample({"forecast": forecast_TI}, "\n".join(lines), streams_text=True, rows=rows)
