"""Base of predictors: a trained model with the reading and preprocessing of new inputs.

predict = load_predictor("runs/cnn-1")
predict.predict(["a.png", "b.png"])            # class names; of a regressor numbers, of a translator texts
predict.predict_proba(["a.png", "b.png"])      # N × classes
for rows in predict.predict_files(["images/"], batch=256): ...

What a model takes is in `inputs.json` of its run folder: kind of input, class names, encoding of a table.
"""

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from glob import glob
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.data.dataset import Data, Split
from engram.data.text_pairs import pad_rows
from engram.data.tokenizer import Tokenizer
from engram.hub.classify import class_scores

INPUTS = "inputs.json"
"""file of a run folder: what its model takes and predicts"""
BATCH = 256
EVALUATION_BATCH = 500
"""samples of a split that a model sees at once"""
Row = dict[str, Any]


def describe_inputs(kind: str, **about: Any) -> dict[str, bytes]:
    """Return `inputs.json` as a file of a run folder."""
    return {INPUTS: (json.dumps({"kind": kind, **about}, indent=2, ensure_ascii=False) + "\n").encode()}


def describe_data(data: Data, *, probabilities: bool = True) -> dict[str, bytes]:
    """Return `inputs.json` for a model that predicts the class or the number of images or rows.

    `probabilities` says whether its outputs are logits, whose softmax is a probability, or scores.
    """
    about = {"classes": data.classes, "target": data.target, "probabilities": probabilities}
    if data.encoder is not None:
        return describe_inputs("table", **about, encoder=data.encoder.to_json())
    return describe_inputs("images", **about, shape=data.train["image"].shape[1:])


def inputs_at(split: Split, index: Tensor) -> Tensor:
    """Inputs of a model: pixels from 0 to 1, or rows of a table."""
    return split["image"][index].float() / 255 if "image" in split else split["point"][index]


def predict_split(model: Callable[[Tensor], Tensor], split: Split) -> Tensor:
    """Outputs of a model for a whole split, computed batch by batch."""
    parts = torch.arange(len(split)).split(EVALUATION_BATCH)
    with torch.no_grad():
        return torch.cat([model(inputs_at(split, index)) for index in parts])


def translate_rows(model: Any, tokenizer: Tokenizer, sources: Sequence[list[int]], batch: int) -> list[str]:
    """Translate each source by greedy decoding, in batches of similar lengths."""
    order, texts = sorted(range(len(sources)), key=lambda i: len(sources[i])), [""] * len(sources)
    for start in range(0, len(order), batch):
        rows = order[start : start + batch]
        tokens = model.translate(pad_rows([sources[i] for i in rows], model.config.pad_id))
        for i, row in zip(rows, tokens, strict=True):
            texts[i] = tokenizer.decode(row)
    return texts


class Predictor(ABC):
    """A model with the reading and preprocessing of its inputs."""

    suffixes: tuple[str, ...] = ()
    """endings of the files that it reads"""
    standard_input: str = ""
    """ending of a file like the standard input; empty if that is not read"""
    writes_lines: bool = False
    """whether a prediction is a line of text"""

    @abstractmethod
    def predict(self, x: Any) -> Any:
        """Predict from inputs in memory."""

    @abstractmethod
    def rows(self, x: Any) -> list[Row]:
        """Predict from inputs in memory; return a row for each with everything that is known of it."""

    @abstractmethod
    def read(self, path: Path, batch: int) -> Iterator[tuple[list[str], Any]]:
        """Read a file; yield names and inputs, `batch` at a time."""

    def predict_files(self, paths: Sequence[str], batch: int = BATCH) -> Iterator[list[Row]]:
        """Predict from files, folders and globs; yield rows that begin with the name of the input."""
        for path in self.find_files(paths):
            for names, x in self.read(path, batch) if str(path) != "-" else self.read_standard_input(batch):
                yield [{"input": name, **row} for name, row in zip(names, self.rows(x), strict=True)]

    def read_standard_input(self, batch: int) -> Iterator[tuple[list[str], Any]]:
        """Read the standard input as a file; yield names and inputs, `batch` at a time."""
        if not self.standard_input:
            raise EngramError(f"- is not read as images: name files or folders ({', '.join(self.suffixes)}).")
        with TemporaryDirectory() as folder:
            path = Path(folder) / f"input{self.standard_input}"
            path.write_bytes(sys.stdin.buffer.read())
            try:
                for names, x in self.read(path, batch):
                    yield [name.replace(str(path), "-") for name in names], x
            except EngramError as error:
                raise EngramError(str(error).replace(str(path), "The standard input")) from error

    def find_files(self, paths: Sequence[str]) -> list[Path]:
        """Return the files of paths, folders and globs; refuse what is not there."""
        found: list[Path] = []
        for name in paths:
            path = Path(name)
            if path.is_dir():
                inside = [file for file in sorted(path.rglob("*")) if file.suffix.lower() in self.suffixes]
                if not inside:
                    raise EngramError(f"{path} holds no file that ends in {', '.join(self.suffixes)}.")
                found += inside
            elif path.exists() or name == "-":
                found.append(path)
            elif matches := sorted(glob(name, recursive=True)):
                found += map(Path, matches)
            else:
                raise EngramError(f"There is no file or folder {name}.")
        return found


class Classifies(Predictor):
    """Base of predictors whose model gives logits or scores of classes, or numbers."""

    def __init__(self, model: nn.Module, about: Mapping[str, Any]) -> None:
        self.model, self.classes = model, tuple(about["classes"])
        self.probabilities: bool = about["probabilities"]

    @abstractmethod
    def outputs(self, x: Any) -> Tensor:
        """Outputs of the model: logits N × K, or numbers N."""

    def predict(self, x: Any) -> npt.NDArray[Any]:
        """Predict class names, or numbers."""
        outputs = self.outputs(x)
        return np.array(self.classes)[outputs.argmax(1).numpy()] if self.classes else outputs.numpy()

    def predict_proba(self, x: Any) -> npt.NDArray[np.float32]:
        """Predict the probabilities of the classes, N × K."""
        if not self.classes:
            raise EngramError("A regression model predicts numbers, not probabilities.")
        if not self.probabilities:
            raise EngramError("This model gives scores of the classes, which are no probabilities.")
        return self.outputs(x).softmax(1).numpy()

    def rows(self, x: Any) -> list[Row]:
        outputs = self.outputs(x)
        if not self.classes:
            return [{"prediction": value} for value in outputs.tolist()]
        letter, best, found = ("p", "probability", []) if self.probabilities else ("score", "score", [])
        for value_K in outputs.softmax(1) if self.probabilities else outputs:
            k = int(value_K.argmax())
            each = {f"{letter}({name})": value for name, value in zip(self.classes, value_K.tolist(), strict=True)}
            found.append({"prediction": self.classes[k], best: value_K[k].item(), **each})
        return found


class ClassifiesTensors(Classifies):
    """Base of predictors whose inputs become one tensor.

    Outputs are `model.predict_scores(x)`, or `model(x)` of a model without that method.
    """

    def __init__(self, model: nn.Module, about: Mapping[str, Any]) -> None:
        super().__init__(model, about)
        self.compute = class_scores(model)

    @abstractmethod
    def to_tensor(self, x: Any) -> Tensor:
        """Convert inputs to what the model takes."""

    @torch.no_grad()
    def outputs(self, x: Any) -> Tensor:
        was, _ = self.model.training, self.model.eval()
        try:
            return torch.cat([self.compute(part) for part in self.to_tensor(x).split(BATCH)])
        finally:
            self.model.train(was)
