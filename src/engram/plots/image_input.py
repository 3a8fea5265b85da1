"""Images that a page of the lab sends (static/image_input.js): drawn there, or decoded from a file."""

import base64
import binascii
from typing import Any

import torch
from torch import Tensor

from engram.core.errors import EngramError
from engram.core.recipe import check_item

MAX_BYTES = 3 * 448 * 448
"""largest number of pixels times channels of an image"""


def check_pixels(pixels: str) -> None:
    """Refuse base64 text that is longer than the largest image, before it is decoded."""
    if len(pixels) > 4 * MAX_BYTES // 3 + 4:
        raise EngramError(f"pixels must be at most {MAX_BYTES} bytes, and there are more.")


def decode_pixels(pixels: str, shape: tuple[int, ...]) -> Tensor:
    """Decode bytes in base64, channel by channel and row by row, to 1 × C × H × W from 0 to 1."""
    try:
        content = base64.b64decode(pixels, validate=True)
    except (binascii.Error, ValueError):
        raise EngramError("pixels must be bytes in base64.") from None
    channels, height, width = shape
    if len(content) != channels * height * width:
        size = f"{channels} × {height} × {width} = {channels * height * width}"
        raise EngramError(f"pixels must be {size} bytes, one for each value of the image, not {len(content)}.")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).view(1, *shape).float() / 255


def count_test_images(data: Any) -> int:
    """Return the number of test images; 0 for a checkpoint, which has no data."""
    return len(data.test) if "test" in data.splits else 0


def get_test_images(data: Any, items: list[int]) -> Tensor:
    """Return test images by their numbers, B × C × H × W from 0 to 1."""
    if not count_test_images(data):
        raise EngramError("A checkpoint has no test images: draw one, or choose a file.")
    for item in items:
        check_item(item, len(data.test))
    chosen: Tensor = data.test["image"][torch.tensor(items)]
    return chosen.float() / 255
