"""Semantic search: the passages of a folder of texts whose vectors are nearest to that of a query.

Vectors are kept in the cache, by the weights of the model and the passages, so that the second search only reads them.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engram.core.errors import EngramError
from engram.data.cache import cache_folder, explain_errors
from engram.data.text_files import read_text_file

SUFFIXES = (".txt", ".md", ".rst")
MOST_WORDS = 150
"""words of a passage; a longer paragraph is several"""
FEW_WORDS = 4
"""words below which a paragraph is no passage, but a title or a rule"""
BATCH = 64
Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Passage:
    """A passage of a file, and the line where it begins."""

    file: str
    line: int
    text: str


@dataclass(frozen=True)
class Hit:
    """A passage that was found, and the cosine similarity of its vector to that of the query."""

    cosine: float
    passage: Passage


def read_passages(paths: Sequence[str]) -> list[Passage]:
    """Read the passages of text files, also of all in a folder."""
    files = [file for path in paths for file in text_files(Path(path))]
    found = [passage for file in files for passage in split_passages(file, read_text_file(file))]
    if not found:
        raise EngramError(f"{' and '.join(paths)} hold no passage of {FEW_WORDS} words or more.")
    return found


def text_files(path: Path) -> list[Path]:
    """Return a file, or the text files of a folder."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise EngramError(f"There is no file or folder {path}.")
    files = [file for file in sorted(path.rglob("*")) if file.suffix.lower() in SUFFIXES and file.is_file()]
    if not files:
        raise EngramError(f"{path} holds no file that ends in {', '.join(SUFFIXES)}.")
    return files


def split_passages(file: Path, text: str) -> Iterator[Passage]:
    """Yield the paragraphs of a text, which empty lines divide; long ones in pieces."""
    lines, start = text.splitlines(), 0
    for end in range(len(lines) + 1):
        if end < len(lines) and lines[end].strip():
            continue
        words = " ".join(lines[start:end]).split()
        if len(words) >= FEW_WORDS:
            for first in range(0, len(words), MOST_WORDS):
                yield Passage(str(file), start + 1, " ".join(words[first : first + MOST_WORDS]))
        start = end + 1


def search(
    model: Any, query: str, passages: Sequence[Passage], top: int, progress: Callable[[int], None] = lambda done: None
) -> list[Hit]:
    """Return the passages nearest to a query, best first."""
    vectors = embed_passages(model, passages, progress)
    cosine = vectors @ model.embed(query)[0]
    return [Hit(float(cosine[i]), passages[i]) for i in np.argsort(-cosine, kind="stable")[:top]]


def embed_passages(model: Any, passages: Sequence[Passage], progress: Callable[[int], None]) -> Vectors:
    """Return the vectors of all passages, from the cache where they are there."""
    path = cache_folder() / f"passages-{signature(model, passages)}.npy"
    if path.exists():
        try:
            found: Vectors = np.load(path, allow_pickle=False)
            if found.shape == (len(passages), model.config.width):
                return found
        except (OSError, ValueError):
            pass  # a damaged file is made anew
    parts = []
    for start in range(0, len(passages), BATCH):
        parts.append(model.embed([passage.text for passage in passages[start : start + BATCH]]))
        progress(start + len(parts[-1]))
    vectors: Vectors = np.concatenate(parts)
    with explain_errors():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        with partial.open("wb") as stream:
            np.save(stream, vectors)
        partial.replace(path)
    return vectors


def signature(model: Any, passages: Sequence[Passage]) -> str:
    """Hash of the weights of a model and of the passages."""
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(name.encode())
        digest.update(value.contiguous().numpy().data)
    for passage in passages:
        digest.update(f"{passage.text}\0".encode())
    return digest.hexdigest()[:32]
