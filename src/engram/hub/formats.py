"""Checkpoints in formats of their own, neither of transformers nor GGUF.

Each is known by the files of its folder.

A system that reads one registers it in its file `pretrained.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engram.core.registry import discover
from engram.data.tokenizer import Tokenizer


@dataclass(frozen=True)
class Format:
    """A format of checkpoints: the files that such a folder has, and how a model is read from them."""

    model: type[Any]
    files: tuple[str, ...]
    read: Callable[[Path], tuple[Any, Tokenizer]]
    """reads model and tokenizer from the folder"""


_formats: list[Format] = []


def register_format(found: Format) -> None:
    """Register a format of checkpoints."""
    _formats.append(found)


def find_format(folder: Path) -> Format | None:
    """Return the format whose files the folder has; None if there is none."""
    if not folder.is_dir():
        return None
    discover("pretrained")
    return next((one for one in _formats if all((folder / name).is_file() for name in one.files)), None)
