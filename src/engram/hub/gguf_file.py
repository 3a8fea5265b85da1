r"""GGUF files, as llama.cpp has them: metadata, and tensors in blocks of few bits.

    w = d q                            Q8_0: 32 numbers of 8 bits                          (1)
    w = d (q - 8)                      Q4_0: 32 numbers of 4 bits                          (2)
    w = d q + m                        Q4_1: the same with a minimum                       (3)
    w = d s q - d' s' m                Q4_K, Q5_K: 8 groups of 32, with a scale and a minimum of 6 bits each     (4)
    w = d s (q - 32)                   Q6_K: 16 groups of 16, with a scale of 8 bits       (5)

    Symbols:
        w             weights
        q             numbers of a block
        d, d', m      scales and minimum of a block, in 16 bits
        s, s'         scales of the groups of a block

The file is mapped into memory. Every length in it is held against the bytes that are left before anything is read or
allocated, so that a hostile file cannot ask for more than its own size.
"""

import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from engram.core.errors import EngramError
from engram.generation.quantization import QuantizedWeight, quantize_weight

Array = npt.NDArray[Any]
MAGIC, VERSIONS = b"GGUF", (2, 3)
MAX_DIMENSIONS = 4
GROUPS = 256
"""numbers of a block of the K formats"""


def _q8_0(block: Array) -> Array:
    return _scale(block, 0) * block[:, 2:].view(np.int8)  # (1)


def _q4_0(block: Array) -> Array:
    return _scale(block, 0) * (_nibbles(block[:, 2:]) - np.float32(8))  # (2)


def _q4_1(block: Array) -> Array:
    return _scale(block, 0) * _nibbles(block[:, 4:]) + _scale(block, 2)  # (3)


def _q4_k(block: Array) -> Array:
    q = np.stack([block[:, 16:].reshape(-1, 4, 32) & 15, block[:, 16:].reshape(-1, 4, 32) >> 4], 2)
    return _scale_groups(block, q.reshape(-1, 8, 32))


