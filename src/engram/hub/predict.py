"""Predictions of a trained model on new inputs: images, rows of a table, or lines of text.

predict = load_predictor("runs/cnn-1")
predict.predict(["a.png", "b.png"])            # class names; of a regressor numbers, of a translator texts
predict.predict_proba(["a.png", "b.png"])      # N × classes
for rows in predict.predict_files(["images/"], batch=256): ...

What a model takes is in `inputs.json` of its run folder: kind of input, class names, encoding of a table.
"""

import json
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from glob import glob
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.data.arrays import read_inputs
from engram.data.csv_files import read_table
from engram.data.dataset import Split
from engram.data.frames import frame_to_table, is_frame
from engram.data.image_files import SUFFIXES, open_image
from engram.data.preprocess import Preprocess
from engram.data.table import Table, TableEncoder
from engram.data.text_files import read_text_file
from engram.data.text_pairs import pad_rows
from engram.data.tokenizer import Tokenizer

INPUTS = "inputs.json"
"""file of a run folder: what its model takes and predicts"""
BATCH = 256
EVALUATION_BATCH = 500
"""samples of a split that a model sees at once"""
TRANSLATED = 32
"""texts translated at a time"""
ARRAYS = (".npy", ".npz")
Row = dict[str, Any]


def describe_inputs(
    kind: str, classes: Sequence[str] = (), encoder: TableEncoder | None = None, target: str = ""
) -> dict[str, bytes]:
    """Return `inputs.json` as a file of a run folder."""
    about: dict[str, Any] = {"kind": kind, "classes": list(classes), "target": target}
    if encoder is not None:
        about["encoder"] = encoder.to_json()
    return {INPUTS: (json.dumps(about, indent=2, ensure_ascii=False) + "\n").encode()}


def inputs_at(split: Split, index: Tensor) -> Tensor:
    """Inputs of a model: pixels from 0 to 1, or rows of a table."""
    return split["image"][index].float() / 255 if "image" in split else split["point"][index]


def predict_split(model: nn.Module, split: Split) -> Tensor:
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
            for names, x in self.read(path, batch):
                yield [{"input": name, **row} for name, row in zip(names, self.rows(x), strict=True)]

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
    """Base of predictors whose model gives logits of classes, or numbers."""

    def __init__(self, model: nn.Module, about: Mapping[str, Any]) -> None:
        self.model, self.classes = model, tuple(about["classes"])

    @abstractmethod
    def to_tensor(self, x: Any) -> Tensor:
        """Convert inputs to what the model takes."""

    @torch.no_grad()
    def outputs(self, x: Any) -> Tensor:
        """Outputs of the model: logits N × K, or numbers N."""
        was, _ = self.model.training, self.model.eval()
        try:
            return torch.cat([self.model(part) for part in self.to_tensor(x).split(BATCH)])
        finally:
            self.model.train(was)

    def predict(self, x: Any) -> npt.NDArray[Any]:
        """Predict class names, or numbers."""
        outputs = self.outputs(x)
        return np.array(self.classes)[outputs.argmax(1).numpy()] if self.classes else outputs.numpy()

    def predict_proba(self, x: Any) -> npt.NDArray[np.float32]:
        """Predict the probabilities of the classes, N × K."""
        if not self.classes:
            raise EngramError("A regression model predicts numbers, not probabilities.")
        return self.outputs(x).softmax(1).numpy()

    def rows(self, x: Any) -> list[Row]:
        outputs = self.outputs(x)
        if not self.classes:
            return [{"prediction": value} for value in outputs.tolist()]
        found = []
        for p_K in outputs.softmax(1):
            best = int(p_K.argmax())
            each = {f"p({name})": p for name, p in zip(self.classes, p_K.tolist(), strict=True)}
            found.append({"prediction": self.classes[best], "probability": p_K[best].item(), **each})
        return found


class ImagePredictor(Classifies):
    """Classifies images: files, PIL images or arrays, resized to the shape that the model takes."""

    suffixes = (*SUFFIXES, *ARRAYS)

    def __init__(self, model: nn.Module, about: Mapping[str, Any]) -> None:
        super().__init__(model, about)
        config: Any = model.config
        self.shape = tuple(config.shape)
        self.preprocess = Preprocess.resize_to(self.shape)

    def to_tensor(self, x: Any) -> Tensor:
        if isinstance(x, (str, Path, Image.Image)):
            x = [x]
        if isinstance(x, (list, tuple)) and x and isinstance(x[0], (str, Path, Image.Image)):
            return torch.cat([self.load(one) for one in x])
        image = torch.as_tensor(np.asarray(x) if not isinstance(x, Tensor) else x)
        if image.ndim == 3 and tuple(image.shape) != self.shape:
            image = image[:, None]  # N × H × W
        elif image.ndim == 3:
            image = image[None]
        if image.ndim == 2 and image.shape[1] == math.prod(self.shape):
            image = image.reshape(-1, *self.shape)
        if image.ndim == 4 and tuple(image.shape[1:]) == (*self.shape[1:], self.shape[0]):
            image = image.permute(0, 3, 1, 2)
        if tuple(image.shape[1:]) != self.shape:
            raise EngramError(f"The model takes images of shape {self.shape}, and {tuple(image.shape[1:])} was given.")
        return image.float() / 255 if not image.is_floating_point() else image.float()

    def load(self, image: str | Path | Image.Image) -> Tensor:
        """Load one image as the model takes it, 1 × C × H × W from 0 to 1."""
        if isinstance(image, Image.Image):
            return self.preprocess([image])
        if not Path(image).is_file():
            raise EngramError(f"There is no image {image}.")
        with open_image(Path(image)) as opened:
            return self.preprocess([opened])

    def read(self, path: Path, batch: int) -> Iterator[tuple[list[str], Any]]:
        if path.suffix.lower() not in ARRAYS:
            yield [str(path)], [path]
            return
        x = read_inputs(path)
        for start in range(0, len(x), batch):
            part = x[start : start + batch]
            yield [f"{path}:{start + i}" for i in range(len(part))], part


