"""Classes of texts: logits in batches of similar lengths, and the predictor of a text classifier.

model = engram.load("runs/text-classifier-1")
model.predict(["a fine film", "a waste of time"])          # class names
model.predict_proba(["a fine film", "a waste of time"])    # N × K
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engram.data.frames import frame_to_table, is_frame
from engram.data.labeled_texts import (
    TABLES,
    Columns,
    TextColumns,
    encode_texts,
    find_text,
    read_columns,
    table_cells,
)
from engram.data.text_files import read_text_file
from engram.data.text_pairs import pad_rows
from engram.hub.predict import Classifies, Row

BATCH = 64
"""texts that a model sees at once"""


def classify_rows(model: Any, rows: Sequence[list[int]]) -> Tensor:
    """Logits of texts given as tokens, N × K."""
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    logits_NK = torch.empty(len(rows), model.config.classes)
    with torch.no_grad():
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            logits_NK[chosen] = model(*pad_with_mask([rows[i] for i in chosen]))
    return logits_NK


def pad_with_mask(rows: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
    """Return tokens as B × T, and which of them are no padding."""
    length_B = torch.tensor([len(row) for row in rows])
    x_BT = pad_rows(rows, 0)
    return x_BT, torch.arange(x_BT.shape[1]) < length_B[:, None]


class TextClassPredictor(Classifies):
    """Predicts the classes of texts: lines of a text file, or a column of a table."""

    suffixes = (".txt", *TABLES)
    standard_input = ".txt"

    def __init__(self, model: nn.Module, about: Mapping[str, Any]) -> None:
        super().__init__(model, {"probabilities": True, **about})
        self.text_column: str = about.get("text_column", "")

    def outputs(self, x: Any) -> Tensor:
        model: Any = self.model
        return classify_rows(model.eval(), encode_texts(model.tokenizer, self.texts(x), model.config.context))

    def texts(self, x: Any) -> list[str]:
        """Return a text, texts, a column of texts, or those of a data frame as a list."""
        if is_frame(x):
            return self.column(table_cells(frame_to_table(x)))
        return [x] if isinstance(x, str) else list(x)

    def column(self, cells: Columns) -> list[str]:
        """Return the texts of a table."""
        return list(cells[find_text(cells, self.text_column)])

    def rows(self, x: Any) -> list[Row]:
        return [{"text": text, **row} for text, row in zip(self.texts(x), super().rows(x), strict=True)]

    def read(self, path: Path, batch: int) -> Iterator[tuple[list[str], Any]]:
        is_table = path.suffix.lower() in TABLES
        columns = TextColumns(text_column=self.text_column)
        texts = self.column(read_columns(path, columns)) if is_table else read_text_file(path).splitlines()
        for start in range(0, len(texts), batch):
            part = texts[start : start + batch]
            yield [f"{path}:{start + i + 1}" for i in range(len(part))], part
