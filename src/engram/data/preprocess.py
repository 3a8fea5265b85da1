"""Preprocessing of images for a checkpoint, as its preprocessor_config.json describes.

Resize, center crop, rescale.

The result is a float image from 0 to 1; the model itself normalizes it with its mean and standard deviation.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from engram.core.errors import EngramError

HALF = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
WEB = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
"""mean and standard deviation of the images of CLIP"""
DEFAULTS: dict[str, dict[str, Any]] = {
    "ViT": {"resample": 2, **HALF},
    "DeiT": {"resample": 3, "do_center_crop": True, **HALF},
    "CLIP": {"resample": 3, "do_center_crop": True, **WEB},
    "Siglip": {"resample": 3, **HALF},
    "Bit": {"resample": 3, "do_center_crop": True, **WEB},
}
"""defaults of transformers for values that the file leaves out, by the kind of image processor"""
SHORTEST = ("CLIP", "Bit")
"""kinds that resize the shorter side"""


@dataclass(frozen=True, kw_only=True)
class Preprocess:
    """Resizes, crops and rescales images."""

    size: tuple[int, int] | int | None = None
    """(height, width) to resize to, or the length of the shorter side; None does not resize"""
    crop: tuple[int, int] | None = None
    """(height, width) of the center crop, padded with black where the image is smaller; None does not crop"""
    resample: int = 2
    """filter, as Pillow numbers them: 0 nearest, 1 Lanczos, 2 bilinear, 3 bicubic, 4 box, 5 Hamming"""
    channels: int = 3
    """channels: 3 for RGB, 1 for grayscale"""

    @classmethod
    def resize_to(cls, shape: Sequence[int]) -> "Preprocess":
        """Return a preprocessing that only resizes to `shape` (channels, height, width)."""
        return cls(size=(shape[1], shape[2]), channels=shape[0])

    def __call__(self, images: Iterable[Image.Image]) -> Tensor:
        """Return images as floats from 0 to 1, B × C × H × W."""
        arrays = [self._to_array(image) for image in images]
        if len({array.shape for array in arrays}) != 1:
            raise EngramError("These images do not become all of one size: the preprocessing must resize or crop.")
        return torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).float() / 255

    def _to_array(self, image: Image.Image) -> "np.ndarray[Any, np.dtype[np.uint8]]":
        image = image.convert("RGB" if self.channels == 3 else "L")
        if self.size is not None:
            height, width = self._target_size(image)
            image = image.resize((width, height), self.resample)
        if self.crop is not None:
            height, width = self.crop
            left, top = (image.width - width) // 2, (image.height - height) // 2
            image = image.crop((left, top, left + width, top + height))
        return np.asarray(image).reshape(image.height, image.width, self.channels)

    def _target_size(self, image: Image.Image) -> tuple[int, int]:
        if isinstance(self.size, tuple):
            return self.size
        assert self.size is not None
        short, long = sorted(image.size)
        longer = int(self.size * long / short)
        return (self.size, longer) if image.height == short else (longer, self.size)

    # ------------------------------------------------------------------ preprocessor_config.json

    @classmethod
    def from_json(cls, about: Mapping[str, Any], shape: Sequence[int]) -> "Preprocess":
        """Read preprocessor_config.json for a model of images of this shape (C, H, W)."""
        kind = _kind(about)
        about = {**DEFAULTS[kind], **about}
        square = {"height": shape[1], "width": shape[2]}
        shortest = {"shortest_edge": min(shape[1:])}
        larger = {side: length * 256 // 224 for side, length in square.items()}
        size = about.get("size") or (shortest if kind in SHORTEST else larger if kind == "DeiT" else square)
        crop = about.get("crop_size") or square
        return cls(
            size=_size(size, square=kind not in SHORTEST) if about.get("do_resize", True) else None,
            crop=_size(crop, square=True) if about.get("do_center_crop") else None,  # type: ignore[arg-type]
            resample=about["resample"],
            channels=shape[0],
        )

    def to_json(self, kind: str, mean: Sequence[float], std: Sequence[float]) -> dict[str, Any]:
        """Return the content of preprocessor_config.json for the image processor `kind` of transformers."""
        size = {"shortest_edge": self.size} if isinstance(self.size, int) else _sides(self.size)
        return {
            "image_processor_type": kind,
            "do_resize": self.size is not None,
            "size": size,
            "resample": self.resample,
            "do_center_crop": self.crop is not None,
            "crop_size": _sides(self.crop),
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "do_convert_rgb": self.channels == 3,
            "image_mean": list(mean) * (self.channels if len(mean) == 1 else 1),
            "image_std": list(std) * (self.channels if len(std) == 1 else 1),
        }


def read_normalization(about: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    """Return `mean` and `std` of pixels from 0 to 1 by preprocessor_config.json, for a model's config."""
    about = {**DEFAULTS[_kind(about)], **about}
    mean, std = (about["image_mean"], about["image_std"]) if about.get("do_normalize", True) else (0.0, 1.0)
    scale = 255 * about.get("rescale_factor", 1 / 255) if about.get("do_rescale", True) else 255
    return {"mean": _channels(mean, scale), "std": _channels(std, scale)}


def _channels(value: float | Sequence[float], scale: float) -> tuple[float, ...]:
    """Return one number per channel, or a single one if they are all the same."""
    values = tuple(value) if isinstance(value, Sequence) else (value,)
    return tuple(v / scale for v in (values if len(set(values)) > 1 else values[:1]))


def _kind(about: Mapping[str, Any]) -> str:
    """Return the kind of image processor, by the start of its name.

    One that is not known is treated as ViT's.
    """
    name = about.get("image_processor_type") or about.get("feature_extractor_type") or ""
    return next((kind for kind in DEFAULTS if name.startswith(kind)), "ViT")


def _size(value: Any, *, square: bool) -> tuple[int, int] | int:
    """Parse a size: an object, or in old files one number, which is both sides or the shorter one."""
    if isinstance(value, Mapping):
        if {"height", "width"} <= value.keys():
            return value["height"], value["width"]
        if set(value) == {"shortest_edge"}:
            return int(value["shortest_edge"])
    if isinstance(value, int):
        return (value, value) if square else value
    raise EngramError(f"An image cannot be resized to {value!r}: give height and width, or shortest_edge.")


def _sides(size: tuple[int, int] | None) -> dict[str, int] | None:
    return {"height": size[0], "width": size[1]} if size else None
