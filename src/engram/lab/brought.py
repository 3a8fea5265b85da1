"""Pictures that a page sends: drawn there, or decoded from somebody's file. Its other half is static/brought.js."""

import base64
import binascii
from typing import Any

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.core.registry import must_be_item

LARGEST = 3 * 448 * 448
"""pixels times channels of a picture that is read: more would not fit into a message of the lab"""


def must_be_small(pixels: str) -> None:
    """Refuse what is longer than any picture, before anything is done with it."""
    if len(pixels) > 4 * LARGEST // 3 + 4:
        raise EngramError(f"pixels must be at most {LARGEST} bytes, and there are more.")


def picture(pixels: str, shape: tuple[int, ...]) -> Tensor:
    """Bytes in base 64, channel by channel and row by row, as 1 × C × H × W from 0 to 1."""
    try:
        content = base64.b64decode(pixels, validate=True)
    except (binascii.Error, ValueError):
        raise EngramError("pixels must be bytes in base 64.") from None
    channels, height, width = shape
    if len(content) != channels * height * width:
        said = f"{channels} × {height} × {width} = {channels * height * width}"
        raise EngramError(f"pixels must be {said} bytes, one for each number of the picture, not {len(content)}.")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).view(1, *shape).float() / 255


def test_count(data: Any) -> int:
    """How many test pictures there are; a checkpoint has none."""
    return len(data.test) if "test" in data.splits else 0


def test_pictures(data: Any, items: list[int]) -> Tensor:
    """Pictures of the test by their numbers, B × C × H × W from 0 to 1."""
    if not test_count(data):
        raise EngramError("A checkpoint brings no test pictures: draw one, or choose a file.")
    for item in items:
        must_be_item(item, len(data.test))
    chosen: Tensor = data.test["image"][torch.tensor(items)]
    return chosen.float() / 255
