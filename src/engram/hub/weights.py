"""Read the state dict of a checkpoint.

Safetensors or pytorch_model.bin, one file or shards with an index.
"""

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.core.files import read_json

FILES = ("model.safetensors", "pytorch_model.bin")
"""file names of weights, the preferred first; each may be an index of shards instead (NAME.index.json)"""


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Read all tensors by key, floating-point ones as float32."""
    for name in FILES:
        if (folder / name).exists():
            return _to_float32(_read_file(folder / name))
        index = folder / f"{name}.index.json"
        if index.exists():
            return _to_float32(_read_shards(index))
    raise EngramError(f"There are no weights in {folder}: neither {' nor '.join(FILES)} is there.")


def _read_shards(index: Path) -> dict[str, Tensor]:
    """Read the tensors of all shards that an index lists."""
    about = read_json(index)
    where = about.get("weight_map") if isinstance(about, dict) else None
    if not isinstance(where, dict) or not all(Path(str(name)).name == name for name in where.values()):
        raise EngramError(f"{index} is damaged: it should say which tensor is in which file of its folder.")
    found: dict[str, Tensor] = {}
    for file in sorted(set(where.values())):
        if not is_file(index.parent / file):
            raise EngramError(f"{index.parent / file} is missing: {index.name} names it.")
        found |= _read_file(index.parent / file)
    return found


def is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _read_file(path: Path) -> dict[str, Tensor]:
    reader: Callable[[Path], Any] = safetensors.torch.load_file if path.suffix == ".safetensors" else _unpickle
    if not is_file(path):
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


def _to_float32(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.float() if value.is_floating_point() else value for name, value in weights.items()}
