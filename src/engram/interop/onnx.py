"""Transformers as ONNX files, for programs that have no Python: any number of rows, and texts of any length.

    GPT            ids (B × T)                              → logits (B × T × V)
    BERT           ids, valid (B × T, true but for padding) → logits, or vectors (B × T × E) without a head
    ViT            picture (B × C × H × W, from 0 to 1)     → logits (B × K)
    CLIP           picture, text (K × T)                    → logits (B × K)
    Transformer    source (B × S), target (B × T)           → logits (B × T × V)

A graph holds no complex numbers, so rotary positions are put differently first. And the models are exported while
their attention is watched: then BERT masks padding instead of leaving it out, and attention is the textbook's.
"""

import copy
import importlib.util
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.export import Dim

from engram.core.errors import EngramError
from engram.core.tap import watch
from engram.layers.position import Rotary
from engram.models.bert import BERT
from engram.models.clip import CLIP
from engram.models.gpt import GPT
from engram.models.transformer import Transformer
from engram.models.vit import ViT
from engram.training.files import write

LARGEST = 2**31 - 1
"""bytes of an ONNX file, which is a protocol buffer"""


class RealRotary(nn.Module):
    """Rotary positions without complex numbers: (a + ib)(c + is) = (ac - bs) + i(as + bc)."""

    def __init__(self, rotary: Rotary) -> None:
        super().__init__()
        self.register_buffer("turn_TD2", rotary.turn_TD2, persistent=False)
        self.turn_TD2: Tensor

    def forward(self, x_BTHD: Tensor, start: int = 0, place_BT: Tensor | None = None) -> Tensor:
        assert place_BT is None
        c, s = self.turn_TD2[start : start + x_BTHD.shape[1], None].unbind(-1)
        a, b = x_BTHD.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2)


class Vectors(nn.Module):
    """A BERT that has no head, as something to call."""

    def __init__(self, model: BERT) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, valid: Tensor) -> Tensor:
        return self.model.encode(ids, valid)


class Signature(NamedTuple):
    """What goes in: example values, and the names of the dimensions that may be of any size."""

    examples: dict[str, Tensor]
    free: dict[str, dict[int, str]]
    output: str = "logits"


def write_onnx(model: nn.Module, path: Path) -> Path:
    """Write a model as one file."""
    if type(model) not in SIGNATURES:
        known = ", ".join(kind.__name__ for kind in SIGNATURES)
        raise EngramError(f"A {type(model).__name__} cannot be written as ONNX; {known} can.")
    if any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxscript")):
        raise EngramError("Writing ONNX needs the packages onnx and onnxscript: pip install engram[onnx].")
    size = sum(value.numel() * value.element_size() for value in model.parameters())
    if size > LARGEST:
        raise EngramError(f"An ONNX file holds at most 2 GB, and this model has {size / 1e9:.1f} GB of weights.")
    write(Path(path), _exported(model))
    return Path(path)


def _exported(model: nn.Module) -> bytes:
    signature = SIGNATURES[type(model)](model)
    sizes = {name: Dim(name) for dims in signature.free.values() for name in dims.values()}
    shapes = tuple({at: sizes[name] for at, name in dims.items()} for dims in signature.free.values())
    model = _exportable(model)
    with torch.no_grad(), _quietly(), watch(model, "*.weights"):
        program = torch.onnx.export(
            model, tuple(signature.examples.values()), dynamo=True, dynamic_shapes=shapes, verbose=False,
            input_names=list(signature.examples), output_names=[signature.output],
        )  # fmt: skip
    assert program is not None
    return program.model_proto.SerializeToString()


class _quietly(warnings.catch_warnings):  # type: ignore[type-arg]
    """The exporter speaks of its own internals."""

    def __enter__(self) -> Any:
        entered = super().__enter__()
        warnings.simplefilter("ignore")
        self.logger = logging.getLogger("torch.onnx")
        self.level = self.logger.level
        self.logger.setLevel(logging.ERROR)
        return entered

    def __exit__(self, *exception: Any) -> None:
        self.logger.setLevel(self.level)
        super().__exit__(*exception)


def _exportable(model: nn.Module) -> nn.Module:
    """A copy of the model, in forms that a graph can hold."""
    model = copy.deepcopy(model).cpu().float().eval().requires_grad_(False)
    for module in model.modules():
        rotary = getattr(module, "rotary", None)
        if isinstance(rotary, Rotary):
            module.rotary = RealRotary(rotary)
    return Vectors(model) if isinstance(model, BERT) and not model.config.masked else model


def _ids(vocabulary: int, context: int, rows: int = 2) -> Tensor:
    """An example of a text: of more than one row and token, which the exporter would take for the only size."""
    return torch.arange(rows * min(4, context)).view(rows, -1) % vocabulary


def _gpt(model: Any) -> Signature:
    ids = _ids(model.config.vocabulary, model.config.context)
    return Signature({"ids": ids}, {"ids": {0: "batch", 1: "length"}})


def _bert(model: Any) -> Signature:
    ids = _ids(model.config.vocabulary, model.config.context)
    free = {0: "batch", 1: "length"}
    output = "logits" if model.config.masked else "vectors"
    return Signature({"ids": ids, "valid": torch.ones_like(ids).bool()}, {"ids": free, "valid": free}, output)


def _vit(model: Any) -> Signature:
    return Signature({"picture": torch.zeros(2, *model.config.shape)}, {"picture": {0: "batch"}})


def _clip(model: Any) -> Signature:
    picture, text = torch.zeros(2, *model.config.shape), _ids(model.config.vocabulary, model.config.context, 3)
    free = {"picture": {0: "batch"}, "text": {0: "texts", 1: "length"}}
    return Signature({"picture": picture, "text": text}, free)


def _transformer(model: Any) -> Signature:
    ids = _ids(model.config.vocabulary, model.config.context)
    free = {"source": {0: "batch", 1: "source_length"}, "target": {0: "batch", 1: "length"}}
    return Signature({"source": ids + 1, "target": ids[:, :-1]}, free)


SIGNATURES: dict[type[nn.Module], Callable[[Any], Signature]] = {
    GPT: _gpt, BERT: _bert, ViT: _vit, CLIP: _clip, Transformer: _transformer,
}  # fmt: skip
