"""The tensors of a checkpoint: one safetensors file or several, or the pickles of old, read as tensors only."""

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.training.files import read_json

FILES = ("model.safetensors", "pytorch_model.bin")
"""what the weights may be called, the best first; beside each there may be an index of several files"""


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Every tensor by its name in the file, as float32."""
    for name in FILES:
        if (folder / name).exists():
            return _floats(_open(folder / name))
        index = folder / f"{name}.index.json"
        if index.exists():
            return _floats(_shards(index))
    raise EngramError(f"There are no weights in {folder}: neither {' nor '.join(FILES)} is there.")


def _shards(index: Path) -> dict[str, Tensor]:
    """Tensors that are spread over several files, as the index says."""
    about = read_json(index)
    where = about.get("weight_map") if isinstance(about, dict) else None
    if not isinstance(where, dict) or not all(Path(str(name)).name == name for name in where.values()):
        raise EngramError(f"{index} is damaged: it should say which tensor is in which file of its folder.")
    found: dict[str, Tensor] = {}
    for file in sorted(set(where.values())):
        if not is_there(index.parent / file):
            raise EngramError(f"{index.parent / file} is missing: {index.name} names it.")
        found |= _open(index.parent / file)
    return found


def is_there(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _open(path: Path) -> dict[str, Tensor]:
    reader: Callable[[Path], Any] = safetensors.torch.load_file if path.suffix == ".safetensors" else _unpickle
    if not is_there(path):
        raise EngramError(f"{path} cannot be read: it is not a file.")
    try:
        found = reader(path)
    except EngramError:
        raise
    except Exception as error:  # what safetensors, torch, zipfile and pickles say of damage has no common kind
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise EngramError(f"{path} is damaged: {reason}.") from None
    if not isinstance(found, Mapping) or not all(isinstance(value, Tensor) for value in found.values()):
        raise EngramError(f"{path} holds something else than tensors by their names.")
    return dict(found)


def _unpickle(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise EngramError(f"{path} is not opened: it is damaged, or would run code of its own.") from None


def _floats(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.float() if value.is_floating_point() else value for name, value in weights.items()}
