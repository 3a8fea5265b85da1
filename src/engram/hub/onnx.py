"""ONNX export, with dynamic batch size and sequence length.

export_onnx(model, Path("model.onnx"), recipe="cnn", classes=["cat", "dog"])

The signature of a model is registered beside it, in `onnx.py` of its system or part: names, shapes and descriptions of
inputs and outputs. Kernels are replaced by the operations they compute:

    attention        the reference form, as its weights are watched; then BERT masks padding instead of unpadding
    RoPE             a real form, for ONNX has no complex numbers
    recurrent cell   one ONNX Scan of its time step

The metadata of a file, all strings:

    engram.recipe, engram.version    what trained the model
    input, output                    JSON object: description of each input and output
    classes                          JSON list of class names, of a model with classes
    table                            JSON object, of a model of a table: encoded columns in the order of the input,
                                     the target, and the features: their categories (levels), what a missing
                                     value is imputed with (fill_value), and whether a column indicates that it
                                     was missing
"""

import contextlib
import copy
import importlib.util
import json
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.export import Dim

from engram import __version__
from engram.core.errors import EngramError
from engram.core.files import write
from engram.core.registry import discover, registry
from engram.core.tap import watch
from engram.nn.attention import Attention
from engram.nn.position import RotaryEmbedding

MAX_BYTES = 2**31 - 1
"""limit of an ONNX file, which is a protocol buffer"""
LOGITS = {"logits": "logits of the classes, batch × classes; softmax turns them into probabilities"}
"""output of a classifier"""


class Input(NamedTuple):
    """An input of an exported model: example, names of the dynamic dimensions, and description."""

    example: Tensor
    """sizes of dynamic dimensions are above 1: the exporter takes 0 and 1 for constants"""
    dynamic: dict[int, str]
    description: str


class Signature(NamedTuple):
    """Inputs and outputs of an exported model, by name."""

    inputs: dict[str, Input]
    outputs: dict[str, str]
    """description of each output"""
    wrap: Callable[[Any], nn.Module] = lambda model: model
    """returns the module to export, made of a copy of the model"""
    classes: int = 0
    """number of classes whose names are written into the file"""
    metadata: dict[str, str] = {}
    """further metadata"""


def image_input(shape: Sequence[int]) -> Input:
    """Return the input of a model of images C × H × W."""
    size = " × ".join(map(str, shape))
    description = f"images, float32, batch × {size}: pixels from 0 to 1; the model itself normalizes them"
    return Input(torch.zeros(2, *shape), {0: "batch"}, description)


def sample_input(shape: Sequence[int]) -> dict[str, Input]:
    """Return the input of a model of images, or of points and rows of a table if the shape is one number."""
    if len(shape) == 3:
        return {"image": image_input(shape)}
    description = f"points or encoded rows of a table, float32, batch × {shape[0]}; the model itself normalizes them"
    return {"point": Input(torch.zeros(2, *shape), {0: "batch"}, description)}


def ids_input(vocabulary: int, context: int, *, batch: str = "batch", length: str = "length") -> Input:
    """Return the input of a model of tokens; `batch` and `length` name its dimensions."""
    example = torch.arange(2 * min(4, context)).view(2, -1) % vocabulary
    description = f"token ids, int64, {batch} × {length}: from 0 to {vocabulary - 1}"
    return Input(example, {0: batch, 1: length}, description)


# ---------------------------------------------------------------------- export


def export_onnx(
    model: nn.Module,
    path: Path,
    *,
    recipe: str = "",
    classes: Sequence[str] = (),
    table: Mapping[str, Any] | None = None,
) -> list[Path]:
    """Export a model to an ONNX file, or to one for each of its parts; returns where they are.

    Args:
        model: model of a class with a signature
        path: file to write, .onnx if it has no ending; the name of a part is put before it, as in model.encoder.onnx
        recipe: name of the recipe that trained the model, for the metadata
        classes: class names, for the metadata
        table: encoding of the rows of a table, for the metadata
    """
    path, parts = Path(path), find_signatures(model, recipe)
    path = path if path.suffix else path.with_suffix(".onnx")
    further = {} if table is None else {"table": _to_json(table)}
    if any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxscript")):
        raise EngramError("Writing ONNX needs the packages onnx and onnxscript: pip install engram[onnx].")
    size = sum(value.numel() * value.element_size() for value in model.parameters())
    if size > MAX_BYTES:
        raise EngramError(f"An ONNX file holds at most 2 GB, and this model has {size / 1e9:.1f} GB of weights.")
    paths = []
    for part, signature in parts.items():
        paths.append(path.with_name(f"{path.stem}.{part}{path.suffix}") if part else path)
        write(paths[-1], _export(model, signature, {**_metadata(signature, recipe, classes), **further}))
    return paths


