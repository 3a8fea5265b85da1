"""Text embeddings: one vector for each text, pooled from the vectors of its tokens.

model = engram.load("minilm")
vectors = model.embed(["a king", "a queen"])     # N × E, of length 1: their products are cosine similarities

A text is as long as the model's context at most; what follows is cut off.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.data.text_pairs import pad_rows

Pooling = Literal["auto", "mean", "cls", "last"]
"""mean over all tokens, the first token, or the last one; auto: last of a causal model, mean of others"""


class TextEmbedder:
    """Embeds texts with a model that encodes tokens as vectors."""

    def __init__(self, model: Any) -> None:
        self.model = model

    @torch.no_grad()
    def __call__(
        self, texts: str | Sequence[str], *, pooling: Pooling = "auto", normalize: bool = True, batch: int = 64
    ) -> npt.NDArray[np.float32]:
        """Return the vectors of texts, N × E; batches are of similar lengths and without padding."""
        texts = [texts] if isinstance(texts, str) else list(texts)
        context, tokenizer = self.model.config.context, self.model.tokenizer
        rows = [row[:context] for row in tokenizer.encode_batch(texts)]
        if empty := [i for i, row in enumerate(rows) if not row]:
            raise EngramError(f"Text {empty[0] + 1} of {len(texts)} has no tokens, and so no vector.")
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        vectors = torch.empty(len(rows), self.model.config.width)
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            vectors[chosen] = self.pool([rows[i] for i in chosen], pooling)
        return (torch.nn.functional.normalize(vectors) if normalize else vectors).numpy()

    def pool(self, rows: list[list[int]], pooling: Pooling) -> Tensor:
        """Return the vector of each row of tokens, B × E."""
        length_B = torch.tensor([len(row) for row in rows])
        x_BT = pad_rows(rows, 0)
        h_BTE = self.model.encode(x_BT, torch.arange(x_BT.shape[1]) < length_B[:, None])
        if pooling == "auto":
            pooling = "last" if hasattr(self.model, "make_decoder") else "mean"
        if pooling == "mean":
            return h_BTE.sum(1) / length_B[:, None]
        return h_BTE[:, 0] if pooling == "cls" else h_BTE[torch.arange(len(rows)), length_B - 1]
