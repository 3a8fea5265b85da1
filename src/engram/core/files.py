"""Atomic file writes with content hashes; damage is detected and reported in one sentence.

    write(path, content)          a temporary file beside it, flushed to disk, renamed
    dump_hashed_json(value)       JSON with the sha256 of its own content; `load_hashed_json` reads and checks it
    pack(state, tensors)          a nested state as JSON and tensors, which `serialize` writes; `unpack` undoes it

What is read may come from anybody: no pickle, no size without a limit.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from engram.core.errors import EngramError

LARGEST_TEXT = 1 << 30
"""bytes of a file of JSON"""


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError (disk full, read-only, no permission) into one sentence."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise EngramError(f"{path} cannot be written: {reason}; what was saved before is intact.") from None


def write(path: Path, content: bytes) -> None:
    """Write a file atomically: a temporary file beside it, flushed to disk, then renamed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with writing(path):
        try:
            with temporary.open("wb") as file:
                file.write(content)
                flush(file)
            temporary.replace(path)
            flush_folder(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def flush(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def flush_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for, and a device has no end
            raise EngramError(f"{path} cannot be read: it is not a file.")
        return path.read_bytes()
    except FileNotFoundError:
        raise EngramError(f"{path} is missing.") from None
    except OSError as error:
        raise EngramError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}.") from None
    except MemoryError:
        raise EngramError(f"{path} cannot be read: it is larger than the memory that is left.") from None


def read_text(path: Path) -> bytes:
    if path.is_file() and path.stat().st_size > LARGEST_TEXT:
        raise EngramError(f"{path} is larger than the {LARGEST_TEXT >> 30} GB that a file of JSON may have.")
    return read(path)


def read_json(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError):
        raise EngramError(f"{path} is damaged: it is not JSON.") from None


def read_checked(path: Path, sha256: str) -> bytes:
    content = read(path)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise EngramError(f"{path} is damaged: its sha256 is not the one that was recorded when it was written.")
    return content


def dump_hashed_json(value: Mapping[str, Any]) -> bytes:
    """Return JSON with the hash of its own content."""
    return json.dumps({"sha256": hashlib.sha256(json.dumps(value).encode()).hexdigest(), "content": value}).encode()


def load_hashed_json(path: Path) -> dict[str, Any]:
    value = read_json(path)
    content: dict[str, Any] = value.get("content", {}) if isinstance(value, dict) else {}
    if (
        not content
        or not isinstance(content, dict)
        or hashlib.sha256(json.dumps(content).encode()).hexdigest() != value.get("sha256")
    ):
        raise EngramError(f"{path} is damaged: its content does not match its sha256.")
    return content


# ---------------------------------------------------------------------- tensors and nested state


def serialize(tensors: Mapping[str, Tensor]) -> bytes:
    """Return the content of a safetensors file; tensors that share memory are copied."""
    plain, seen = {}, set[int]()
    for name, tensor in tensors.items():
        own = tensor.detach().cpu().contiguous()
        plain[name] = own.clone() if own.data_ptr() in seen else own
        seen.add(own.data_ptr())
    return safetensors.torch.save(plain)


def tensors_of(content: bytes, path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file."""
    try:
        return safetensors.torch.load(content)
    except Exception as error:  # what safetensors and torch say of a header that lies has no common kind
        raise EngramError(f"{path} is damaged: {str(error).rstrip('.')}.") from None


def pack(value: Any, tensors: dict[str, Tensor], path: str = "") -> Any:
    """Return `value` as JSON, with its tensors moved to `tensors`, keyed by their path."""
    if isinstance(value, Tensor):
        tensors[path] = value
        return {"tensor": path}
    if isinstance(value, Mapping):
        return {"map": [[key, pack(item, tensors, f"{path}/{key}")] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        items = [pack(item, tensors, f"{path}/{i}") for i, item in enumerate(value)]
        return {"list" if isinstance(value, list) else "tuple": items}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"a state holds tensors, numbers and strings, not {type(value).__name__} (at {path})")


def unpack(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Invert `pack`."""
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "map":
        return {key: unpack(item, tensors) for key, item in content}
    items = [unpack(item, tensors) for item in content]
    return items if kind == "list" else tuple(items)
