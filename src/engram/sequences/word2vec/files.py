"""Files of word vectors: the text and binary formats of word2vec and gensim, and safetensors.

text      a line "V E", then in each line a word and E numbers, separated by spaces
binary    a line "V E", then for each word its name, a space and E little-endian float32
"""

import gzip
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, cast

import numpy as np
import safetensors
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor

from engram.core.errors import EngramError

GZIP = b"\x1f\x8b"
MAX_WORD_BYTES = 10_000
"""longest word in bytes; a longer one means that the file is damaged"""
MAX_WIDTH = 1 << 20
"""largest dimension of the vectors"""
GZIP_RATIO = 1032
"""highest compression ratio of gzip"""


def write_vectors(path: Path, words: Sequence[str], vectors: Tensor, binary: bool | None = None) -> Path:
    """Write a file atomically; the format follows from its suffix, unless `binary` is given."""
    for word in words:
        if not word or " " in word or "\n" in word:
            raise EngramError(f"The word {word!r} has a space or nothing in it, which these files cannot hold.")
    array = np.ascontiguousarray(vectors.numpy(), dtype="<f4")
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            if path.suffix == ".safetensors":
                file.write(save({"vectors": torch.from_numpy(array)}, {"words": json.dumps(list(words))}))
            else:
                _write_rows(file, words, array, path.suffix == ".bin" if binary is None else binary)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise EngramError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}.") from None
    finally:
        partial.unlink(missing_ok=True)
    return path


def _write_rows(file: IO[bytes], words: Sequence[str], array: NDArray[np.float32], binary: bool) -> None:
    file.write(f"{len(array)} {array.shape[1]}\n".encode())
    for word, row in zip(words, array, strict=True):
        if binary:
            file.write(word.encode() + b" " + row.tobytes())
        else:
            file.write(f"{word} {' '.join(map(str, row))}\n".encode())


def read_vectors(path: Path) -> tuple[list[str], Tensor]:
    """Read words and vectors of a file, whose format is detected, or of a run folder of word2vec."""
    if not path.exists():
        raise EngramError(f"There is no file or folder {path} to read word vectors from.")
    try:
        if path.is_dir():
            return _read_run(path)
        if path.suffix == ".safetensors":
            return _read_tensors(path)
        with path.open("rb") as raw:
            zipped = raw.read(2) == GZIP
        with gzip.open(path) if zipped else path.open("rb") as file:
            count, width = map(int, file.readline(100).split())
            if count < 1 or width < 1:
                raise ValueError("it announces no words")
            if width > MAX_WIDTH or 2 * count * width > path.stat().st_size * (GZIP_RATIO if zipped else 1):
                raise ValueError(f"it announces {count} × {width} numbers, which it cannot hold")
            return _read_rows(cast(IO[bytes], file), count, width)
    except Exception as error:  # gzip, zlib, safetensors and JSON share no exception class
        raise EngramError(f"{path} does not hold word vectors as word2vec writes them: {error}.") from None


def _read_tensors(path: Path) -> tuple[list[str], Tensor]:
    with safetensors.safe_open(path, framework="pt") as file:
        words, vectors = json.loads(file.metadata()["words"]), file.get_tensor("vectors")
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words) or len(words) != len(vectors):
        raise ValueError("it has not a word for each vector")
    return words, vectors


def _read_run(folder: Path) -> tuple[list[str], Tensor]:
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    with safetensors.safe_open(folder / "model.safetensors", framework="pt") as file:
        v, count = file.get_tensor("v"), file.get_tensor("count")
    return sort_by_count(sorted(vocabulary, key=lambda word: int(vocabulary[word])), v, count)


def sort_by_count(words: Sequence[str], vectors: Tensor, count: Tensor) -> tuple[list[str], Tensor]:
    """Return words and vectors by descending count, without those that never occur."""
    order = count.argsort(descending=True, stable=True)[: int((count > 0).sum())]
    return [words[i] for i in order.tolist()], vectors[order]


def _read_rows(file: IO[bytes], count: int, width: int) -> tuple[list[str], Tensor]:
    """Read text if the first line has the right number of numbers, binary otherwise."""
    start = file.tell()
    fields = file.readline(MAX_WORD_BYTES + 40 * width).rstrip(b"\n ").split(b" ")
    file.seek(start)
    text = len(fields) == width + 1 and all(map(_is_number, fields[1:]))
    words, array = [], np.empty((count, width), np.float32)
    for i in range(count):
        word, array[i] = _text_row(file, i, width) if text else _binary_row(file, i, width)
        words.append(word)
    return words, torch.from_numpy(array)


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _text_row(file: IO[bytes], i: int, width: int) -> tuple[str, NDArray[np.float32]]:
    word, *numbers = file.readline(MAX_WORD_BYTES + 40 * width).decode("utf-8", "replace").rstrip().split(" ")
    if len(numbers) != width:
        raise ValueError(f"line {i + 2} has {len(numbers)} numbers instead of {width}")
    return word, np.array(numbers, dtype=np.float32)


def _binary_row(file: IO[bytes], i: int, width: int) -> tuple[str, NDArray[np.float32]]:
    word = bytearray()
    while (byte := file.read(1)) != b" ":
        if not byte or len(word) > MAX_WORD_BYTES:
            raise ValueError(f"word {i + 1} does not end")
        word += byte if byte != b"\n" else b""  # the original program ends a row with a line break
    row = np.frombuffer(file.read(4 * width), "<f4")
    if len(row) != width:
        raise ValueError(f"word {i + 1} has {len(row)} numbers instead of {width}")
    return word.decode("utf-8", "replace"), row
