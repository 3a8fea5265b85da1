"""Predictors by the kind of input: images, rows of a table, time series, lines of text."""

import json
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor, nn

from engram.core.errors import EngramError
from engram.data.arrays import read_inputs
from engram.data.checks import check_finite
from engram.data.csv_files import read_pixel_rows, read_table
from engram.data.frames import frame_to_table, is_frame
from engram.data.image_files import SUFFIXES
from engram.data.preprocess import Preprocess
from engram.data.series import read_series
from engram.data.table import Table, TableEncoder
from engram.data.text_files import read_text_file
from engram.data.tokenizer import Tokenizer
from engram.hub.classify import load_image
from engram.hub.huggingface import Checkpoint
from engram.hub.predict import INPUTS, ClassifiesTensors, Predictor, Row, translate_rows
from engram.hub.text_classes import TextClassPredictor

TRANSLATED = 32
"""texts translated at a time"""
ARRAYS = (".npy", ".npz")


class ImagePredictor(ClassifiesTensors):
    """Classifies images: files, PIL images, which are resized, or arrays and rows of pixels."""

    suffixes = (*SUFFIXES, *ARRAYS)

    def __init__(self, model: nn.Module, about: Mapping[str, Any]) -> None:
        super().__init__(model, about)
        self.shape = tuple(about["shape"])
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
        check_finite("the array", "image", image)
        return image.float() / 255 if not image.is_floating_point() else image.float()

    def load(self, image: str | Path | Image.Image) -> Tensor:
        """Load one image as the model takes it, 1 × C × H × W from 0 to 1."""
        if isinstance(image, Image.Image):
            return self.preprocess([image])
        return load_image(str(image), self.shape, self.preprocess)

    def read(self, path: Path, batch: int) -> Iterator[tuple[list[str], Any]]:
        if path.suffix.lower() not in (*ARRAYS, ".csv"):
            yield [str(path)], [path]
            return
        x = read_inputs(path) if path.suffix.lower() in ARRAYS else read_pixel_rows(path, math.prod(self.shape))
        if x.dtype.kind == "f" and x.max() > 1:
            x = x / 255  # as in training
        for start in range(0, len(x), batch):
            part = x[start : start + batch]
            yield [f"{path}:{start + i}" for i in range(len(part))], part


class TablePredictor(ClassifiesTensors):
    """Predicts the target of rows of a table: CSV or Parquet files, data frames, arrays."""

    suffixes = (".csv", ".parquet", *ARRAYS)
    standard_input = ".csv"

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
        if path.suffix.lower() in SUFFIXES:
            raise EngramError(f"The model takes rows of a table, and {path} is an image.")
        x = read_inputs(path) if path.suffix.lower() in ARRAYS else read_table(path)
        for start in range(0, len(x), batch):
            part = x[start : start + batch]
            yield [f"{path}:{start + i}" for i in range(len(part))], part


class SeriesPredictor(Predictor):
    """Predicts the next value of a time series at every step: T × I numbers, or files of a row per step."""

    suffixes = (".csv", ".npy")
    standard_input = ".csv"

    def __init__(self, model: nn.Module, about: Mapping[str, Any]) -> None:
        self.model: Any = model
        self.mean_I, self.std_I = torch.tensor(about["mean"]), torch.tensor(about["std"])

    @torch.no_grad()
    def predict(self, x: Any) -> npt.NDArray[np.float64]:
        """Predict the values that follow each step, T × I: the last row lies one step after the series."""
        if is_frame(x):
            x = x.to_numpy()
        x_TI = torch.as_tensor(np.asarray(x, dtype=np.float64))
        x_TI = x_TI[:, None] if x_TI.ndim == 1 else x_TI
        if x_TI.ndim != 2 or x_TI.shape[1] != len(self.mean_I):
            raise EngramError(
                f"The model takes {len(self.mean_I)} values at every step, and an array {tuple(x_TI.shape)} was given."
            )
        predicted_TI = self.model(((x_TI - self.mean_I) / self.std_I).float()[None])[0]
        return (predicted_TI.double() * self.std_I + self.mean_I).numpy()

    def rows(self, x: Any) -> list[Row]:
        names = ["prediction"] if len(self.mean_I) == 1 else [f"prediction {i}" for i in range(len(self.mean_I))]
        return [dict(zip(names, values, strict=True)) for values in self.predict(x).tolist()]

    def read(self, path: Path, batch: int) -> Iterator[tuple[list[str], Any]]:
        x_TI = read_series(path)
        yield [f"{path}:{i + 1}" for i in range(len(x_TI))], x_TI


class TextPredictor(Predictor):
    """Base of predictors of lines of text."""

    suffixes = (".txt",)
    standard_input = ".txt"
    writes_lines = True

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
        lines = read_text_file(path).splitlines()
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
        return [self.fill_mask(text) for text in texts]

    def fill_mask(self, text: str) -> Row:
        """Fill in the masks of one text."""
        ids = torch.tensor(self.tokenizer.encode(text)[: self.model.config.context])
        masked = ids.eq(-1 if self.tokenizer.mask_id is None else self.tokenizer.mask_id)
        if not masked.any():
            mask = self.tokenizer.mask_token
            raise EngramError(f'The text "{text[:60]}" has no {mask}: write it where a token is to be filled in.')
        best = self.model(ids[None])[0][masked].softmax(-1).max(-1)
        filled = ids.masked_scatter(masked, best.indices)
        tokens = [self.tokenizer.token(i).strip() for i in best.indices.tolist()]
        return {"text": text, "prediction": self.tokenizer.decode(filled.tolist()), "tokens": " ".join(tokens),
                "probability": best.values.prod().item()}  # fmt: skip


KINDS: dict[str, Callable[[nn.Module, Mapping[str, Any]], Predictor]] = {
    "images": ImagePredictor,
    "table": TablePredictor,
    "series": SeriesPredictor,
    "translation": Translator,
    "masked text": FillMask,
    "text classes": TextClassPredictor,
}


def find_checkpoint_predictor(found: Checkpoint) -> Predictor | None:
    """Return the predictor of a checkpoint: translator, masked language model or classifier."""
    model: Any = found.model
    if found.tokenizer is not None and getattr(model, "classifies_texts", False):
        return TextClassPredictor(model, {"classes": found.classes})
    if found.tokenizer is not None and hasattr(model, "translate"):
        return Translator(model, {})
    if found.tokenizer is not None and getattr(model.config, "masked", False):
        return FillMask(model, {})
    count = getattr(model.config, "classes", 0)
    if not isinstance(count, int) or not count or not hasattr(model.config, "shape"):
        return None
    names = [found.classes[i] if i < len(found.classes) else str(i) for i in range(count)]
    predictor = ImagePredictor(model, {"classes": names, "probabilities": True, "shape": model.config.shape})
    predictor.preprocess = found.preprocess or predictor.preprocess
    return predictor


def find_predictor(model: nn.Module, folder: Path) -> Predictor | None:
    """Return the predictor of a run's model; None if its recipe predicts nothing."""
    try:
        about = json.loads((folder / INPUTS).read_text(encoding="utf-8"))
        return KINDS[about["kind"]](model, about)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EngramError(f"{folder / INPUTS} is damaged: {error}.") from error
