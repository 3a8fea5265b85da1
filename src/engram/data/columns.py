"""Columns that do not fit a tensor.

Strings of any length, bit-packed images, images resized on access.

Samples are stored packed in a few tensors, as in the cache file, and unpacked on access. Indexing with a tensor gives
a view that shares the bytes: shuffling or splitting millions of lines copies none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import overload

import torch
from torch import Tensor
from torch.nn import functional


class Strings(Sequence[str]):
    """A sequence of strings stored as UTF-8 bytes; string i is `content[starts[i]:ends[i]]`."""

    def __init__(self, content: Tensor, starts: Tensor, ends: Tensor) -> None:
        self.content, self.starts, self.ends = content, starts, ends

    @classmethod
    def from_texts(cls, texts: Iterable[str]) -> Strings:
        """Pack `texts`."""
        return cls.from_bytes([text.encode() for text in texts])

    @classmethod
    def from_bytes(cls, texts: Sequence[bytes]) -> Strings:
        """Pack texts given as UTF-8 bytes."""
        offsets = torch.tensor(list(accumulate(map(len, texts), initial=0)), dtype=torch.int64)
        content = torch.frombuffer(bytearray(b"".join(texts)) or bytearray(1), dtype=torch.uint8)[: int(offsets[-1])]
        return cls.from_offsets(content, offsets)

    @classmethod
    def from_offsets(cls, content: Tensor, offsets: Tensor) -> Strings:
        """Strings stored one after the other: string i is `content[offsets[i]:offsets[i + 1]]`."""
        return cls(content, offsets[:-1], offsets[1:])

    def pack(self) -> tuple[Tensor, Tensor]:
        """Return (content, offsets) with the strings one after the other, as `from_offsets` takes them."""
        again = self if self._is_contiguous() else Strings.from_bytes([self._bytes(i) for i in range(len(self))])
        first = again.starts[:1] if len(again) else torch.zeros(1, dtype=torch.int64)
        last = int(again.ends[-1]) if len(again) else 0
        return again.content[int(first) : last], torch.cat([first, again.ends]) - first

    def _is_contiguous(self) -> bool:
        return bool((self.starts[1:] == self.ends[:-1]).all())

    def _bytes(self, i: int) -> bytes:
        return self.content[int(self.starts[i]) : int(self.ends[i])].numpy().tobytes()

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice | Tensor) -> Strings: ...
    def __getitem__(self, index: int | slice | Tensor) -> str | Strings:
        if isinstance(index, int):
            return self._bytes(index).decode()
        return Strings(self.content, self.starts[index], self.ends[index])

    def __iter__(self) -> Iterator[str]:
        return (self._bytes(i).decode() for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Sequence)
            and len(self) == len(other)
            and all(a == b for a, b in zip(self, other, strict=True))
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        few = ", ".join(repr(text[:40]) for text in self[:3])
        return f"Strings({few}{', …' if len(self) > 3 else ''}; {len(self)} in all)"


class Bitmaps:
    """Binary images at one bit per pixel; indexing gives uint8 N × 1 × H × W with values 0 and 255.

    `rows` are the indices of this column's images in `bits`, so that a split of 737 280 images copies no pixels.
    """

    dtype = torch.uint8

    def __init__(self, bits: Tensor, height: int, width: int, rows: Tensor | None = None) -> None:
        self.bits, self.height, self.width = bits, height, width  # bits: uint8 N × (H W / 8), most significant first
        self.rows = torch.arange(len(bits)) if rows is None else rows

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self.rows), 1, self.height, self.width))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int | slice | Tensor) -> Tensor:
        packed = self.bits[self.rows[index]]
        places = torch.tensor([128, 64, 32, 16, 8, 4, 2, 1], dtype=torch.uint8)
        pixels = (packed[..., None] & places).ne(0).to(torch.uint8) * 255
        return pixels.reshape(*packed.shape[:-1], 1, self.height, self.width)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def view(self, rows: Tensor) -> Bitmaps:
        """Return the images at `rows` as a column that shares the bits."""
        return Bitmaps(self.bits, self.height, self.width, self.rows[rows])


class ResizedImages:
    """Images resized on access to the size and number of channels that a checkpoint expects."""

    dtype = torch.uint8

    def __init__(self, image: Tensor | Bitmaps, shape: tuple[int, ...]) -> None:
        self.image, self.shape = image, torch.Size((len(image), *shape))

    def __len__(self) -> int:
        return len(self.image)

    def __getitem__(self, index: int | slice | Tensor) -> Tensor:
        """Return uint8 N × C × H × W, or C × H × W for one index."""
        if isinstance(index, int):
            return self[index : index + 1][0]
        size = list(self.shape[2:])
        pixels = functional.interpolate(
            self.image[index].float(), size, mode="bilinear", antialias=True, align_corners=False
        )
        pixels = pixels.round().clamp(0, 255).to(torch.uint8)
        if pixels.shape[1] == self.shape[1]:
            return pixels
        return pixels.expand(-1, self.shape[1], -1, -1) if pixels.shape[1] == 1 else pixels[:, : self.shape[1]]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))