def count_classes(model: nn.Module, recipe: str = "") -> int:
    """Return the number of classes whose names an exported model needs; 0 for most models."""
    return max(signature.classes for signature in find_signatures(model, recipe).values())


def _metadata(signature: Signature, recipe: str, classes: Sequence[str]) -> dict[str, str]:
    about = {
        "engram.version": __version__,
        "input": _to_json({name: one.description for name, one in signature.inputs.items()}),
        "output": _to_json(signature.outputs),
        **signature.metadata,
    }
    if recipe:
        about["engram.recipe"] = recipe
    if classes and len(classes) == signature.classes:
        about["classes"] = _to_json(list(classes))
    return about


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _export(model: nn.Module, signature: Signature, metadata: dict[str, str]) -> bytes:
    names, inputs = list(signature.inputs), list(signature.inputs.values())
    sizes = {name: Dim(name) for one in inputs for name in one.dynamic.values()}
    shapes = tuple({at: sizes[name] for at, name in one.dynamic.items()} for one in inputs)
    model = signature.wrap(_prepare(model))
    with torch.no_grad(), _silence_exporter(), _reference_attention(model):
        program = torch.onnx.export(
            model, tuple(one.example for one in inputs), dynamo=True, dynamic_shapes=shapes, verbose=False,
            input_names=names, output_names=list(signature.outputs),
        )  # fmt: skip
    assert program is not None
    for value, one in zip(program.model.graph.inputs, inputs, strict=True):
        assert value.shape is not None
        assert not any(isinstance(value.shape[at], int) for at in one.dynamic), f"{value.name} has a fixed size"
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # stack traces with paths of this machine
    program.model.metadata_props.update(metadata)
    return program.model_proto.SerializeToString()


def _reference_attention(model: nn.Module) -> contextlib.AbstractContextManager[Any]:
    """Context manager: attention runs in its reference form.

    Models without run unwatched, as a Scan needs.
    """
    attends = any(isinstance(module, Attention) for module in model.modules())
    return watch(model, "*.weights") if attends else contextlib.nullcontext()


class _silence_exporter(warnings.catch_warnings):  # type: ignore[type-arg]
    """Context manager: suppress warnings and log messages of the exporter."""

    def __enter__(self) -> Any:
        entered = super().__enter__()
        warnings.simplefilter("ignore")
        self.levels = {logger: logger.level for logger in map(logging.getLogger, ("torch.onnx", "onnxscript"))}
        for logger in self.levels:
            logger.setLevel(logging.ERROR)
        return entered

    def __exit__(self, *exception: Any) -> None:
        for logger, level in self.levels.items():
            logger.setLevel(level)
        super().__exit__(*exception)


def _prepare(model: nn.Module) -> nn.Module:
    """Return a copy of the model without complex numbers, on the CPU in float32."""
    model = copy.deepcopy(model).cpu().float().eval().requires_grad_(False)
    for module in model.modules():
        rotary = getattr(module, "rotary", None)
        if isinstance(rotary, RotaryEmbedding):
            module.rotary = RealRotaryEmbedding(rotary)
    return model


class RealRotaryEmbedding(nn.Module):
    """Rotary position embedding without complex numbers: (a + ib)(c + is) = (ac - bs) + i(as + bc)."""

    def __init__(self, rotary: RotaryEmbedding) -> None:
        super().__init__()
        self.register_buffer("cos_sin_TR2", rotary.cos_sin_TR2, persistent=False)
        self.cos_sin_TR2: Tensor

    def forward(self, x_BTHD: Tensor, start: int = 0, position_ids_BT: Tensor | None = None) -> Tensor:
        assert position_ids_BT is None
        c, s = self.cos_sin_TR2[start : start + x_BTHD.shape[1], None].unbind(-1)
        a, b = x_BTHD.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2)


# ---------------------------------------------------------------------- signatures

SignatureFunction = Callable[[Any], Signature]
_signatures: dict[type[nn.Module], dict[str, SignatureFunction]] = {}


def onnx_signature(model: type[nn.Module], part: str = "") -> Callable[[SignatureFunction], SignatureFunction]:
    """Decorator: register the function that returns the signature of a model class, or of a part."""

    def register(function: SignatureFunction) -> SignatureFunction:
        _signatures.setdefault(model, {})[part] = function
        return function

    return register


def find_signatures(model: nn.Module, recipe: str = "") -> dict[str, Signature]:
    """Return the signature of each part of a model; a whole model is the part ""."""
    discover("onnx")
    if type(model) not in _signatures:
        known = ", ".join(name for name, cls in registry().items() if cls.Model in _signatures)
        raise EngramError(f"{recipe or type(model).__name__} cannot be written as ONNX; the models of {known} can.")
    return {part: function(model) for part, function in _signatures[type(model)].items()}