class TablePredictor(Classifies):
    """Predicts the target of rows of a table: CSV or Parquet files, data frames, arrays."""

    suffixes = (".csv", ".parquet", *ARRAYS)

    def __init__(self, model: nn.Module, about: Mapping[str, Any]) -> None:
        super().__init__(model, about)
        self.encoder = TableEncoder.from_json(about["encoder"])

    def to_tensor(self, x: Any) -> Tensor:
        if is_frame(x):
            x = frame_to_table(x)
        if not isinstance(x, Table):
            array = np.asarray(x.detach() if isinstance(x, Tensor) else x, dtype=np.float64)
            names = [feature.name for feature in self.encoder.features]
            if array.ndim != 2 or array.shape[1] != len(names):
                raise EngramError(
                    f"The model takes rows of {len(names)} columns, and an array {array.shape} was given."
                )
            x = Table(dict(zip(names, array.T, strict=True)))
        return torch.from_numpy(self.encoder.encode(x))

    def read(self, path: Path, batch: int) -> Iterator[tuple[list[str], Any]]:
        x = read_inputs(path) if path.suffix.lower() in ARRAYS else read_table(path)
        for start in range(0, len(x), batch):
            part = x[start : start + batch]
            yield [f"{path}:{start + i}" for i in range(len(part))], part


class TextPredictor(Predictor):
    """Base of predictors of lines of text."""

    suffixes = (".txt",)

    def __init__(self, model: nn.Module, about: Mapping[str, Any]) -> None:
        self.model: Any = model.eval()
        tokenizer: Any = model.tokenizer
        self.tokenizer: Tokenizer = tokenizer

    def predict(self, x: Any) -> list[str]:
        """Predict a text for each text."""
        return [row["prediction"] for row in self.rows(x)]

    def rows(self, x: Any) -> list[Row]:
        texts = [x] if isinstance(x, str) else list(x)
        with torch.no_grad():
            return self.predict_texts(texts)

    @abstractmethod
    def predict_texts(self, texts: list[str]) -> list[Row]:
        """Predict a row for each text."""

    def read(self, path: Path, batch: int) -> Iterator[tuple[list[str], Any]]:
        text = sys.stdin.read() if str(path) == "-" else read_text_file(path)
        lines = text.splitlines()
        for start in range(0, len(lines), batch):
            part = lines[start : start + batch]
            yield [f"{path}:{start + i + 1}" for i in range(len(part))], part


class Translator(TextPredictor):
    """Translates texts by greedy decoding, in batches of similar lengths."""

    def predict_texts(self, texts: list[str]) -> list[Row]:
        sources = [row[: self.model.config.context] for row in self.tokenizer.encode_batch(texts)]
        found = translate_rows(self.model, self.tokenizer, sources, TRANSLATED)
        return [{"text": text, "prediction": translation} for text, translation in zip(texts, found, strict=True)]


class FillMask(TextPredictor):
    """Fills in the masked tokens of texts, each with the most probable token."""

    def predict_texts(self, texts: list[str]) -> list[Row]:
        return [self.fill(text) for text in texts]

    def fill(self, text: str) -> Row:
        """Fill in the masks of one text."""
        ids = torch.tensor(self.tokenizer.encode(text)[: self.model.config.context])
        masked = ids.eq(-1 if self.tokenizer.mask_id is None else self.tokenizer.mask_id)
        if not masked.any():
            raise EngramError(f'The text "{text[:60]}" has no [MASK]: write it where a token is to be filled in.')
        best = self.model(ids[None])[0][masked].softmax(-1).max(-1)
        filled = ids.masked_scatter(masked, best.indices)
        tokens = [self.tokenizer.token(i).strip() for i in best.indices.tolist()]
        return {"text": text, "prediction": self.tokenizer.decode(filled.tolist()), "tokens": " ".join(tokens),
                "probability": best.values.prod().item()}  # fmt: skip


KINDS: dict[str, Callable[[nn.Module, Mapping[str, Any]], Predictor]] = {
    "images": ImagePredictor,
    "table": TablePredictor,
    "translation": Translator,
    "masked text": FillMask,
}


def find_predictor(model: nn.Module, folder: Path) -> Predictor | None:
    """Return the predictor of a run's model; None if its recipe predicts nothing."""
    try:
        about = json.loads((folder / INPUTS).read_text(encoding="utf-8"))
        return KINDS[about["kind"]](model, about)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EngramError(f"{folder / INPUTS} is damaged: {error}.") from error