def _q5_k(block: Array) -> Array:
    low = np.stack([block[:, 48:].reshape(-1, 4, 32) & 15, block[:, 48:].reshape(-1, 4, 32) >> 4], 2)
    high = (block[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
    return _scale_groups(block, low.reshape(-1, 8, 32) | high << 4)


def _q6_k(block: Array) -> Array:
    low, high = block[:, :128].reshape(-1, 2, 1, 64), block[:, 128:192].reshape(-1, 2, 1, 32)
    q = (low >> np.array([0, 4], np.uint8)[:, None]) & 15
    h = (high >> np.array([0, 2, 4, 6], np.uint8)[:, None]) & 3
    numbers = (q.reshape(-1, 2, 4, 32) | h << 4).astype(np.float32) - np.float32(32)
    scale = _scale(block, 208) * block[:, 192:208].view(np.int8)
    return (numbers.reshape(-1, 16, 16) * scale[..., None]).reshape(-1, GROUPS)  # (5)


def _scale(block: Array, start: int) -> Array:
    """Return the number of 16 bits at a place of each block, N × 1."""
    return np.ascontiguousarray(block[:, start : start + 2]).view(np.float16).astype(np.float32)


def _nibbles(packed: Array) -> Array:
    """Return the low halves of all bytes, then the high ones."""
    return np.concatenate([packed & 15, packed >> 4], 1).astype(np.float32)


def _scale_groups(block: Array, q: Array) -> Array:
    """Scale 8 groups of 32 by (4); scales and minima of 6 bits are packed into 12 bytes."""
    d, m, both = (block[:, 4 + 4 * i : 8 + 4 * i] for i in range(3))
    s = np.concatenate([d & 63, (both & 15) | (d >> 2 & 48)], 1) * _scale(block, 0)
    low = np.concatenate([m & 63, (both >> 4) | (m >> 2 & 48)], 1) * _scale(block, 2)
    return (q * s[..., None] - low[..., None]).reshape(-1, GROUPS)  # (4)


@dataclass(frozen=True)
class Format:
    """A format of tensors: the numbers and the bytes of a block."""

    name: str
    numbers: int
    size: int
    decode: Callable[[Array], Array]
    bits: Literal[32, 8, 4] = 32
    """the bits in which a quantized matrix is held"""


FORMATS = {
    0: Format("F32", 1, 4, lambda block: block.view(np.float32)),
    1: Format("F16", 1, 2, lambda block: block.view(np.float16).astype(np.float32)),
    2: Format("Q4_0", 32, 18, _q4_0, 4),
    3: Format("Q4_1", 32, 20, _q4_1, 4),
    8: Format("Q8_0", 32, 34, _q8_0, 8),
    12: Format("Q4_K", GROUPS, 144, _q4_k, 4),
    13: Format("Q5_K", GROUPS, 176, _q5_k, 8),
    14: Format("Q6_K", GROUPS, 210, _q6_k, 8),
    30: Format("BF16", 1, 2, lambda block: (block.view(np.uint16).astype(np.uint32) << 16).view(np.float32)),
}
"""formats by their number in the file"""
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""kinds of metadata and their struct format; beside them strings and arrays"""
STRING, ARRAY = 8, 9


@dataclass(frozen=True)
class StoredBlocks:
    """Place and format of a tensor."""

    shape: tuple[int, ...]
    format: Format
    start: int

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return prod(self.shape) // self.format.numbers * self.format.size


@dataclass
class GGUFFile:
    """A GGUF file: its metadata, and its tensors by name."""

    path: Path
    metadata: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, StoredBlocks] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.path.is_file():
            raise EngramError(f"There is no file {self.path}.")
        with self.path.open("rb") as file:
            if not self.path.stat().st_size:
                raise EngramError(f"{self.path} is empty.")
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._place = 0
        try:
            self._read_header()
        except (struct.error, UnicodeDecodeError) as error:
            raise self._damaged(str(error)) from None

    def read(self, name: str) -> Array:
        """Return a tensor as 32-bit numbers, apart from the file."""
        about = self.tensors[name]
        flat = np.frombuffer(self.bytes, np.uint8, about.size, about.start)
        decoded = about.format.decode(flat.reshape(-1, about.format.size)).reshape(about.shape)
        return decoded if decoded.flags.writeable else decoded.copy()

    def read_quantized(self, name: str) -> QuantizedWeight | torch.Tensor:
        """Return a matrix as it is quantized in the file, or in the nearest format; others in 32 bits."""
        about = self.tensors[name]
        if about.format.bits == 32 or len(about.shape) != 2:
            return torch.from_numpy(self.read(name))
        if about.format.name not in ("Q4_0", "Q4_1", "Q8_0"):
            return quantize_weight(torch.from_numpy(self.read(name)), about.format.bits)
        block = np.frombuffer(self.bytes, np.uint8, about.size, about.start).reshape(-1, about.format.size)
        scales = {"Q4_1": 2}.get(about.format.name, 1)
        numbers = block[:, 2 * scales :]
        q = numbers ^ 128 if about.format.bits == 8 else np.concatenate([numbers & 15, numbers >> 4], 1)
        scale, *minimum = (
            torch.from_numpy(block[:, 2 * i : 2 * i + 2].copy()).view(torch.float16).view(about.shape[0], -1)
            for i in range(scales)
        )
        zero = {"Q4_0": 8, "Q8_0": 128}.get(about.format.name, 0)
        q_OI = torch.from_numpy(q).view(about.shape)
        return QuantizedWeight(about.format.bits, q_OI, scale, minimum[0] if minimum else None, zero)

    # ------------------------------------------------------------------ header

    def _read_header(self) -> None:
        if self._take(4) != MAGIC:
            raise EngramError(f"{self.path} is not a GGUF file.")
        version, tensors, pairs = self._unpack("IQQ")
        if version not in VERSIONS:
            raise EngramError(f"{self.path} has version {version} of GGUF, and {VERSIONS} can be read.")
        self._check(tensors * 32 + pairs * 13)  # bytes that so many tensors and pairs take at least
        for _ in range(pairs):
            key = self._text()
            if key in self.metadata:
                raise self._damaged(f'it has "{key}" twice')
            self.metadata[key] = self._value(self._unpack("I")[0])
        found = [self._tensor() for _ in range(tensors)]
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise self._damaged("its alignment is no number of bytes")
        data = -(-self._place // alignment) * alignment
        for name, shape, form, offset in found:
            about = StoredBlocks(shape, form, data + offset)
            if name in self.tensors or about.start + about.size > len(self.bytes):
                raise self._damaged(f"its tensor {name} is there twice, or goes beyond the end")
            self.tensors[name] = about

    def _tensor(self) -> tuple[str, tuple[int, ...], Format, int]:
        name = self._text()
        (dimensions,) = self._unpack("I")
        if dimensions > MAX_DIMENSIONS:
            raise self._damaged(f"its tensor {name} has {dimensions} dimensions")
        shape = tuple(reversed(self._unpack(f"{dimensions}Q")))
        kind, offset = self._unpack("IQ")
        if kind not in FORMATS:
            known = ", ".join(form.name for form in FORMATS.values())
            raise EngramError(f"The tensor {name} of {self.path} has format {kind}; {known} can be read.")
        form = FORMATS[kind]
        if not shape or prod(shape) == 0 or shape[-1] % form.numbers:
            raise self._damaged(f"its tensor {name} has the shape {shape}, which {form.name} cannot have")
        return name, shape, form, offset

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._text()
        if kind in SCALARS:
            return self._unpack(SCALARS[kind])[0]
        if kind != ARRAY:
            raise self._damaged(f"its metadata have kind {kind}")
        inner, count = self._unpack("IQ")
        if inner == STRING:
            self._check(8 * count)
            return [self._text() for _ in range(count)]
        if inner not in SCALARS:
            raise self._damaged(f"an array of its metadata has kind {inner}")
        self._check(count * struct.calcsize(f"<{SCALARS[inner]}"))
        return list(self._unpack(f"{count}{SCALARS[inner]}"))

    def _text(self) -> str:
        (length,) = self._unpack("Q")
        return self._take(length).decode()

    def _unpack(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(f"<{form}", self._take(struct.calcsize(f"<{form}")))

    def _take(self, size: int) -> bytes:
        self._check(size)
        self._place += size
        return self.bytes[self._place - size : self._place]

    def _check(self, size: int) -> None:
        if size > len(self.bytes) - self._place:
            raise self._damaged("it ends before its header does")

    def _damaged(self, reason: str) -> EngramError:
        return EngramError(f"{self.path} is damaged: {reason}.")
