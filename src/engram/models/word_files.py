"""Files of word vectors: word2vec's text and binary formats, as gensim and the original program have them; safetensors.

text      «V E» in a line, then in each line a word and E numbers, between spaces
binary    «V E» in a line, then for each word its name, a space and E float32, low byte first
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
LONGEST_WORD = 10_000
"""bytes after which a word without end is taken for damage"""
WIDEST = 1 << 20
"""numbers of a vector"""
PACKED = 1032
"""how many bytes one of a gzip file can become"""


def write(path: Path, words: Sequence[str], vectors: Tensor, binary: bool | None = None) -> Path:
    """Write the file whole or not at all; its name says which format, unless `binary` does."""
    for word in words:
        if not word or " " in word or "\n" in word:
            raise EngramError(f"The word {word!r} has a space or nothing in it, which these files cannot hold.")
    array = np.ascontiguousarray(vectors.numpy(), dtype="<f4")
    draft = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as file:
            if path.suffix == ".safetensors":
                file.write(save({"vectors": torch.from_numpy(array)}, {"words": json.dumps(list(words))}))
            else:
                _write_rows(file, words, array, path.suffix == ".bin" if binary is None else binary)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise EngramError(f"{path} cannot be written: {(error.strerror or str(error)).lower()}.") from None
    finally:
        draft.unlink(missing_ok=True)
    return path


def _write_rows(file: IO[bytes], words: Sequence[str], array: NDArray[np.float32], binary: bool) -> None:
    file.write(f"{len(array)} {array.shape[1]}\n".encode())
    for word, row in zip(words, array, strict=True):
        if binary:
            file.write(word.encode() + b" " + row.tobytes())
        else:
            file.write(f"{word} {' '.join(map(str, row))}\n".encode())


def read(path: Path) -> tuple[list[str], Tensor]:
    """Words and vectors of a file, which itself tells what format it has, or of the folder of a run of word2vec."""
    if not path.exists():
        raise EngramError(f"There is no file or folder {path} to read word vectors from.")
    try:
        if path.is_dir():
            return _read_run(path)
        if path.suffix == ".safetensors":
            return _read_tensors(path)
        with path.open("rb") as plain:
            packed = plain.read(2) == GZIP
        with gzip.open(path) if packed else path.open("rb") as file:
            count, width = map(int, file.readline(100).split())
            if count < 1 or width < 1:
                raise ValueError("it announces no words")
            if width > WIDEST or 2 * count * width > path.stat().st_size * (PACKED if packed else 1):
                raise ValueError(f"it announces {count} × {width} numbers, which it cannot hold")
            return _read_rows(cast(IO[bytes], file), count, width)
    except Exception as error:  # what gzip, zlib, safetensors and JSON say of damage has no common kind
        raise EngramError(f"{path} does not hold word vectors as word2vec writes them: {error}.") from None


def _read_tensors(path: Path) -> tuple[list[str], Tensor]:
    with safetensors.safe_open(path, framework="pt") as file:
        words, vectors = json.loads(file.metadata()["words"]), file.get_tensor("vectors")
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words) or len(words) != len(vectors):
        raise ValueError("it has not a word for each vector")
    return words, vectors


def _read_run(folder: Path) -> tuple[list[str], Tensor]:
    place = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    with safetensors.safe_open(folder / "model.safetensors", framework="pt") as file:
        v, count = file.get_tensor("v"), file.get_tensor("count")
    return by_count(sorted(place, key=lambda word: int(place[word])), v, count)


def by_count(words: Sequence[str], vectors: Tensor, count: Tensor) -> tuple[list[str], Tensor]:
    """The words that occur, the most frequent first, as these files have them."""
    order = count.argsort(descending=True, stable=True)[: int((count > 0).sum())]
    return [words[i] for i in order.tolist()], vectors[order]


def _read_rows(file: IO[bytes], count: int, width: int) -> tuple[list[str], Tensor]:
    """Text if the first line ends after as many numbers as it should, binary otherwise."""
    start = file.tell()
    fields = file.readline(LONGEST_WORD + 40 * width).rstrip(b"\n ").split(b" ")
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
    word, *numbers = file.readline(LONGEST_WORD + 40 * width).decode("utf-8", "replace").rstrip().split(" ")
    if len(numbers) != width:
        raise ValueError(f"line {i + 2} has {len(numbers)} numbers instead of {width}")
    return word, np.array(numbers, dtype=np.float32)


def _binary_row(file: IO[bytes], i: int, width: int) -> tuple[str, NDArray[np.float32]]:
    word = bytearray()
    while (byte := file.read(1)) != b" ":
        if not byte or len(word) > LONGEST_WORD:
            raise ValueError(f"word {i + 1} does not end")
        word += byte if byte != b"\n" else b""  # the original program ends a row with a line break
    row = np.frombuffer(file.read(4 * width), "<f4")
    if len(row) != width:
        raise ValueError(f"word {i + 1} has {len(row)} numbers instead of {width}")
    return word.decode("utf-8", "replace"), row
